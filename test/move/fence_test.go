package move

import (
	"context"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestFenced kills a node whose sandbox runs. Another node takes the sandbox over at its last
// checkpoint. When the first node is back, its copy still runs. The release ends that copy, and
// takes nothing from the other node.
func TestFenced(t *testing.T) {
	testenv.Long(t, "it starts more daemons")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	sb := a.create(ctx, t, carrel.CreateOptions{Tier: carrel.GVisor, Name: "only"})
	a.run(ctx, t, sb.ID, "echo first > file")
	sn, err := a.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Publish(ctx, string(sn.ID))
	if err != nil || p.Sandbox != sb.ID || p.Snapshot != sn.ID {
		t.Fatalf("%v, %v", p, err)
	}
	a.run(ctx, t, sb.ID, "echo second > file")
	a.Kill9()

	if _, err := b.Adopt(ctx, p); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.run(ctx, t, sb.ID, "cat file"); got != "first" {
		t.Errorf("at its checkpoint it has %q", got)
	}

	a.Restart()
	if got, err := a.Get(ctx, sb.ID); err != nil || got.State != carrel.Running {
		t.Fatalf("back on the first node: %+v, %v", got, err)
	}
	wantKind(t, "adopt what runs", errOf(a.Adopt(ctx, p)), carrel.Conflict, "running")
	if err := a.Release(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "released", errOf(a.Get(ctx, sb.ID)), carrel.NotFound)
	testenv.Eventually(t, "its kernel has ended on the first node", func() bool { return a.Kernels() == 0 })
	if err := a.Release(ctx, sb.ID); err != nil {
		t.Errorf("release it again: %v", err)
	}
	a.gc(t)
	b.gc(t)
	a.Restart()
	b.move(ctx, t, sb.ID, a) // its name is free there, too
	if got := a.run(ctx, t, sb.ID, "cat file"); got != "first" {
		t.Errorf("back home it has %q", got)
	}
	if _, err := a.Rollback(ctx, sb.ID, sn.ID, carrel.RollbackOptions{}); err != nil {
		t.Errorf("roll back to the checkpoint: %v", err)
	}
}

// TestReleaseKeepsForks releases a sandbox that has a fork on the first node. The fork goes on there,
// with the past that it shares with its parent.
func TestReleaseKeepsForks(t *testing.T) {
	testenv.Long(t, "it starts more daemons")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	sb := a.create(ctx, t, carrel.CreateOptions{Tier: carrel.Sim})
	a.run(ctx, t, sb.ID, "echo old > file")
	old, err := a.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.run(ctx, t, sb.ID, "echo new > file")
	forks, err := a.Fork(ctx, sb.ID, carrel.ForkOptions{Timeout: time.Hour})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	fork := forks[0].Sandbox.ID
	a.move(ctx, t, sb.ID, b)
	a.gc(t)
	if err := b.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteSnapshot(ctx, string(old.ID)); err != nil {
		t.Fatal(err)
	}
	b.gc(t)
	a.gc(t)
	a.Restart()
	if got := a.run(ctx, t, fork, "cat file"); got != "new" {
		t.Errorf("the fork has %q", got)
	}
	back, err := a.Fork(ctx, fork, carrel.ForkOptions{At: old.ID, Timeout: time.Hour})
	if err != nil || back[0].Err != nil {
		t.Fatal("a moment that the fork shares with its parent: ", err, back)
	}
	if got := a.run(ctx, t, back[0].Sandbox.ID, "cat file"); got != "old" {
		t.Errorf("then it had %q", got)
	}
}
