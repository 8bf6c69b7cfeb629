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

// clockTick is the unit of times in /proc: USER_HZ. Linux fixes it at 100 on every architecture
// that Go supports.
const clockTick = time.Second / 100

// cpuWindow is the shortest time for a useful CPU percentage. A question that comes sooner gets the
// last answer.
const cpuWindow = 100 * time.Millisecond

// cpuMeter turns counters of used CPU time into a percentage since the last question.
type cpuMeter struct {
	mu      sync.Mutex
	at      time.Time
	used    time.Duration
	percent float64
}

// reset begins the first window now. It does not read the times of all processes: a machine that
// needs this has just started, together with us.
func (m *cpuMeter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.used = time.Now(), cpuFromStat()
}

// read returns the used share of all processors since the last call, in percent.
func (m *cpuMeter) read(cpus int) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	window := now.Sub(m.at)
	if window < cpuWindow {
		return m.percent
	}
	used := cpuUsed()
	// The sum can shrink: a process that ended without being reaped takes its time with it.
	busy := max(used-m.used, 0)
	m.percent = min(100*float64(busy)/(float64(window)*float64(cpus)), 100)
	m.at, m.used = now, used
	return m.percent
}

// cpuUsed returns the CPU time used on this machine. It comes from /proc/stat if the kernel counts
// there. Otherwise (gVisor shows zeros) it is the sum over all processes and over our ended
// children.
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
		const idle, iowait, guest = 3, 4, 8 // user time includes guest time
		if i == idle || i == iowait || i >= guest {
			continue
		}
		n, _ := strconv.ParseUint(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// cpuOfProcess returns a process's own time, and the time of the children it has waited for. For
// ourselves it leaves the children out, because getrusage counts them.
func cpuOfProcess(stat string, self bool) time.Duration {
	data, err := os.ReadFile(stat)
	if err != nil {
		return 0 // it has just ended
	}
	// The name in parentheses may contain anything; count fields after it.
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
