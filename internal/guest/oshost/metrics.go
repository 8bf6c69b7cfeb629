package oshost

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// clockTick is the unit of times in /proc: USER_HZ, which Linux fixes at 100 on
// every architecture that Go has.
const clockTick = time.Second / 100

// cpuWindow is the shortest time over which a CPU percentage means anything;
// questions that come sooner get the last answer.
const cpuWindow = 100 * time.Millisecond

// cpuMeter turns counters of used CPU time into a percentage since it was last
// asked.
type cpuMeter struct {
	mu      sync.Mutex
	at      time.Time
	used    time.Duration
	percent float64
}

// reset makes now the beginning of the first window. Processes are not looked at one by
// one: where that is the way to count, this machine has just begun, with us.
func (m *cpuMeter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.used = time.Now(), cpuFromStat()
}

// read returns the share of all processors that was in use since the last call,
// in percent.
func (m *cpuMeter) read(cpus int) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	window := now.Sub(m.at)
	if window < cpuWindow {
		return m.percent
	}
	used := cpuUsed()
	// A process that ended and was reaped by nobody takes its time with it: the
	// sum can shrink.
	busy := max(used-m.used, 0)
	m.percent = min(100*float64(busy)/(float64(window)*float64(cpus)), 100)
	m.at, m.used = now, used
	return m.percent
}

// cpuUsed returns the CPU time used on this machine: from /proc/stat where the
// kernel counts there, otherwise (gVisor shows zeros) as the sum over all
// processes and over our ended children.
func cpuUsed() time.Duration {
	if d := cpuFromStat(); d > 0 {
		return d
	}
	var d time.Duration
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) == nil {
		d += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	self := os.Getpid()
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, name := range names {
		d += cpuOfProcess(name, name == "/proc/"+strconv.Itoa(self)+"/stat")
	}
	return d
}

// cpuFromStat sums the busy columns of /proc/stat; see proc_stat(5).
func cpuFromStat() time.Duration {
	data, err := readPlain("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line)
	if len(fields) < 5 || fields[0] != "cpu" {
		return 0
	}
	var ticks uint64
	for i, f := range fields[1:] {
		const idle, iowait, guest = 3, 4, 8 // guest time is in user time already
		if i == idle || i == iowait || i >= guest {
			continue
		}
		n, _ := strconv.ParseUint(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// cpuOfProcess returns a process's own time and that of the children it has
// waited for, the latter not for ourselves: getrusage has told it.
func cpuOfProcess(stat string, self bool) time.Duration {
	data, err := os.ReadFile(stat)
	if err != nil {
		return 0 // it has just ended
	}
	// The name in parentheses may hold anything; fields are counted after it.
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, cutime = 11, 13 // proc_pid_stat(5): fields 14 and 16, from 3
	if len(fields) < cutime+2 {
		return 0
	}
	last := cutime + 2
	if self {
		last = cutime
	}
	var ticks uint64
	for _, f := range fields[utime:last] {
		n, _ := strconv.ParseUint(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// Metrics measures the machine.
func (s *System) Metrics() (agent.Metrics, error) {
	m := agent.Metrics{CPUCount: runtime.NumCPU()}
	m.CPUUsedPct = s.cpu.read(m.CPUCount)
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	mem := parseMeminfo(string(info))
	m.MemTotal = mem["MemTotal"]
	m.MemCache = mem["Cached"] + mem["Buffers"] + mem["SReclaimable"]
	available, ok := mem["MemAvailable"]
	if !ok {
		available = mem["MemFree"] + m.MemCache
	}
	m.MemUsed = max(m.MemTotal-available, 0)
	var fs unix.Statfs_t
	for {
		err = unix.Statfs("/", &fs)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return m, err
	}
	m.DiskTotal = int64(fs.Blocks) * fs.Bsize
	m.DiskUsed = m.DiskTotal - int64(fs.Bavail)*fs.Bsize
	return m, nil
}

// parseMeminfo reads "Name:   123 kB" lines into bytes.
func parseMeminfo(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
			out[name] = n << 10
		}
	}
	return out
}
