package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stats is a group's use of resources. A figure is 0 if no controller gives it.
type Stats struct {
	CPU    time.Duration
	Memory int64 // bytes
	Cache  int64 // bytes of Memory that are file pages the kernel can drop
	Pids   int   // tasks now
}

// Events counts the kernel's actions because of the limits.
type Events struct {
	OOMKills int64 // processes killed for memory
	PidsMax  int64 // refused forks
}

// Stats reads the group's present use.
func (g *Group) Stats() Stats {
	var s Stats
	if dir, v2 := g.dir(CPUAcct); dir != "" {
		if v2 {
			s.CPU = time.Duration(g.key(dir, "cpu.stat", "usage_usec")) * time.Microsecond
		} else {
			s.CPU = time.Duration(g.number(dir, "cpuacct.usage"))
		}
	}
	if dir, v2 := g.dir(Memory); dir != "" {
		prefix := ""
		if v2 {
			s.Memory = g.number(dir, "memory.current")
		} else {
			s.Memory = g.number(dir, "memory.usage_in_bytes")
			prefix = "total_"
		}
		stat := readKeys(filepath.Join(dir, "memory.stat"))
		// Not "cache" or "file": those include shared memory, which can't be dropped.
		s.Cache = stat[prefix+"inactive_file"] + stat[prefix+"active_file"]
	}
	if dir, _ := g.dir(Pids); dir != "" {
		s.Pids = int(g.number(dir, "pids.current"))
	}
	return s
}

// Events reads the counters. They vanish with the group.
func (g *Group) Events() Events {
	var e Events
	if dir, v2 := g.dir(Memory); dir != "" {
		if v2 {
			e.OOMKills = g.key(dir, "memory.events", "oom_kill")
		} else {
			e.OOMKills = g.key(dir, "memory.oom_control", "oom_kill")
		}
	}
	if dir, _ := g.dir(Pids); dir != "" {
		e.PidsMax = g.key(dir, "pids.events", "max")
	}
	return e
}

// number reads a file that contains one number.
func (g *Group) number(dir, file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(read(filepath.Join(dir, file))), 10, 64)
	return n
}

// key reads one number of a file of "key number" lines.
func (g *Group) key(dir, file, key string) int64 {
	return readKeys(filepath.Join(dir, file))[key]
}

// readKeys reads a file of "key number" lines.
func readKeys(file string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(read(file)) {
		k, v, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
			out[k] = n
		}
	}
	return out
}

// read returns a file's content; "" when it can't be read. Each group is measured once a minute.
// Package os would first ask for the file's size and put the file into the poller, which doubles
// the system calls.
func read(file string) string {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 2<<10)
	for {
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return string(buf)
		}
		if buf = buf[:len(buf)+n]; len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 4*cap(buf)), buf...)
		}
	}
}
