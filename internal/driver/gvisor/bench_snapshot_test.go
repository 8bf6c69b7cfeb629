package gvisor_test

import (
	"fmt"
	"os"
	"sort"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
)

// steps collects durations by the name of the measured step.
type steps map[string][]time.Duration

// add records the time since start for one step.
func (s steps) add(name string, start time.Time) { s[name] = append(s[name], time.Since(start)) }

// report reports each step's median.
func (s steps) report(b *testing.B) {
	for name, all := range s {
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
	}
}

// usedCPU is the processor time of this process and the sentries that have ended.
func usedCPU(b *testing.B) (total time.Duration) {
	b.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}

// startHeap starts a process that holds mb MiB of memory and does nothing.
func startHeap(b *testing.B, in driver.Instance, mb int) {
	b.Helper()
	runInside(b, in, fmt.Sprintf(`(python3 -c 'import os, time
heap = [os.urandom(1 << 20) for _ in range(%d)]
open("/tmp/ready", "w")
time.sleep(1e6)' > /dev/null 2>&1 < /dev/null &)
while ! [ -e /tmp/ready ]; do sleep 0.02; done`, mb))
}

// BenchmarkSnapshot reports the time of a snapshot, of a restore, and of the first command after
// the restore. It repeats this for several sizes of memory.
func BenchmarkSnapshot(b *testing.B) {
	for _, mb := range []int{0, 50, 1024} {
		b.Run(fmt.Sprintf("%dMiB", mb), func(b *testing.B) {
			d, _ := newDriver(b)
			spec := stateSpec(b)
			spec.Limits.MemoryMB = 2048
			in := create(b, d, spec)
			if mb > 0 {
				startHeap(b, in, mb)
			}
			s := steps{}
			for b.Loop() {
				start := time.Now()
				dir, info := snapshot(b, in, driver.SnapshotOptions{})
				s.add("snapshot", start)
				spec := stateSpec(b)
				spec.Limits.MemoryMB = 2048
				start = time.Now()
				r := restore(b, d, dir, info, spec, driver.RestoreOptions{})
				s.add("restore", start)
				runInside(b, r, "echo alive")
				s.add("command", start)
				loaded(b, r)
				s.add("loaded", start)
				destroy(b, r)
				if err := os.RemoveAll(dir); err != nil {
					b.Fatal(err)
				}
			}
			s.report(b)
		})
	}
}

// BenchmarkFork restores 50 sandboxes from one snapshot of 50 MiB, two at a time.
func BenchmarkFork(b *testing.B) {
	d, _ := newDriver(b)
	in := create(b, d, stateSpec(b))
	startHeap(b, in, 50)
	dir, info := snapshot(b, in, driver.SnapshotOptions{})
	const n, atOnce = 50, 4
	for b.Loop() {
		specs := make(chan driver.Spec, n)
		for range n {
			specs <- stateSpec(b)
		}
		close(specs)
		start, cpu := time.Now(), usedCPU(b)
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				for spec := range specs {
					r, err := d.Restore(b.Context(), dir, info, spec, driver.RestoreOptions{})
					if err != nil {
						b.Error(err)
						return
					}
					if _, _, err := tryGet(r, "/hello"); err != nil {
						b.Error(err)
					}
					defer destroy(b, r)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), "forks/s")
		b.ReportMetric(float64((usedCPU(b)-cpu).Microseconds())/1000/n, "cpu-ms/fork")
	}
}
