package time

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestBackup takes backups while sandboxes are paused, resumed, snapshotted and killed. Then it
// deletes the whole data directory, and goes on from the last backup. With -short, there is one
// backup of a small template: each contains its whole image.
func TestBackup(t *testing.T) {
	var d *daemontest.Daemon
	if testing.Short() {
		d = daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t, "pgrep"))
	} else {
		d = daemontest.Start(t)
	}
	svc := connect(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kept := map[carrel.ID]carrel.Tier{}
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim} {
		o := carrel.CreateOptions{Tier: tier, Timeout: time.Hour}
		if tier == carrel.Sim {
			o.Template = "sim"
		}
		sb, err := svc.Create(ctx, o)
		if err != nil {
			t.Fatal(tier, err)
		}
		if out := shell(ctx, t, svc, sb.ID, "echo thesis of "+string(tier)+" >work; sleep 27182 >/dev/null 2>&1 & cat work"); out != "thesis of "+string(tier)+"\n" {
			t.Fatalf("%s: %q", tier, out)
		}
		if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
			t.Fatal(tier, err)
		}
		kept[sb.ID] = tier
	}

	busy, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { stir(busy, svc) })
	}
	var file string
	names := []string{"one", "two", "three"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		file = filepath.Join(t.TempDir(), name)
		if out, err := d.CLI("--data-dir", d.Dir, "backup", file).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "wrote ") {
			t.Fatalf("%v: %s", err, out)
		}
	}
	stop()
	wg.Wait()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the backup: %v, %v", info.Mode(), err)
	}
	endOthers(ctx, t, svc, kept)

	d.Terminate()
	if err := os.RemoveAll(d.Dir); err != nil {
		t.Fatal(err)
	}
	if out, err := d.CLI("--data-dir", d.Dir, "restore", file).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "restored ") {
		t.Fatalf("%v: %s", err, out)
	}
	d.Restart()
	svc = connect(t, d) // with the same key
	for id, tier := range kept {
		if _, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			t.Errorf("%s: %v", tier, err)
			continue
		}
		if out := shell(ctx, t, svc, id, "cat work"); out != "thesis of "+string(tier)+"\n" {
			t.Errorf("%s: its file is %q", tier, out)
		}
		if tier != carrel.GVisor {
			continue
		}
		if out := shell(ctx, t, svc, id, "pgrep -c -f 'sleep 27182'"); out != "1\n" {
			t.Errorf("%s: its process is %q", tier, out)
		}
	}
}

// stir makes sandboxes and snapshots come and go until ctx ends.
func stir(ctx context.Context, svc carrel.Service) {
	for ctx.Err() == nil {
		sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Template: "sim",
			Timeout: time.Hour})
		if err != nil {
			continue
		}
		if _, err := svc.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{}); err == nil {
			_, _ = svc.Pause(ctx, sb.ID, carrel.PauseOptions{})
			_, _, _ = svc.Resume(ctx, sb.ID, carrel.ResumeOptions{})
		}
		_ = svc.Kill(ctx, sb.ID)
	}
}

// endOthers kills all sandboxes except kept.
func endOthers(ctx context.Context, t *testing.T, svc carrel.Service, kept map[carrel.ID]carrel.Tier) {
	t.Helper()
	page, err := svc.List(ctx, carrel.ListOptions{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range page.Sandboxes {
		if _, ok := kept[sb.ID]; !ok {
			_ = svc.Kill(ctx, sb.ID)
		}
	}
}

// shell runs a script in a sandbox and returns what it prints.
func shell(ctx context.Context, t *testing.T, svc carrel.Service, id carrel.ID, script string) string {
	t.Helper()
	c, err := svc.Computer(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(ctx, carrel.Command{Args: []string{"bash", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout)
}
