package oshost

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// mustNotBeSet is a wrong time; the clock must never get it.
var mustNotBeSet = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

func TestMetrics(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	stop := make(chan struct{})
	go func() { // one processor is busy
		for x := 0; ; x++ {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	var m agent.Metrics
	testenv.EventuallyNil(t, "the others leave it a part of a processor", func() error {
		time.Sleep(300 * time.Millisecond) // what is measured
		var err error
		if m, err = s.Metrics(); err != nil {
			t.Fatal(err)
		}
		if m.CPUUsedPct < 10/float64(m.CPUCount) {
			return fmt.Errorf("%+v", m)
		}
		return nil
	})
	close(stop)
	if m.CPUCount != runtime.NumCPU() || m.CPUUsedPct < 10/float64(m.CPUCount) || m.CPUUsedPct > 100 {
		t.Errorf("cpu %+v", m)
	}
	if m.MemTotal <= 0 || m.MemUsed <= 0 || m.MemUsed > m.MemTotal || m.MemCache < 0 || m.DiskTotal <= 0 || m.DiskUsed < 0 || m.DiskUsed > m.DiskTotal {
		t.Errorf("%+v", m)
	}
	// A second question at once gets the same answer, because there was no time to measure.
	if again, _ := s.Metrics(); again.CPUUsedPct != m.CPUUsedPct {
		t.Errorf("%v then %v", m.CPUUsedPct, again.CPUUsedPct)
	}
}

// TestCPUOfProcess adds up the processes' own times, for a kernel that keeps no sum.
func TestCPUOfProcess(t *testing.T) {
	burn := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; kill -STOP $$")
	if err := burn.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = burn.Process.Kill()
		_ = burn.Wait() // killed
	}()
	name := "/proc/" + itoa(burn.Process.Pid) + "/stat"
	testenv.EventuallyNil(t, "it has used a processor", func() error {
		if d := cpuOfProcess(name, false); d < 20*time.Millisecond {
			data, _ := os.ReadFile(name)
			return fmt.Errorf("%v, from %s", d, data)
		}
		return nil
	})
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

func TestParseMeminfo(t *testing.T) {
	m := parseMeminfo("MemTotal:       2048 kB\nMemFree: 1 kB\nBroken\nEmpty:\nHugePages_Total:       0\nBad: x kB\n")
	if m["MemTotal"] != 2<<20 || m["MemFree"] != 1<<10 || len(m) != 3 {
		t.Errorf("got %v", m)
	}
}
