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

// TestDamagedSnapshotFile damages each file of a paused sandbox's hot copy, one after the other.
// The store has the snapshot in its packs, so the first resumption must succeed.
func TestDamagedSnapshotFile(t *testing.T) {
	t.Parallel()
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	for _, tier := range testenv.Few(1, tiers...) {
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
		if got, err := c.Run(ctx, carrel.Command{Shell: "cat word"}); err != nil ||
			string(got.Stdout) != "kept" {
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

// TestDamagedImages damages the images that sandboxes start from. A create from a damaged template
// is refused with a hint. The guest's image is made again.
func TestDamagedImages(t *testing.T) {
	archive := miniroot.Archive(t)
	d := daemontest.StartOn(t, t.TempDir(), archive)
	svc := connect(t, d)
	ctx := t.Context()
	tmpl, err := svc.GetTemplate(ctx, "mini")
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		guest := only(t, filepath.Join(d.Dir, "guest", "guest-*.erofs"))
		if err := damage(guest, fileSize(t, guest)); err != nil {
			t.Fatal(err)
		}
		speak(t, svc, tier)
	}
	image := filepath.Join(d.Dir, "templates", tmpl.ID, "image.erofs")
	if err := damage(image, fileSize(t, image)); err != nil {
		t.Fatal(err)
	}
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		if _, err := svc.Create(ctx, options(tier)); err == nil {
			t.Errorf("%s: a create from a damaged template succeeded", tier)
		} else if !strings.Contains(err.Error(), "damaged") ||
			!strings.Contains(carrel.HintOf(err), "import") {
			t.Errorf("%s: %v, hint %q", tier, err, carrel.HintOf(err))
		}
	}
	d.Kill9()
	d.Restart()
	svc = connect(t, d)
	if _, err := svc.Create(ctx, options(carrel.GVisor)); err == nil {
		t.Error("after a restart, a create from a damaged template succeeded")
	}
	if out, err := d.CLI("template", "import", "mini", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	speak(t, svc, carrel.GVisor)
}

// speak makes a sandbox, has it say something, and ends it.
func speak(t *testing.T, svc carrel.Service, tier carrel.Tier) {
	t.Helper()
	sb, err := svc.Create(t.Context(), options(tier))
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := c.Run(t.Context(), carrel.Command{Shell: "echo alive"}); err != nil ||
		string(res.Stdout) != "alive\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := svc.Kill(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// only returns the one file of a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	return names[0]
}

func fileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
