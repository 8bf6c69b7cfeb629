package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of times in /proc; Linux shows user space 100 on
// every architecture Go runs on.
const ticksPerSecond = 100

// procStat is what we read of /proc/PID/stat.
type procStat struct {
	cpu     time.Duration
	started uint64 // ticks since boot
	threads int
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// parseStat reads the fields after the name, which is in parentheses and may hold
// anything, parentheses too.
func parseStat(b []byte) (procStat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, fmt.Errorf("stat: no name in %q", b)
	}
	f := strings.Fields(string(b[i+1:]))
	const utime, stime, numThreads, starttime = 11, 12, 17, 19 // of the fields after the name
	if len(f) <= starttime {
		return procStat{}, fmt.Errorf("stat: only %d fields", len(f))
	}
	var n [4]uint64
	for j, field := range []int{utime, stime, numThreads, starttime} {
		v, err := strconv.ParseUint(f[field], 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("stat: %w", err)
		}
		n[j] = v
	}
	return procStat{
		cpu:     time.Duration(n[0]+n[1]) * time.Second / ticksPerSecond,
		threads: int(n[2]),
		started: n[3],
	}, nil
}

// startTime is when a process started, in ticks since boot. Together with the
// boot it names a process for ever.
func startTime(pid int) (uint64, error) {
	s, err := readStat(pid)
	return s.started, err
}

// bootID names this boot of the host.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// tree returns pid and all its descendants.
func tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pids[i]) + "/task")
		for _, t := range tasks {
			b, _ := os.ReadFile("/proc/" + strconv.Itoa(pids[i]) + "/task/" + t.Name() + "/children")
			for _, w := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(w); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}

// residentAnon reads from /proc/PID/status the private memory of a process, in bytes.
func residentAnon(pid int) int64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for _, line := range strings.Split(string(b), "\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if key == "RssAnon" {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
