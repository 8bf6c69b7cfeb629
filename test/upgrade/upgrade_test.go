package upgrade

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// connect returns a client of a daemon.
func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// desk is a sandbox with a shell that remembers a number. Only its memory holds the number.
type desk struct {
	id     carrel.ID
	number string
	shell  *daemontest.Session
}

// begin makes a desk.
func begin(ctx context.Context, t *testing.T, svc carrel.Service, number string) *desk {
	t.Helper()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err, carrel.HintOf(err))
	}
	d := &desk{id: sb.ID, number: number}
	c, err := svc.Computer(ctx, d.id)
	if err != nil {
		t.Fatal(err)
	}
	if d.shell, err = daemontest.Begin(ctx, c, carrel.Command{Args: []string{"sh"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.shell.Ask(ctx, "n="+number+"; echo set $n; echo "+number+" >~/number",
		"set "+number); err != nil {
		t.Fatal(err)
	}
	return d
}

// same fails the test unless a sandbox, which may be a fork, still has the number in its memory.
func (d *desk) same(ctx context.Context, t *testing.T, svc carrel.Service, id carrel.ID,
	when string) {
	t.Helper()
	c, err := svc.Computer(ctx, id)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	s, err := d.shell.Attach(ctx, c)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	got, err := s.Ask(ctx, "echo is $n", "is ")
	if err != nil || got != "is "+d.number {
		t.Fatalf("%s: the shell says %q, %v; want %s", when, got, err, d.number)
	}
}

// pause pauses a desk.
func (d *desk) pause(ctx context.Context, t *testing.T, svc carrel.Service, when string) {
	t.Helper()
	if _, err := svc.Pause(ctx, d.id, carrel.PauseOptions{}); err != nil {
		t.Fatalf("%s: pause: %v (%s)", when, err, carrel.HintOf(err))
	}
}

// resume brings a desk back.
func (d *desk) resume(ctx context.Context, t *testing.T, svc carrel.Service, when string) {
	t.Helper()
	if _, _, err := svc.Resume(ctx, d.id, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("%s: resume: %v (%s)", when, err, carrel.HintOf(err))
	}
	d.same(ctx, t, svc, d.id, when)
}

// replace ends a daemon and starts another build on its data directory.
func replace(d *daemontest.Daemon, b build, end func()) {
	end()
	d.Bin = b.carrel
	d.Restart()
}

// doctor returns what carrel doctor says.
func doctor(t *testing.T, d *daemontest.Daemon) string {
	t.Helper()
	out, err := d.CLI("doctor").CombinedOutput()
	if err != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	return string(out)
}

// on fails the test unless a sandbox's kernel is of that build.
func (b build) on(t *testing.T, id carrel.ID, when string) {
	t.Helper()
	if got := kernelOf(t, string(id)); got != b.sentry {
		t.Errorf("%s: the kernel is %.12s, not build %s's %.12s", when, got, b.name, b.sentry)
	}
}

// TestThreeBuildsUpAndDown runs sandboxes under build a, goes up to b and to c, and down to a
// again. Nothing is lost or stranded on the way, and each memory is restored by the kernel that
// saved it.
func TestThreeBuildsUpAndDown(t *testing.T) {
	a := ours(t)
	needGVisor(t, a)
	more := others(t, "b", "c")
	b, c := more[0], more[1]
	if a.sentry == b.sentry || b.sentry == c.sentry {
		t.Fatal("the builds have the same sentry")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	daemon := daemontest.StartBin(t, a.carrel, nil, "--default-tier", "gvisor")
	svc := connect(t, daemon)
	runs, paused := begin(ctx, t, svc, "11"), begin(ctx, t, svc, "12")
	paused.pause(ctx, t, svc, "under a")

	replace(daemon, b, daemon.Terminate)
	svc = connect(t, daemon)
	if text := doctor(t, daemon); !strings.Contains(text,
		"1 paused sandbox ("+string(paused.id)+")") ||
		!strings.Contains(text, "1 running sandbox ("+string(runs.id)+")") ||
		!strings.Contains(text, "whose kernel is kept and restores them") {
		t.Errorf("doctor of b does not list what is of build a:\n%s", text)
	}
	runs.same(ctx, t, svc, runs.id, "a's sandbox under b")
	runs.pause(ctx, t, svc, "a's sandbox under b")
	runs.resume(ctx, t, svc, "a's sandbox under b")
	paused.resume(ctx, t, svc, "paused under a, resumed under b")
	a.on(t, runs.id, "resumed under b")
	a.on(t, paused.id, "resumed under b")
	forks, err := svc.Fork(ctx, paused.id, carrel.ForkOptions{Count: 1})
	if err != nil {
		t.Fatal("fork under b:", err)
	}
	paused.same(ctx, t, svc, forks[0].Sandbox.ID, "a fork under b")
	fresh := begin(ctx, t, svc, "21")
	b.on(t, fresh.id, "made under b")
	fresh.pause(ctx, t, svc, "under b")

	replace(daemon, c, daemon.Kill9)
	svc = connect(t, daemon)
	fresh.resume(ctx, t, svc, "b's sandbox under c")
	b.on(t, fresh.id, "resumed under c")
	paused.pause(ctx, t, svc, "a's sandbox under c")
	paused.resume(ctx, t, svc, "a's sandbox under c")
	newest := begin(ctx, t, svc, "31")
	c.on(t, newest.id, "made under c")

	replace(daemon, a, daemon.Terminate) // two builds down
	svc = connect(t, daemon)
	for when, d := range map[string]*desk{"a's": runs, "the other of a": paused, "b's": fresh,
		"c's": newest} {
		d.same(ctx, t, svc, d.id, when+" under a again")
		d.pause(ctx, t, svc, when+" under a again")
		d.resume(ctx, t, svc, when+" under a again")
	}
	c.on(t, newest.id, "resumed under a")
	all, err := svc.List(ctx, carrel.ListOptions{})
	if err != nil || len(all.Sandboxes) != 5 {
		t.Errorf("%d sandboxes, %v; five were made", len(all.Sandboxes), err)
	}
	policies(ctx, t, daemon, b, newest)
}

// policies goes to another build with each policy of --on-upgrade, and pauses a sandbox of a third.
func policies(ctx context.Context, t *testing.T, daemon *daemontest.Daemon, b build, d *desk) {
	daemon.Setenv("CARREL_ON_UPGRADE", "refuse")
	replace(daemon, b, daemon.Terminate)
	svc := connect(t, daemon)
	if _, err := svc.Pause(ctx, d.id, carrel.PauseOptions{}); carrel.KindOf(
		err) != carrel.Unsupported || !strings.Contains(carrel.HintOf(err), "--on-upgrade") {
		t.Errorf("refuse: pause: %v (%s)", err, carrel.HintOf(err))
	}
	d.same(ctx, t, svc, d.id, "after a refused pause")
	daemon.Setenv("CARREL_ON_UPGRADE", "files")
	replace(daemon, b, daemon.Terminate)
	svc = connect(t, daemon)
	d.pause(ctx, t, svc, "files")
	if _, _, err := svc.Resume(ctx, d.id, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("files: resume: %v (%s)", err, carrel.HintOf(err))
	}
	b.on(t, d.id, "resumed with its files only")
	c, err := svc.Computer(ctx, d.id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(ctx, carrel.Command{Args: []string{"sh", "-c", "cat ~/number"}})
	if err == nil && strings.TrimSpace(string(res.Stdout)) != d.number {
		err = fmt.Errorf("it says %q", res.Stdout)
	}
	if err != nil {
		t.Errorf("files: %v", err)
	}
}
