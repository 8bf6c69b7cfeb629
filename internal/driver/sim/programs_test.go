//go:build !cgo

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// patience is how long a test waits for an expected event.
const patience = time.Minute

// await waits until a channel is closed.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: nothing after %v", what, patience)
	}
}

// tryPrograms are programs that use everything that programs may use.
func tryPrograms(began chan<- struct{}, ended *atomic.Int64) []carrel.Program {
	return []carrel.Program{
		{Name: "up", Help: "how", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			b, err := io.ReadAll(c.Stdin)
			if err != nil {
				return 1
			}
			fmt.Fprint(c.Stdout, strings.ToUpper(string(b)), c.Args, c.Dir, c.User)
			fmt.Fprintln(c.Stderr, "err")
			return 5
		}},
		{Name: "lazy", Run: func(_ context.Context, c *carrel.ProgramCall) int { fmt.Fprintln(c.Stdout, "lazy"); return 0 }},
		{Name: "env", Run: func(_ context.Context, c *carrel.ProgramCall) int { return 77 }},
		{Name: "flood", Run: func(ctx context.Context, c *carrel.ProgramCall) int {
			defer ended.Add(1)
			for ctx.Err() == nil {
				if _, err := c.Stdout.Write(make([]byte, 100_000)); err != nil {
					return 1
				}
			}
			return 2
		}},
		{Name: "waits", Run: func(ctx context.Context, _ *carrel.ProgramCall) int {
			began <- struct{}{}
			<-ctx.Done()
			ended.Add(1)
			return 0
		}},
		{Name: "panics", Run: func(context.Context, *carrel.ProgramCall) int { panic("oh") }},
		{Name: "files", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			_, none := c.Files.ReadFile("none")
			err := errors.Join(c.Files.MkdirAll("d", 0o755), c.Files.WriteFile("d/out", make([]byte, 1<<20), 0o600))
			b, rerr := c.Files.ReadFile("d/out")
			fmt.Fprintln(c.Stdout, errors.Is(none, fs.ErrNotExist), err, rerr, len(b), errors.Is(c.Files.WriteFile("/etc/x", nil, 0o644), fs.ErrPermission))
			return 0
		}},
	}
}

// TestProgramsInWorkers runs an owner's programs, which are functions of this process, in sandboxes
// of another process.
func TestProgramsInWorkers(t *testing.T) {
	p := newPool(t, sim.PoolOptions{Workers: 1})
	in, c := makeSandbox(t, p)
	id := idOf(t, in)
	began, ended := make(chan struct{}, 100), atomic.Int64{}
	release, err := p.Provide(id, tryPrograms(began, &ended))
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"cd /tmp; echo hi | up a 'b c'; echo $?": "HI\n[a b c]/tmpuser5\nerr\n",
		"up --help":                              "how\n",
		"printf '1\\n2\\n' | while read -r l; do lazy; echo $l; done":        "lazy\n1\nlazy\n2\n",
		"flood | head -c 5 | wc -c":                                          "5\n",
		"panics; echo $?":                                                    "70\npanics: the program failed inside: oh\n",
		"cd /tmp; files; wc -c < d/out; rm -r d":                             "true <nil> <nil> 1048576 true\n1048576\n",
		"timeout 0.2 waits; echo $?":                                         "124\n",
		"for i in $(seq 20); do lazy & done | sort | uniq -c; wait":          "     20 lazy\n",
		"head -c 3000000 /dev/zero | tr '\\0' x | up | head -c 3000000 | wc": "      0       1 3000000\nerr\n",
		"printf 'lazy\\n' > s; sh s; command -v lazy":                        "lazy\n/usr/local/bin/lazy\n",
		"up \"$(head -c 100000 /dev/zero | tr '\\0' y)\" </dev/null | wc -c": "100016\nerr\n",
		"waits & sleep 0.1; kill $!; wait $!; echo $?":                       "143\n",
		"env true; echo $?":                                                  "77\n", // provided programs come before /usr/bin
	} {
		if got := shell(t, c, line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	// These are flood, and waits twice.
	testenv.EventuallyNil(t, "three programs hear that their process has ended", func() error {
		if n := ended.Load(); n != 3 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	if _, err := p.Provide(id, []carrel.Program{{Name: "up", Run: func(context.Context, *carrel.ProgramCall) int { return 0 }}}); !errors.Is(err, carrel.Conflict) {
		t.Errorf("the same name again: %v", err)
	}
	release()
	release()
	if got := shell(t, c, "lazy; echo $?"); got != "127\n/bin/bash: line 1: lazy: command not found\n" && !strings.Contains(got, "lazy: command not found") {
		t.Errorf("after release: %q", got)
	}
	again, err := p.Provide(id, tryPrograms(began, &ended))
	if err != nil {
		t.Fatal(err)
	}
	defer again()
	if got := shell(t, c, "lazy"); got != "lazy\n" {
		t.Errorf("provided again: %q", got)
	}
}

// idOf is the sandbox's ID.
func idOf(t *testing.T, in driver.Instance) carrel.ID {
	t.Helper()
	_, id, ok := strings.Cut(string(in.Handle()), `"id":"`)
	if !ok {
		t.Fatalf("handle %s", in.Handle())
	}
	id, _, _ = strings.Cut(id, `"`)
	return carrel.ID(id)
}

// again makes a sandbox from a snapshot.
func again(t *testing.T, p *sim.Pool, id carrel.ID, dir string, info driver.SnapshotInfo) *guest.Conn {
	t.Helper()
	spec := driver.Spec{ID: id, Dir: t.TempDir(), Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 64}}
	in, err := p.Restore(t.Context(), dir, info, spec, driver.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := guest.NewConn(in.Dial, guest.ConnOptions{ID: id})
	t.Cleanup(func() {
		_ = c.Close()
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Init(t.Context(), guest.InitRequest{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestProgramsStay provides programs to a sandbox that is paused and resumed, also in another
// worker. It must have them again, also those provided during the pause. A fork has files that lead
// to no program. It must say so, and may be given programs of its own.
func TestProgramsStay(t *testing.T) {
	p := newPool(t, sim.PoolOptions{Workers: 2})
	in, c := makeSandbox(t, p)
	id := idOf(t, in)
	say := func(name string) carrel.Program {
		return carrel.Program{Name: name, Run: func(_ context.Context, c *carrel.ProgramCall) int {
			fmt.Fprintln(c.Stdout, name, c.Sandbox == id)
			return 0
		}}
	}
	release, err := p.Provide(id, []carrel.Program{say("first"), say("second")})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	info, err := in.(driver.Snapshotter).Snapshot(t.Context(), dir, driver.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c, c.Close()
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Provide(id, []carrel.Program{say("away")}); err != nil {
		t.Fatal(err)
	}
	back := again(t, p, id, dir, info)
	if got := shell(t, back, "first; second; away"); got != "first true\nsecond true\naway true\n" {
		t.Errorf("after it came back: %q", got)
	}
	fork := carrel.NewID()
	other := again(t, p, fork, dir, info)
	if got := shell(t, other, "first; echo $?; away 2>/dev/null; echo $?"); got != "127\n127\nfirst: nobody provides this program to this sandbox\n" {
		t.Errorf("in a fork: %q", got)
	}
	if _, err := p.Provide(fork, []carrel.Program{say("first")}); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, other, "first"); got != "first false\n" {
		t.Errorf("the fork's own: %q", got)
	}
	release()
	if got := shell(t, back, "ls /usr/local/bin"); got != "away\n" {
		t.Errorf("left of it: %q", got)
	}
}

// TestProgramsOutliveWorkers kills a worker while a program of its sandbox runs. The program must
// be told. A new sandbox with the same ID must have the programs.
func TestProgramsOutliveWorkers(t *testing.T) {
	p := newPool(t, sim.PoolOptions{Workers: 1})
	in, c := makeSandbox(t, p)
	id := idOf(t, in)
	began, ended := make(chan struct{}, 1), make(chan struct{})
	if _, err := p.Provide(id, []carrel.Program{{Name: "waits", Run: func(ctx context.Context, _ *carrel.ProgramCall) int {
		began <- struct{}{}
		<-ctx.Done()
		close(ended)
		return 0
	}}}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = c.Run(t.Context(), carrel.Command{Shell: "waits"}) }() // it breaks with the worker
	await(t, "the program", began)
	if err := unix.Kill(workers(t)[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", ended)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := in.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Provide(id, []carrel.Program{{Name: "other", Run: func(context.Context, *carrel.ProgramCall) int { return 0 }}}); err != nil {
		t.Errorf("to a sandbox that has ended: %v", err)
	}
}
