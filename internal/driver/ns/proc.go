package ns

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killPidfd kills the process of a pidfd.
func killPidfd(f *os.File) {
	rc, err := f.SyscallConn()
	if err != nil {
		return // closed: it is gone
	}
	_ = rc.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
}

// waitPidfd returns true when the process has ended, false when f was closed. It
// holds no thread meanwhile.
func waitPidfd(f *os.File) bool {
	rc, err := f.SyscallConn()
	return err == nil && rc.Read(func(fd uintptr) bool { return pidfdReady(int(fd), 0) }) == nil
}

// pidfdReady reports whether the process has ended, waiting at most timeout
// milliseconds.
func pidfdReady(fd, timeout int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, timeout)
		if err == syscall.EINTR {
			continue
		}
		return err != nil || n > 0
	}
}

// reap collects the status of a process that has ended, if it was our child. The
// first call asks without collecting and by the pidfd: only if that is a child of
// ours can its pid not have passed to another.
func reap(pidfd *os.File, pid int) (status string) {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return ""
	}
	_ = rc.Control(func(fd uintptr) {
		err = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	var ws unix.WaitStatus
	if err != nil {
		return ""
	}
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		return ""
	}
	if ws.Signaled() {
		return "signal: " + ws.Signal().String()
	}
	return "exit status " + strconv.Itoa(ws.ExitStatus())
}

// ticksPerSecond is the unit of times in /proc; Linux shows user space 100 on
// every architecture Go runs on.
const ticksPerSecond = 100

// procStat is what we read of /proc/PID/stat.
type procStat struct {
	state   byte
	cpu     time.Duration // with that of children that it waited for
	started uint64        // ticks since boot
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
	const utime, stime, cutime, cstime, numThreads, starttime = 11, 12, 13, 14, 17, 19 // of the fields after the name
	if len(f) <= starttime {
		return procStat{}, fmt.Errorf("stat: only %d fields", len(f))
	}
	var n [6]uint64
	for j, field := range []int{utime, stime, cutime, cstime, numThreads, starttime} {
		v, err := strconv.ParseUint(f[field], 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("stat: %w", err)
		}
		n[j] = v
	}
	return procStat{
		state:   f[0][0],
		cpu:     time.Duration(n[0]+n[1]+n[2]+n[3]) * time.Second / ticksPerSecond,
		threads: int(n[4]),
		started: n[5],
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

// tree returns pid and all its descendants: orphans become children of process 1, so from
// that one on it is all of the sandbox.
func tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		dir := "/proc/" + strconv.Itoa(pids[i]) + "/task/"
		tasks, _ := os.ReadDir(dir)
		for _, t := range tasks {
			b, _ := os.ReadFile(dir + t.Name() + "/children")
			for _, w := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(w); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}

// resident reads from /proc/PID/status the memory of a process, in bytes: its own, and what it shares
// of memory files.
func resident(pid int) int64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	var n int64
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && (key == "RssAnon" || key == "RssShmem") {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			n += kb << 10
		}
	}
	return n
}
