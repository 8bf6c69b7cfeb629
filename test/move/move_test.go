package move

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestMove moves a gVisor sandbox with a program in memory to another daemon. Its counter goes on,
// its secret is there, and it forks and rolls back there.
func TestMove(t *testing.T) {
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	sb := a.create(ctx, t, carrel.CreateOptions{Tier: carrel.GVisor, Name: "traveller", Env: map[string]string{"ORIGIN": "here"}})
	shell, err := daemontest.Begin(ctx, a.computer(ctx, t, sb.ID), carrel.Command{Args: []string{"bash"}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(line string) string {
		t.Helper()
		out, err := shell.Ask(ctx, line, "said")
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return out
	}
	ask("n=1; secret=$(head -c 300000 /dev/urandom | base64 -w0); head -c 3000000 /dev/urandom > noise; echo said")
	sum := ask("echo said $n $(echo $secret | sha256sum) $(sha256sum < noise)")
	old, err := a.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{Name: "before"})
	if err != nil {
		t.Fatal(err)
	}
	ask("n=2; echo later > late; echo said")
	sum = strings.Replace(sum, "said 1", "said 2", 1)

	a.move(ctx, t, sb.ID, b)
	wantKind(t, "it is still there", errOf(a.Get(ctx, sb.ID)), carrel.NotFound)
	if page, err := a.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true}); err != nil || len(page.Snapshots) > 0 {
		t.Errorf("snapshots stayed: %+v, %v", page, err)
	}
	if shell, err = shell.Attach(ctx, b.computer(ctx, t, sb.ID)); err != nil {
		t.Fatal(err)
	}
	if got := ask("echo said $n $(echo $secret | sha256sum) $(sha256sum < noise)"); got != sum {
		t.Errorf("there it is %q, here it was %q", got, sum)
	}
	now, err := b.Get(ctx, sb.ID)
	if err != nil || now.AccessToken != sb.AccessToken || now.Name != "traveller" || now.Template != sb.Template {
		t.Errorf("it is another one: %+v, %v", now, err)
	}
	if got := b.run(ctx, t, sb.ID, "echo $ORIGIN; hostname"); got != "here\n"+string(sb.ID) {
		t.Errorf("it says of itself: %s", got)
	}

	forks, err := b.Fork(ctx, sb.ID, carrel.ForkOptions{Count: 2, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, fk := range forks {
		if fk.Err != nil {
			t.Fatal(fk.Err)
		}
		if got := b.run(ctx, t, fk.Sandbox.ID, "cat late"); got != "later" {
			t.Errorf("a fork has %q", got)
		}
	}
	line, err := b.Timeline(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, sn := range line.Snapshots {
		found = found || sn.ID == old.ID && len(sn.Names) == 1 && sn.Names[0] == "before"
	}
	if !found {
		t.Errorf("the timeline lacks %s: %+v", old.ID, line)
	}
	if _, err := b.Rollback(ctx, sb.ID, old.ID, carrel.RollbackOptions{}); err != nil {
		t.Fatalf("roll back: %v", err)
	}
	if got := b.run(ctx, t, sb.ID, "cat late 2>/dev/null || echo none"); got != "none" {
		t.Errorf("rolled back, it has %q", got)
	}
}

func errOf[T any](_ T, err error) error { return err }
