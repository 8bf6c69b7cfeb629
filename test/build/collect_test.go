package build

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
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

// TestCollectDuringBuilds collects all caches again and again beside builds that use them: layers,
// a base of a registry, the empty base, and the drafts of templates. No build fails, and nothing
// that nobody uses is left at the end.
func TestCollectDuringBuilds(t *testing.T) {
	t.Parallel()
	testenv.Need(t, string(carrel.NS), tierWorks(t, carrel.NS))
	host, ref := daemontest.ServeSmall(t)
	b := newBenchOn(t, daemontest.Start(t, "--default-tier", string(carrel.NS),
		"--allow-registry", "http://"+host), carrel.NS)
	rounds := 2
	if !testing.Short() {
		rounds = 25
	}
	file := "FROM template://small AS made\nUSER root\nRUN echo one > /one\n" +
		"FROM scratch AS kept\nCOPY --from=made /one /kept\n" +
		"FROM " + ref + "\nUSER root\nCOPY --from=kept /kept /home/\nRUN cat /home/kept > /home/two\n"
	over, collected := make(chan struct{}), make(chan int, 1)
	go func() {
		gone := 0
		defer func() { collected <- gone }()
		for {
			got, err := b.CollectTemplates(t.Context(), carrel.CollectOptions{})
			if err != nil {
				t.Errorf("collect: %v", err)
			}
			gone += len(got.Items)
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for n := range rounds {
				spec := carrel.BuildSpec{Name: fmt.Sprintf("busy-%d", i), Dockerfile: file, MemoryMB: 256}
				if n%2 == 1 { // another image of the same layers, and so another draft
					spec.Dockerfile += fmt.Sprintf("ENV ROUND=%d\n", n)
				}
				b.endsReady(spec)
			}
		})
	}
	wg.Wait()
	close(over)
	if gone := <-collected; gone == 0 {
		t.Error("the collections removed nothing while the builds ran")
	}
	if got := b.run("busy-1", "cat /home/two"); got != "one" {
		t.Errorf("the template has %q", got)
	}
	if _, err := b.CollectTemplates(t.Context(), carrel.CollectOptions{}); err != nil {
		t.Fatal(err)
	}
	left, err := b.CollectTemplates(t.Context(), carrel.CollectOptions{DryRun: true})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("nobody uses these, and they stayed: %+v, %v", left, err)
	}
	b.nothingLeft()
}

// endsReady makes a build beside others and checks that it succeeds.
func (b *bench) endsReady(spec carrel.BuildSpec) {
	build, err := b.StartBuild(b.t.Context(), spec)
	if err != nil {
		b.t.Errorf("start build: %v", err)
		return
	}
	var logs []carrel.BuildLog
	for l, err := range b.BuildLogs(b.t.Context(), build.ID, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			b.t.Errorf("follow the log: %v", err)
			return
		}
		logs = append(logs, l)
	}
	if build, err = b.GetBuild(b.t.Context(), build.ID); err != nil ||
		build.State != carrel.BuildReady {
		b.t.Errorf("the build is %s, %v: %+v\n%s", build.State, err, build.Reason, text(logs))
	}
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
