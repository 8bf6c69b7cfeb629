// Package crash kills daemons without warning and checks the state that they leave.
package crash

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// box is one sandbox of the test and its contents.
type box struct {
	id   carrel.ID
	pid  int
	word string
}

// TestKillNine kills the daemon with 20 sandboxes under load (8 with -short). After the restart all
// of them must answer, with their processes and files.
func TestKillNine(t *testing.T) {
	count := 20
	if testing.Short() {
		count = 8
	}
	killNine(t, daemontest.Start(t), count)
}

// TestMachinesAfterKillNine does the same with virtual machines: as many as two processors emulate.
func TestMachinesAfterKillNine(t *testing.T) {
	testenv.Long(t, "emulated machines need a processor each")
	killNine(t, daemontest.Start(t, daemontest.Machines(t)...), 2)
}

func killNine(t *testing.T, d *daemontest.Daemon, count int) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc := connect(t, d)
	boxes := make([]box, count)
	daemontest.InParallel(t, count, func(i int) error {
		b, err := furnish(ctx, svc, fmt.Sprintf("word-%d", i))
		boxes[i] = b
		return err
	})

	stop := load(ctx, svc, boxes)
	time.Sleep(time.Second)
	d.Kill9()
	stop()
	_ = svc.Close()
	d.Restart()

	svc = connect(t, d)
	daemontest.InParallel(t, count, func(i int) error { return boxes[i].check(ctx, svc) })

	// Again, after the keeper died: the new keeper has the links of the sandboxes that ran before.
	keeper := append([]byte("carrel-keeper\x00serve\x00"), filepath.Join(d.Dir, "run", "keeper.sock")+"\x00"...)
	if err := syscall.Kill(pidOf(t, keeper), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the links are kept again", func() bool {
		return strings.Contains(d.Log(), "has the links of all that runs")
	})
	_ = svc.Close()
	d.Kill9()
	d.Restart()
	svc = connect(t, d)
	daemontest.InParallel(t, count, func(i int) error { return boxes[i].check(ctx, svc) })

	// Again, stopped in the way of a service manager.
	_ = svc.Close()
	d.Terminate()
	d.Restart()
	svc = connect(t, d)
	daemontest.InParallel(t, count, func(i int) error { return boxes[i].check(ctx, svc) })
	daemontest.InParallel(t, count, func(i int) error { return svc.Kill(ctx, boxes[i].id) })
	page, err := svc.List(ctx, carrel.ListOptions{})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Fatalf("after killing all: %d sandboxes, %v", len(page.Sandboxes), err)
	}
}

// pidOf finds the one process with this command line.
func pidOf(t *testing.T, cmdline []byte) int {
	t.Helper()
	found := 0
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && bytes.Equal(b, cmdline) {
			if found != 0 {
				t.Fatalf("two processes are %q", cmdline)
			}
			found, _ = strconv.Atoi(strings.Split(f, "/")[2])
		}
	}
	if found <= 1 {
		t.Fatalf("no process is %q", cmdline)
	}
	return found
}

func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// furnish makes a sandbox with a file in it and a process that counts.
func furnish(ctx context.Context, svc carrel.Service, word string) (box, error) {
	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 10 * time.Minute})
	if err != nil {
		return box{}, err
	}
	b := box{id: sb.ID, word: word}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		return b, err
	}
	if _, err := c.Files("").Write(ctx, "word", strings.NewReader(word)); err != nil {
		return b, err
	}
	p, err := c.Start(ctx, carrel.Command{Shell: "n=0; while true; do n=$((n+1)); echo $n > new; mv new count; sleep 0.2; done", Tag: "counter"})
	if err != nil {
		return b, err
	}
	b.pid = p.PID()
	return b, p.Close()
}

// check finds the file and the same process, still counting.
func (b box) check(ctx context.Context, svc carrel.Service) error {
	c, err := svc.Computer(ctx, b.id)
	if err != nil {
		return fmt.Errorf("%s: %w", b.id, err)
	}
	res, err := c.Run(ctx, carrel.Command{Shell: "cat word; echo; a=$(cat count); for i in $(seq 100); do sleep 0.2; [ $(cat count) -gt $a ] && echo counting && break; done"})
	if err != nil {
		return fmt.Errorf("%s: %w", b.id, err)
	}
	if want := b.word + "\ncounting\n"; string(res.Stdout) != want {
		return fmt.Errorf("%s: %q, want %q (stderr %q)", b.id, res.Stdout, want, res.Stderr)
	}
	processes, err := c.Processes(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", b.id, err)
	}
	for _, p := range processes {
		if p.PID == b.pid && p.Tag == "counter" {
			return nil
		}
	}
	return fmt.Errorf("%s: process %d is gone: %v", b.id, b.pid, processes)
}

// load keeps all boxes busy until stop is called. It survives the daemon's death.
func load(ctx context.Context, svc carrel.Service, boxes []box) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, b := range boxes {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := svc.Computer(ctx, b.id)
				if err == nil {
					_, err = c.Run(ctx, carrel.Command{Shell: "seq 1 2000 | sort | tail -1"})
				}
				if err != nil {
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}
