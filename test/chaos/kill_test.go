package chaos

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// afterKill is what the death of the daemon may cost.
var afterKill = allowed{sims: true}

// killRounds kills a daemon at random moments of random operations, n times.
func (t *trial) killRounds(d *server, n int) {
	for range rounds(n) {
		t.underLoad(d, 30, d.kill9)
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a kill: %v", err)
		}
		t.verify(d.svc, afterKill)
		if len(t.violations) > 0 {
			return
		}
	}
}

// underLoad lets a fault happen at a random moment of random operations, after 10 to 10+spread of
// them.
func (t *trial) underLoad(d *server, spread int, fault func()) {
	t.calm.Store(true)
	stop := t.work(d, 3)
	t.busy(10 + t.rng.IntN(spread))
	t.calm.Store(false)
	t.faults++
	fault()
	stop()
}

// busy waits until so many more operations were answered, and then for a random moment.
func (t *trial) busy(operations int) {
	until := t.ops.Load() + int64(operations)
	_ = testenv.Within(t.ctx, 20*time.Second, func() error {
		if t.ops.Load() < until {
			return errNotYet
		}
		return nil
	})
	t.lull(300)
}

// lull lets a random time pass, of so many milliseconds at most: any moment will do for a fault.
func (t *trial) lull(most int) { time.Sleep(time.Duration(t.rng.IntN(most)) * time.Millisecond) }

// killTrial kills a daemon of root with sandboxes of each tier.
func killTrial(t *trial) {
	d := t.serve(setup{base: true})
	t.killRounds(d, 3)
	t.finish(d)
}

// keeperTrial also kills the keeper of the links. The daemon dies only when the next keeper has
// them.
func keeperTrial(t *trial) {
	t.tiers = []carrel.Tier{carrel.GVisor, carrel.NS}
	d := t.serve(setup{})
	t.populate(d)
	for range 2 {
		said := strings.Count(d.log(), "has the links of all that runs")
		stop := t.work(d, 2)
		t.lull(500)
		if err := syscall.Kill(t.keeper(d), syscall.SIGKILL); err != nil {
			t.fatalf("kill the keeper: %v", err)
		}
		t.faults++
		err := testenv.Within(t.ctx, time.Minute, func() error {
			if strings.Count(d.log(), "has the links of all that runs") == said {
				return errNotYet
			}
			return nil
		})
		if err != nil {
			t.fatalf("no keeper has the links a minute after the last one died")
		}
		t.calm.Store(false)
		d.kill9()
		stop()
		t.faults++
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a kill: %v", err)
		}
		t.verify(d.svc, afterKill)
		t.calm.Store(true)
	}
	t.finish(d)
}

// keeper finds the daemon's keeper.
func (t *trial) keeper(d *server) int {
	want := append([]byte("carrel-keeper\x00serve\x00"),
		filepath.Join(d.dir, "run", "keeper.sock")+"\x00"...)
	pid := 0
	_ = testenv.Within(t.ctx, 10*time.Second, func() error {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range all {
			if b, err := os.ReadFile(f); err == nil && bytes.Equal(b, want) {
				pid, _ = strconv.Atoi(strings.Split(f, "/")[2])
				return nil
			}
		}
		return errNotYet
	})
	if pid > 0 {
		return pid
	}
	t.fatalf("the daemon has no keeper")
	return 0
}

// stopTrial stops the daemon in the way of a service manager, again and again, under load.
func stopTrial(t *trial) {
	d := t.serve(setup{})
	for range rounds(2) {
		t.underLoad(d, 20, d.terminate)
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a stop: %v", err)
		}
		t.verify(d.svc, afterKill)
	}
	t.finish(d)
}

// userTrial is killTrial for a daemon that an ordinary user runs.
func userTrial(t *trial) {
	if os.Geteuid() != 0 {
		t.skip("only root can become another user")
	}
	d := t.serve(setup{uid: userID, base: true})
	t.killRounds(d, 2)
	t.finish(d)
}
