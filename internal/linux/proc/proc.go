//go:build linux

// Package proc watches processes of this host, also those that are not children of this process. It
// uses /proc, and process descriptors, which always mean the process that they were opened for.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of times in /proc. Linux shows user space 100 on every architecture
// that Go supports.
const ticksPerSecond = 100

// Stat holds the fields that we read from /proc/PID/stat.
type Stat struct {
	State    byte          // 'R', 'S', 'T', …
	CPU      time.Duration // processor time used
	Children time.Duration // time of ended children that were waited for
	Started  uint64        // ticks since boot
	Threads  int
}

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the fields after the name. The name is in parentheses and may contain any
// characters, also parentheses.
func parseStat(b []byte) (Stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, fmt.Errorf("stat: no name in %q", b)
	}
	f := strings.Fields(string(b[i+1:]))
	const utime, stime, cutime, cstime, numThreads, starttime = 11, 12, 13, 14, 17, 19 // of the fields after the name
	if len(f) <= starttime {
		return Stat{}, fmt.Errorf("stat: only %d fields", len(f))
	}
	var n [6]uint64
	for j, field := range []int{utime, stime, cutime, cstime, numThreads, starttime} {
		v, err := strconv.ParseUint(f[field], 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("stat: %w", err)
		}
		n[j] = v
	}
	return Stat{
		State:    f[0][0],
		CPU:      time.Duration(n[0]+n[1]) * time.Second / ticksPerSecond,
		Children: time.Duration(n[2]+n[3]) * time.Second / ticksPerSecond,
		Threads:  int(n[4]),
		Started:  n[5],
	}, nil
}

// StartTime is the time of a process's start, in ticks since boot. With the pid and the boot it
// identifies a process for ever.
func StartTime(pid int) (uint64, error) {
	s, err := ReadStat(pid)
	return s.Started, err
}

// BootID names this boot of the host.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// Children lists the processes that a process has started or inherited.
func Children(pid int) (pids []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, _ := os.ReadDir(dir)
	for _, t := range tasks {
		b, _ := os.ReadFile(dir + t.Name() + "/children")
		for _, w := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(w); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// Tree returns pid and all its descendants. Orphans become children of the first process of their
// pid namespace. So the tree of that process is the whole namespace.
func Tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, Children(pids[i])...)
	}
	return pids
}
