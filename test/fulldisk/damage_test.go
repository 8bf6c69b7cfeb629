package fulldisk

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestDamagedSnapshotFile damages each file of a paused sandbox's hot copy, one after the other. The
// store has the snapshot in its packs, so the first resumption must succeed.
func TestDamagedSnapshotFile(t *testing.T) {
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) { resumeDamaged(t, d, tier) })
	}
}

func resumeDamaged(t *testing.T, d *daemontest.Daemon, tier carrel.Tier) {
	ctx := t.Context()
	svc := connect(t, d)
	sb, err := svc.Create(ctx, options(tier))
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Files("").Write(ctx, "word", strings.NewReader("kept")); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for {
		if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		paused, err := svc.Get(ctx, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		hot := filepath.Join(d.Dir, "snapshots", "hot", string(paused.Snapshot))
		testenv.EventuallyNil(t, "the snapshot is packed", func() error {
			_, err := os.Stat(filepath.Join(d.Dir, "snapshots", "packed", string(paused.Snapshot)))
			return err
		})
		name := damageNext(t, hot, tried)
		if name == "" {
			break
		}
		if _, _, err := svc.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
			t.Fatalf("%s is damaged: %v (hint: %s)", name, err, carrel.HintOf(err))
		}
		if got, err := c.Run(ctx, carrel.Command{Shell: "cat word"}); err != nil || string(got.Stdout) != "kept" {
			t.Fatalf("%s was damaged: %+v, %v", name, got, err)
		}
	}
	if len(tried) < 2 {
		t.Errorf("only %v were damaged", tried)
	}
	if err := svc.Kill(ctx, sb.ID); err != nil {
		t.Error(err)
	}
}

// damageNext damages a file below dir that was not tried yet, and returns its name; "" when all
// were.
func damageNext(t *testing.T, dir string, tried map[string]bool) (name string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if err != nil || de.IsDir() || name != "" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || tried[rel] || de.Name() == "boot" {
			return err
		}
		info, err := de.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		tried[rel], name = true, rel
		return damage(path, info.Size())
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// damage flips bits in the middle of a file.
func damage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [16]byte
	n, err := f.ReadAt(b[:min(16, size)], size/2)
	if n == 0 {
		return err
	}
	for i := range b[:n] {
		b[i] ^= 0x55
	}
	_, err = f.WriteAt(b[:n], size/2)
	return err
}
