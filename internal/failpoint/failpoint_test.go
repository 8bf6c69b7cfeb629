package failpoint_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/failpoint"
)

// specEnv makes the test binary the process that TestKill kills.
const specEnv = "CARREL_TEST_FAILPOINT"

func TestMain(m *testing.M) {
	if spec := os.Getenv(specEnv); spec != "" {
		if err := failpoint.Parse(spec); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("before")
		err := failpoint.Hit("step")
		fmt.Println("after", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestEnable(t *testing.T) {
	t.Cleanup(failpoint.Reset)
	want := errors.New("mine")
	if err := failpoint.Hit("a"); err != nil {
		t.Errorf("a point nobody enabled: %v", err)
	}
	failpoint.Enable("a", func() error { return want })
	if err := failpoint.Hit("a"); err != want {
		t.Errorf("Hit = %v, want %v", err, want)
	}
	if err := failpoint.Hit("b"); err != nil {
		t.Errorf("another point: %v", err)
	}
	failpoint.Enable("a", func() error { failpoint.Disable("a"); return nil })
	_ = failpoint.Hit("a") // a function may disable its own point
	failpoint.Disable("a")
	if err := failpoint.Hit("a"); err != nil {
		t.Errorf("after Disable: %v", err)
	}
}

func TestParse(t *testing.T) {
	t.Cleanup(failpoint.Reset)
	if err := failpoint.Parse(" full=2*enospc, bad=error,slow=sleep(20ms),"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := failpoint.Hit("full"); errors.Is(err, syscall.ENOSPC) != (i < 2) {
			t.Errorf("hit %d of 2*enospc: %v", i+1, err)
		}
		if err := failpoint.Hit("bad"); !errors.Is(err, failpoint.ErrInjected) {
			t.Errorf("hit %d of error: %v", i+1, err)
		}
	}
	start := time.Now()
	if err := failpoint.Hit("slow"); err != nil || time.Since(start) < 20*time.Millisecond {
		t.Errorf("sleep(20ms): %v after %v", err, time.Since(start))
	}
}

func TestParseMistakes(t *testing.T) {
	t.Cleanup(failpoint.Reset)
	for _, bad := range []string{"x", "=kill", "a=", "a=die", "a=0*kill", "a=-1*error", "a=x*error", "a=sleep", "a=sleep(1", "a=sleep(x)", "a=sleep(-1s)", "a=100ms)"} {
		if err := failpoint.Parse("good=error," + bad); err == nil {
			t.Errorf("Parse(%q) took it", bad)
		}
	}
	if err := failpoint.Hit("good"); err != nil {
		t.Errorf("a spec with a mistake enabled something: %v", err)
	}
}

func TestKill(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), specEnv+"=step=1*kill")
	out, err := cmd.Output()
	if string(out) != "before\n" {
		t.Errorf("the process said %q", out)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, want SIGKILL", err)
	}
}

// TestHammer enables, disables and hits one point from many goroutines. With a count, exactly that
// many hits must act.
func TestHammer(t *testing.T) {
	t.Cleanup(failpoint.Reset)
	if err := failpoint.Parse("n=100*error"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var acted atomic.Int32
	for range 16 {
		wg.Go(func() {
			for range 200 {
				if failpoint.Hit("n") != nil {
					acted.Add(1)
				}
				failpoint.Enable("m", func() error { return nil })
				_ = failpoint.Hit("m")
				failpoint.Disable("m")
			}
		})
	}
	wg.Wait()
	if acted.Load() != 100 {
		t.Errorf("%d hits of 100*error acted", acted.Load())
	}
}

// BenchmarkHit measures the cost of a disabled point.
func BenchmarkHit(b *testing.B) {
	for b.Loop() {
		if err := failpoint.Hit("x"); err != nil {
			b.Fatal(err)
		}
	}
}
