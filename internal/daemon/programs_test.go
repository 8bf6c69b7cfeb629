//go:build !cgo

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestPrograms has clients provide programs, over the daemon's door, to sandboxes in worker
// processes. So one call uses three processes. If any of them ends in the middle, the call ends
// with a message, and nothing else breaks.
func TestPrograms(t *testing.T) {
	pool, err := sim.NewPool(sim.PoolOptions{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, "userns", pool.Probe(t.Context()))
	d := run(t, testConfig(t), Options{Drivers: []driver.Driver{pool}, KillOnClose: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dial := func() carrel.Service {
		svc, err := client.New(d.URL(), d.Key())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { svc.Close() })
		return svc
	}
	svc, giver := dial(), dial()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim})
	if err != nil {
		t.Fatal(err)
	}
	sh := func(id carrel.ID, line string) string {
		t.Helper()
		pc, err := svc.Computer(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pc.Run(ctx, carrel.Command{Shell: "{ " + line + "; } 2>&1"})
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Stdout)
	}
	began, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	list := []carrel.Program{
		{Name: "up", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			b, err := io.ReadAll(c.Stdin)
			werr := c.Files.WriteFile("/tmp/up", b, 0o644)
			fmt.Fprint(c.Stdout, strings.ToUpper(string(b)), c.Args, c.Sandbox == sb.ID, errors.Join(err, werr), "\n")
			return 5
		}},
		{Name: "waits", Run: func(ctx context.Context, _ *carrel.ProgramCall) int {
			began <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return 0
		}},
		{Name: "flood", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			for {
				if _, err := c.Stdout.Write(make([]byte, 1<<20)); err != nil {
					return 1
				}
			}
		}},
	}
	lost, vanish := context.WithCancel(ctx)
	defer vanish()
	if _, err := giver.(carrel.Programs).Provide(lost, sb.ID, list...); err != nil {
		t.Fatal(err)
	}
	const hello = "HI\n[a] true <nil>\n5\nhi\n"
	try := "echo hi | up a; echo $?; cat /tmp/up"
	if got := sh(sb.ID, try); got != hello {
		t.Errorf("got %q", got)
	}
	if got := sh(sb.ID, "timeout 0.5 waits; echo $?; flood | head -c 3 | wc -c"); got != "124\n3\n" {
		t.Errorf("what hangs and what floods: %q", got)
	}
	wait(t, began)
	wait(t, ended)

	// A pause, and a fork.
	moments := svc.(carrel.Moments)
	if _, err := moments.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := moments.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := sh(sb.ID, try); got != hello {
		t.Errorf("after a pause: %q", got)
	}
	forks, err := moments.Fork(ctx, sb.ID, carrel.ForkOptions{Count: 1})
	if err != nil || len(forks) != 1 {
		t.Fatal(forks, err)
	}
	fork := forks[0].Sandbox.ID
	if got := sh(fork, "up; echo $?"); got != "up: nobody provides this program to this sandbox\n127\n" {
		t.Errorf("in the fork: %q", got)
	}
	release, err := svc.(carrel.Programs).Provide(ctx, fork, list[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(fork, try); got != strings.Replace(hello, "true", "false", 1) {
		t.Errorf("the fork's own: %q", got)
	}
	release()

	// The client vanishes while its program runs.
	go func() {
		<-began
		vanish()
	}()
	if got := sh(sb.ID, "waits; echo $?"); !strings.Contains(got, "waits: who provides it has gone") || !strings.HasSuffix(got, "126\n") {
		t.Errorf("a client that has gone: %q", got)
	}
	wait(t, ended)
	testenv.EventuallyNil(t, "the program is gone", func() error {
		if said := sh(sb.ID, "up"); !strings.Contains(said, "up: command not found") {
			return fmt.Errorf("it said %q", said)
		}
		return nil
	})

	// The worker dies while a program runs. The program must be told.
	if _, err := svc.(carrel.Programs).Provide(ctx, sb.ID, list...); err != nil {
		t.Fatal(err)
	}
	pc, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		r, err := pc.Run(ctx, carrel.Command{Shell: "waits"})
		if err == nil && r.ExitCode == 0 {
			err = nil
		} else if err == nil {
			err = errors.New("a status")
		}
		failed <- err
	}()
	wait(t, began)
	for _, pid := range proc.Children(os.Getpid()) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(b), "carrel-sim\x00") {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait(t, ended)
	if err := <-failed; err == nil {
		t.Error("the command of a worker that was killed ended well")
	}
}

// wait receives one value from a channel.
func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("nothing after a minute")
	}
}
