//go:build linux

package hosted

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// The times between two measurements, see proc.NextLook.
const (
	memorySpeed   = 2 << 30 // bytes per second
	memoryLookMin = 20 * time.Millisecond
	memoryLookMax = 250 * time.Millisecond
)

// MemoryGuard bounds the memory of one sandbox when no control group does; an ordinary user mostly
// has none. It measures the sandbox's memory so often that even a program that fills memory at full
// speed passes the limit only by little. Then it ends the sandbox as the kernel would have. The
// zero value has ended nothing.
type MemoryGuard struct{ passed atomic.Bool }

// Passed reports whether the guard ended the sandbox.
func (g *MemoryGuard) Passed() bool { return g.passed.Load() }

// Watch calls end once, when used returns more than limit, in bytes. stop ends the watch and waits
// for its end.
func (g *MemoryGuard) Watch(limit int64, used func() int64, end func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(memoryLookMin)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			left := limit - used()
			if left < 0 {
				g.passed.Store(true)
				end()
				return
			}
			timer.Reset(proc.NextLook(left, memorySpeed, memoryLookMin, memoryLookMax))
		}
	})
	return func() { close(done); wg.Wait() }
}

// GuardsMemory reports whether a driver with these control groups has to bound the memory itself.
func GuardsMemory(h *cgroup.Hierarchy) bool { return !h.Has(cgroup.Memory) }

// StatusBytes adds up fields of /proc/PID/status that are given in kB ("RssAnon") and returns
// bytes. It returns 0 for a process that has ended.
func StatusBytes(pid int, fields ...string) (sum int64) {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		for _, f := range fields {
			if key == f {
				kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
				sum += kb << 10
			}
		}
	}
	return sum
}
