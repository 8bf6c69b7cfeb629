package build

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestCollect collects the caches of builds. Layers and orphans go. The template, a running and a
// paused sandbox of it, one of a template that is gone, and a snapshot work as before.
func TestCollect(t *testing.T) {
	t.Parallel()
	oneTier(t, carrel.NS, func(t *testing.T, b *bench) {
		ctx := t.Context()
		spec := carrel.BuildSpec{Name: "lasting", Instructions: steps("RUN echo one > ~/one",
			"RUN echo two > ~/two")}
		b.ready(spec)
		b.ready(carrel.BuildSpec{Name: "gone", Instructions: steps("RUN echo three > ~/one",
			"RUN echo four > ~/two")})
		running, paused, orphan := b.lasting("lasting"), b.lasting("lasting"), b.lasting("gone")
		for _, id := range []carrel.ID{paused, orphan} {
			if _, err := b.Pause(ctx, id, carrel.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		moment, err := b.Snapshot(ctx, running, carrel.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.DeleteTemplate(ctx, "gone"); err != nil {
			t.Fatal(err)
		}

		planned, err := b.CollectTemplates(ctx, carrel.CollectOptions{DryRun: true})
		if err != nil || len(planned.Items) != 4 {
			t.Fatalf("of four layers these would go: %+v, %v", planned, err)
		}
		if old, err := b.CollectTemplates(ctx, carrel.CollectOptions{OlderThan: time.Hour}); err != nil ||
			len(old.Items) != 0 {
			t.Errorf("of layers that are new, these went as old: %+v, %v", old, err)
		}
		if again := b.ready(spec); !again.Steps[1].Cached {
			t.Errorf("a dry run removed the cache: %+v", again.Steps)
		}
		out, err := b.d.CLI("template", "gc", "--all").CombinedOutput()
		if err != nil {
			t.Fatalf("carrel template gc: %v\n%s", err, out)
		}
		left, err := b.CollectTemplates(ctx, carrel.CollectOptions{DryRun: true})
		if err != nil || len(left.Items) != 0 {
			t.Errorf("after the collection there are %+v, %v\n%s", left, err, out)
		}

		if got := b.run("lasting", "cat ~/one ~/two"); got != "one\ntwo" {
			t.Errorf("a sandbox of the template has %q", got)
		}
		if got := b.run(string(moment.ID), "cat ~/one ~/two"); got != "one\ntwo" {
			t.Errorf("a sandbox of the snapshot has %q", got)
		}
		b.wantWords(running, "one\ntwo\n")
		for id, want := range map[carrel.ID]string{paused: "one\ntwo\n", orphan: "three\nfour\n"} {
			if _, _, err := b.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
				t.Fatalf("resume after the collection: %v", err)
			}
			b.wantWords(id, want)
		}
		// The next build does again what is missing.
		if again := b.ready(spec); again.Steps[0].Cached || again.Steps[1].Cached {
			t.Errorf("the layers are there: %+v", again.Steps)
		}
		// Nothing lies on the template of the build that is gone once its sandbox is.
		if err := b.Kill(ctx, orphan); err != nil {
			t.Fatal(err)
		}
		for _, id := range []carrel.ID{running, paused} {
			if err := b.Kill(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		b.nothingLeft()
		drafts, err := filepath.Glob(filepath.Join(b.d.Dir, "templates", "*", "part-*"))
		if err != nil || len(drafts) > 0 {
			t.Errorf("parts of images are left: %v %v", drafts, err)
		}
	})
}

// lasting makes a sandbox of a template that stays.
func (b *bench) lasting(template string) carrel.ID {
	b.t.Helper()
	sb, err := b.Create(b.t.Context(), carrel.CreateOptions{Template: template, Tier: b.tier,
		Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 256}})
	if err != nil {
		b.t.Fatal(err)
	}
	return sb.ID
}

// wantWords checks the files of a sandbox.
func (b *bench) wantWords(id carrel.ID, want string) {
	b.t.Helper()
	c, err := b.Computer(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := c.Run(b.t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c",
		"cat ~/one ~/two"}})
	if err != nil || string(res.Stdout) != want {
		b.t.Errorf("sandbox %s has %q, %v (%s)", id, res.Stdout, err, res.Stderr)
	}
}
