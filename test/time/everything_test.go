package time

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/test/daemontest"
)

//go:embed witness.py
var witnessPy string

//go:embed tree.py
var treePy string

// desk is everything that somebody left running in a sandbox.
type desk struct {
	c                    carrel.Computer
	witness, shell, term *daemontest.Session
	web                  int // requests so far on the only connection inside
}

// look is the visible state of a desk. It must be equal before and after, or something is lost.
type look struct{ witness, shell, term string }

// scale says how much there is on a desk: MB that a process holds, and directories with 102 files
// each.
type scale struct{ memoryMB, directories int }

// furnish starts everything.
func furnish(t *testing.T, c carrel.Computer, s scale) *desk {
	t.Helper()
	ctx := t.Context()
	files := c.Files("")
	for name, text := range map[string]string{"witness.py": witnessPy, "tree.py": treePy} {
		if _, err := files.Write(ctx, name, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, c, fmt.Sprintf("python3 tree.py make tree %d", s.directories))
	d := &desk{c: c}
	var err error
	if d.witness, err = daemontest.Begin(ctx, c, carrel.Command{Args: []string{"python3", "/home/user/witness.py"}, Dir: "/home/user/tree",
		Env: map[string]string{"WITNESS": "was here", "MEMORY_MB": strconv.Itoa(s.memoryMB)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.witness.Until(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	if d.shell, err = daemontest.Begin(ctx, c, carrel.Command{Args: []string{"bash"}, Dir: "/"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.shell.Ask(ctx, "cd /usr/lib; export LEFT=behind; n=41; sleep 1000000 & echo begun $!", "begun"); err != nil {
		t.Fatal(err)
	}
	if d.term, err = daemontest.Begin(ctx, c, carrel.Command{Args: []string{"bash", "--norc", "-i"}, TTY: &carrel.Size{Cols: 97, Rows: 31}}); err != nil {
		t.Fatal(err)
	}
	return d
}

// look asks every program for its contents. It also asks the web server for one more answer on the
// connection that was open from the beginning.
func (d *desk) look(ctx context.Context) (look, error) {
	var l look
	var err error
	if l.witness, err = d.witness.Ask(ctx, "state", "state "); err != nil {
		return l, err
	}
	if l.shell, err = d.shell.Ask(ctx, `echo shell $PWD $LEFT $n $$ $(jobs -r | wc -l) $(kill -0 %1 && echo alive)`, "shell /"); err != nil {
		return l, err
	}
	if l.term, err = d.term.Ask(ctx, `echo term-$$ $(tty) $(stty size)`, "term-"); err != nil {
		return l, err
	}
	for !strings.Contains(l.term, "31 97") { // the first match is the echo of the question
		if l.term, err = d.term.Until(ctx, "31 97"); err != nil {
			return l, err
		}
	}
	d.web++
	answer, err := d.witness.Ask(ctx, "web", "web ")
	if err == nil && answer != "web "+strconv.Itoa(d.web) {
		err = fmt.Errorf("the connection inside is at %q, want request %d", answer, d.web)
	}
	return l, err
}

// again returns the same desk in another sandbox, or on new connections.
func (d *desk) again(ctx context.Context, c carrel.Computer) (*desk, error) {
	n := &desk{c: c, web: d.web}
	var err error
	for _, s := range []struct {
		to   **daemontest.Session
		from *daemontest.Session
	}{{&n.witness, d.witness}, {&n.shell, d.shell}, {&n.term, d.term}} {
		if *s.to, err = s.from.Attach(ctx, c); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// same fails unless a desk looks as before.
func (d *desk) same(ctx context.Context, want look) error {
	got, err := d.look(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("it is not the same:\n%+v\nwas\n%+v", got, want)
	}
	return err
}

// TestEverythingSurvives leaves these in a sandbox: a Python process with 200 MB, a database in the
// middle of a transaction, a web server with a client, a shell with a job, a terminal and 10,000
// files (1,000 with -short). It takes the sandbox through 20 pauses, two forks and a rollback.
func TestEverythingSurvives(t *testing.T) {
	cycles, directories := 20, 100
	if testing.Short() {
		cycles, directories = 3, 10
	}
	everythingSurvives(t, carrel.GVisor, daemontest.Start(t), cycles, scale{200, directories})
}

// TestMachineSurvives does the same with a virtual machine. One that is emulated is slow: there is
// less on its desk.
func TestMachineSurvives(t *testing.T) {
	cycles := 20
	if testing.Short() {
		cycles = 2
	}
	everythingSurvives(t, carrel.MicroVM, daemontest.Start(t, daemontest.Machines(t)...), cycles, scale{20, 5})
}

func everythingSurvives(t *testing.T, tier carrel.Tier, daemon *daemontest.Daemon, cycles int, s scale) {
	svc, err := client.New(daemon.URL, daemon.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: tier, Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 2048}})
	if err != nil {
		t.Fatal(err)
	}
	computer := func(id carrel.ID) carrel.Computer {
		c, err := svc.Computer(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	d := furnish(t, computer(sb.ID), s)
	want, err := d.look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tree := run(t, d.c, "python3 tree.py sum tree")
	if !strings.HasPrefix(tree, fmt.Sprint(102*s.directories, " ")) {
		t.Fatalf("the tree has %s", tree)
	}
	checkTree := func(c carrel.Computer, when string) {
		t.Helper()
		if got := run(t, c, "python3 tree.py sum tree"); got != tree {
			t.Errorf("%s: the tree is %s, was %s", when, got, tree)
		}
	}
	for i := range cycles {
		if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
			t.Fatalf("pause %d: %v", i, err)
		}
		if _, resumed, err := svc.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil || !resumed {
			t.Fatalf("resume %d: %v, %v", i, resumed, err)
		}
		if d, err = d.again(ctx, computer(sb.ID)); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		if err := d.same(ctx, want); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		if i == 0 || i == cycles-1 {
			checkTree(d.c, fmt.Sprintf("cycle %d", i))
		}
	}

	forks, err := svc.Fork(ctx, sb.ID, carrel.ForkOptions{Count: 2, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range forks {
		if f.Err != nil {
			t.Fatalf("fork %d: %v", i, f.Err)
		}
		fd, err := d.again(ctx, computer(f.Sandbox.ID))
		if err != nil {
			t.Fatalf("fork %d: %v", i, err)
		}
		if err := fd.same(ctx, want); err != nil {
			t.Fatalf("fork %d: %v", i, err)
		}
		checkTree(fd.c, fmt.Sprintf("fork %d", i))
		if _, err := fd.witness.Ask(ctx, "spoil", "spoil done"); err != nil {
			t.Fatal(err)
		}
		run(t, fd.c, "rm -r tree")
		if err := svc.Kill(ctx, f.Sandbox.ID); err != nil {
			t.Error(err)
		}
	}
	if err := d.same(ctx, want); err != nil {
		t.Fatalf("after its forks were spoilt: %v", err)
	}

	snap, err := svc.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{Label: "before the mess"})
	if err != nil {
		t.Fatal(err)
	}
	before := *d
	if _, err := d.witness.Ask(ctx, "spoil", "spoil done"); err != nil {
		t.Fatal(err)
	}
	run(t, d.c, "rm -r tree live.db; echo mess > mess")
	if _, err := svc.Rollback(ctx, sb.ID, snap.ID, carrel.RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
	d, err = before.again(ctx, computer(sb.ID))
	if err != nil {
		t.Fatalf("after the rollback: %v", err)
	}
	if err := d.same(ctx, want); err != nil {
		t.Fatalf("after the rollback: %v", err)
	}
	checkTree(d.c, "after the rollback")
	if out := run(t, d.c, "ls mess 2>&1 || true"); !strings.Contains(out, "No such file") {
		t.Errorf("what a rollback undid is still there: %s", out)
	}
}
