package upgrade

import (
	"context"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestKillEndsAStoppedKernel stops the kernel of a sandbox, so that a pause hangs. A kill ends the
// sandbox all the same, within the 5 s that are promised.
func TestKillEndsAStoppedKernel(t *testing.T) {
	a := ours(t)
	needGVisor(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	daemon := daemontest.StartBin(t, a.carrel, nil, "--default-tier", "gvisor")
	svc := connect(t, daemon)
	d := begin(ctx, t, svc, "11")
	pid, err := strconv.Atoi(sentryOf(t, string(d.id)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var perr error
	wg.Go(func() { _, perr = svc.Pause(ctx, d.id, carrel.PauseOptions{}) })
	time.Sleep(time.Second) // the pause has begun
	promised, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	if err := svc.Kill(promised, d.id); err != nil {
		t.Errorf("kill: %v", err)
	}
	wg.Wait()
	if perr == nil {
		t.Error("the pause of a stopped kernel succeeded")
	}
	if pid := sentryOf(t, string(d.id)); pid != "" {
		t.Errorf("its kernel still runs: %s", pid)
	}
}

// TestGuestThatWasStopped stops the guest from inside its sandbox, pauses and resumes. The sandbox
// comes back.
func TestGuestThatWasStopped(t *testing.T) {
	a := ours(t)
	needGVisor(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	daemon := daemontest.StartBin(t, a.carrel, nil, "--default-tier", "gvisor")
	svc := connect(t, daemon)
	d := begin(ctx, t, svc, "11")
	c, err := svc.Computer(ctx, d.id)
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	_, err = c.Run(short, carrel.Command{Args: []string{"sh", "-c", "kill -STOP 1; sleep 60"},
		User: "root"})
	stop()
	if err == nil {
		t.Fatal("the guest goes on after it was stopped: this test shows nothing")
	}
	d.pause(ctx, t, svc, "stopped")
	d.resume(ctx, t, svc, "stopped")
}
