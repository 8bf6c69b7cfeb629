package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// contract takes a sandbox through its life, by the engine alone.
func contract(t *testing.T, svc carrel.Service) {
	ctx := t.Context()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour, Metadata: map[string]string{"k": "v"}, Env: map[string]string{"A": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := svc.Get(ctx, sb.ID); err != nil || got.Metadata["k"] != "v" || got.State != carrel.Running {
		t.Errorf("get: %+v, %v", got, err)
	}
	run := func(id carrel.ID, line, want string) {
		t.Helper()
		c, err := svc.Computer(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Run(ctx, carrel.Command{Shell: line}); err != nil || string(res.Stdout) != want {
			t.Errorf("%s: %+v, %v", line, res, err)
		}
	}
	run(sb.ID, `echo $A; echo one > f`, "b\n")
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Files("").Read(ctx, "f"); err != nil {
		t.Error(err)
	} else {
		raw, err := io.ReadAll(r)
		if r.Close(); err != nil || string(raw) != "one\n" {
			t.Errorf("%q, %v", raw, err)
		}
	}
	if got, err := svc.SetTimeout(ctx, sb.ID, 2*time.Hour, true); err != nil || time.Until(got.Ends) < 90*time.Minute {
		t.Errorf("timeout: %v, %v", got.Ends, err)
	}
	if _, err := svc.SetNetwork(ctx, sb.ID, carrel.Network{Internet: true}); err != nil {
		t.Error(err)
	}
	if got, err := svc.SetLifecycle(ctx, sb.ID, carrel.Lifecycle{OnTimeout: carrel.ActionPause}); err != nil || got.Lifecycle.OnTimeout != carrel.ActionPause {
		t.Errorf("lifecycle: %+v, %v", got.Lifecycle, err)
	}
	if got, err := svc.SetMetadata(ctx, sb.ID, carrel.MetadataChange{Set: map[string]string{"team": "search"}}); err != nil || got.Metadata["team"] != "search" {
		t.Errorf("labels: %+v, %v", got.Metadata, err)
	}
	if logs, err := svc.Logs(ctx, sb.ID, carrel.LogOptions{}); err != nil || len(logs) == 0 {
		t.Errorf("logs: %v, %v", logs, err)
	}
	if _, err := svc.Metrics(ctx, sb.ID, time.Time{}, time.Time{}); err != nil {
		t.Error(err)
	}
	if _, err := svc.Traces(ctx, sb.ID); err != nil {
		t.Error(err)
	}
	timeOf(t, svc, sb, run)
	release, err := svc.Provide(ctx, sb.ID, carrel.Program{Name: "mine", Run: func(_ context.Context, c *carrel.ProgramCall) int {
		fmt.Fprintln(c.Stdout, "from outside")
		return 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	run(sb.ID, "mine", "from outside\n")
	release()
	if err := svc.Kill(ctx, sb.ID); err != nil {
		t.Error(err)
	}
	testenv.Eventually(t, "it is gone", func() bool {
		_, err := svc.Get(ctx, sb.ID)
		return carrel.KindOf(err) == carrel.NotFound
	})
	for _, sb := range all(t, svc, carrel.ListOptions{}) {
		if err := svc.Kill(ctx, sb.ID); err != nil {
			t.Error(err)
		}
	}
}

// timeOf pauses, resumes, forks and rolls back a sandbox whose file f is "one".
func timeOf(t *testing.T, svc carrel.Service, sb carrel.Sandbox, run func(id carrel.ID, line, want string)) {
	t.Helper()
	ctx := t.Context()
	sn, err := svc.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{Name: "first", Label: "one"})
	if err != nil {
		t.Fatal(err)
	}
	run(sb.ID, "echo two > f", "")
	if got, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil || got.State != carrel.Paused {
		t.Fatalf("pause: %v, %v", got.State, err)
	}
	if got, resumed, err := svc.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil || !resumed || got.State != carrel.Running {
		t.Fatalf("resume: %v, %v, %v", got.State, resumed, err)
	}
	run(sb.ID, "cat f", "two\n")
	forks, err := svc.Fork(ctx, sb.ID, carrel.ForkOptions{Count: 2})
	if err != nil || len(forks) != 2 || forks[0].Err != nil {
		t.Fatalf("fork: %+v, %v", forks, err)
	}
	run(forks[1].Sandbox.ID, "cat f", "two\n")
	if _, err := svc.Rollback(ctx, sb.ID, sn.ID, carrel.RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
	run(sb.ID, "cat f", "one\n")
	for _, ref := range []string{string(sn.ID), "first"} {
		if got, err := svc.GetSnapshot(ctx, ref); err != nil || got.ID != sn.ID {
			t.Errorf("%s: %v, %v", ref, got.ID, err)
		}
		child, err := svc.Create(ctx, carrel.CreateOptions{Template: ref})
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		run(child.ID, "cat f", "one\n")
	}
	if tl, err := svc.Timeline(ctx, sb.ID); err != nil || len(tl.Snapshots) == 0 {
		t.Errorf("timeline: %+v, %v", tl, err)
	}
	label := "better"
	if got, err := svc.UpdateSnapshot(ctx, sn.ID, carrel.SnapshotUpdate{Label: &label}); err != nil || got.Label != label {
		t.Errorf("update: %+v, %v", got, err)
	}
	second, err := svc.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Diff(ctx, sn.ID, second.ID); err != nil {
		t.Error(err)
	}
	page, err := svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Limit: 1})
	if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].ID != second.ID || page.Next == "" {
		t.Fatalf("snapshots: %+v, %v", page, err)
	}
	page, err = svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Limit: 1, Cursor: page.Next})
	if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].ID != sn.ID {
		t.Errorf("second page: %+v, %v", page, err)
	}
	if err := svc.DeleteSnapshot(ctx, string(second.ID)); err != nil {
		t.Error(err)
	}
}

// sameAnswers asks a daemon and the engine the same wrong questions. The kinds of their errors are
// the same. (If the sandbox is unknown and an argument is wrong, too, the engine answers NotFound,
// since no node is asked.)
func sameAnswers(t *testing.T, f *fleet) {
	ctx := t.Context()
	one := direct(t, f.daemons[0])
	nobody, noMoment := carrel.NewID(), carrel.NewSnapshotID()
	for what, ask := range map[string]func(svc carrel.Service) error{
		"get":        func(svc carrel.Service) error { _, err := svc.Get(ctx, nobody); return err },
		"get a path": func(svc carrel.Service) error { _, err := svc.Get(ctx, "../../admission"); return err },
		"get a long path": func(svc carrel.Service) error {
			_, err := svc.Get(ctx, carrel.ID(strings.Repeat("/", 9999)))
			return err
		},
		"kill nothing": func(svc carrel.Service) error { return svc.Kill(ctx, "") },
		"kill":         func(svc carrel.Service) error { return svc.Kill(ctx, nobody) },
		"kill a path":  func(svc carrel.Service) error { return svc.Kill(ctx, "i/../../x%2f") },
		"computer":     func(svc carrel.Service) error { _, err := svc.Computer(ctx, nobody); return err },
		"pause":        func(svc carrel.Service) error { _, err := svc.Pause(ctx, nobody, carrel.PauseOptions{}); return err },
		"resume": func(svc carrel.Service) error {
			_, _, err := svc.Resume(ctx, nobody, carrel.ResumeOptions{})
			return err
		},
		"fork": func(svc carrel.Service) error { _, err := svc.Fork(ctx, nobody, carrel.ForkOptions{}); return err },
		"rollback": func(svc carrel.Service) error {
			_, err := svc.Rollback(ctx, nobody, noMoment, carrel.RollbackOptions{})
			return err
		},
		"timeline":        func(svc carrel.Service) error { _, err := svc.Timeline(ctx, nobody); return err },
		"snapshot":        func(svc carrel.Service) error { _, err := svc.GetSnapshot(ctx, string(noMoment)); return err },
		"snapshot path":   func(svc carrel.Service) error { _, err := svc.GetSnapshot(ctx, "../admission"); return err },
		"no snapshot":     func(svc carrel.Service) error { _, err := svc.GetSnapshot(ctx, ""); return err },
		"delete snapshot": func(svc carrel.Service) error { return svc.DeleteSnapshot(ctx, "nothing") },
		"template":        func(svc carrel.Service) error { _, err := svc.GetTemplate(ctx, "nothing"); return err },
		"create, template": func(svc carrel.Service) error {
			_, err := svc.Create(ctx, carrel.CreateOptions{Template: "nothing"})
			return err
		},
		"create, moment": func(svc carrel.Service) error {
			_, err := svc.Create(ctx, carrel.CreateOptions{Template: string(noMoment)})
			return err
		},
		"create, no ref": func(svc carrel.Service) error {
			_, err := svc.Create(ctx, carrel.CreateOptions{Template: "../x"})
			return err
		},
		"create, timeout": func(svc carrel.Service) error {
			_, err := svc.Create(ctx, carrel.CreateOptions{Timeout: -1})
			return err
		},
		"create, key": func(svc carrel.Service) error {
			_, err := svc.Create(ctx, carrel.CreateOptions{IdempotencyKey: "A"})
			return err
		},
		"list, limit":    func(svc carrel.Service) error { _, err := svc.List(ctx, carrel.ListOptions{Limit: 101}); return err },
		"list, metadata": func(svc carrel.Service) error { _, err := svc.List(ctx, carrel.ListOptions{Match: "i"}); return err },
		"set timeout":    func(svc carrel.Service) error { _, err := svc.SetTimeout(ctx, nobody, time.Minute, false); return err },
	} {
		if want, got := ask(one), ask(f); carrel.KindOf(want) != carrel.KindOf(got) {
			t.Errorf("%s: a daemon answers %v, the engine %v", what, want, got)
		}
	}
	for what, err := range map[string]error{
		"import": second(f.ImportTemplate(ctx, "x", strings.NewReader(""), nil)),
		"pull":   second(f.PullTemplate(ctx, "x", "y", nil)),
		"delete": f.DeleteTemplate(ctx, "x"),
		"secret": second(f.CreateSecret(ctx, carrel.NewSecret{})),
		"usage":  second(f.Usage(ctx, carrel.UsageOptions{})),
	} {
		if carrel.KindOf(err) != carrel.Unsupported {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := f.ListTemplates(ctx); err != nil || len(list) == 0 {
		t.Errorf("templates: %v, %v", list, err)
	}
	if pool, err := f.Pool(ctx); err != nil || pool.Gate.Limit < 3 {
		t.Errorf("pool: %+v, %v", pool, err)
	}
}

func second[T any](_ T, err error) error { return err }

// onOneNode has a template and a snapshot that only one node has. Sandboxes of them are made there.
func onOneNode(t *testing.T, f *fleet) {
	ctx := t.Context()
	one := direct(t, f.daemons[1])
	if _, err := one.ImportTemplate(ctx, "mini", tarball(t), nil); err != nil {
		t.Fatal(err)
	}
	made := func(template string) {
		t.Helper()
		for range 4 {
			sb, err := f.Create(ctx, carrel.CreateOptions{Template: template, Tier: carrel.Sim})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := one.Get(ctx, sb.ID); err != nil {
				t.Errorf("a sandbox of %s is elsewhere: %v", template, err)
			}
		}
	}
	made("mini") // before the engine has heard of it, so others are tried, too
	f.Rebuild()
	made("mini")
	sb, err := one.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sn, err := one.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{Name: "there"})
	if err != nil {
		t.Fatal(err)
	}
	made(string(sn.ID))
	made("there")
	if _, err := f.Create(ctx, carrel.CreateOptions{Tier: carrel.MicroVM + "x"}); carrel.KindOf(err) != carrel.Unsupported {
		t.Errorf("a tier that nobody has: %v", err)
	}
	nodes := f.nodes()
	nodes[1].Draining = true
	if err := f.list.Set(nodes...); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the node drains", func() bool { return f.status(name(1)).Draining })
	for _, template := range []string{"mini", string(sn.ID)} {
		if sb, err := f.Create(ctx, carrel.CreateOptions{Template: template, Tier: carrel.Sim}); err == nil {
			t.Errorf("%s: %s is on a node that drains", template, sb.ID)
		}
	}
	if err := f.list.Set(f.nodes()...); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it drains no more", func() bool { return !f.status(name(1)).Draining })
	killAll(t, f)
}

// tarball is the archive of a small root filesystem.
func tarball(t *testing.T) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "etc/word", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}
