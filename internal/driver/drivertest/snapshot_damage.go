package drivertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// copyMoment copies a snapshot, so that it can be damaged.
func copyMoment(t testing.TB, m moment) moment {
	t.Helper()
	c := moment{dir: filepath.Join(t.TempDir(), "copy"), info: m.info}
	if err := os.CopyFS(c.dir, os.DirFS(m.dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

// damage is one way in which a file of a snapshot can be wrong.
type damage struct {
	name string
	do   func(name string) error
	// quiet: if snapshots hold memory, the driver may not notice the damage. It reads pages only
	// when they are needed; package snapshot checks them.
	quiet bool
	// long: -short leaves it out, as another one is much the same.
	long bool
}

var damages = []damage{
	{"missing", os.Remove, false, false},
	{"empty", func(n string) error { return os.Truncate(n, 0) }, false, true},
	{"cut in half", func(n string) error { return cut(n, func(s int64) int64 { return s / 2 }) }, false, false},
	{"one byte short", func(n string) error { return cut(n, func(s int64) int64 { return s - 1 }) }, true, true},
	{"first byte", func(n string) error { return flip(n, func(int64) int64 { return 0 }) }, true, true},
	{"middle byte", func(n string) error { return flip(n, func(s int64) int64 { return s / 2 }) }, true, false},
	{"last byte", func(n string) error { return flip(n, func(s int64) int64 { return s - 1 }) }, true, true},
	{"other contents", func(n string) error { return os.WriteFile(n, []byte("this is not a snapshot at all\n"), 0o600) }, false, false},
	{"a link", func(n string) error {
		if err := os.Rename(n, n+".target"); err != nil {
			return err
		}
		return os.Symlink("/dev/zero", n)
	}, false, false},
	{"a directory", func(n string) error {
		if err := os.Remove(n); err != nil {
			return err
		}
		return os.Mkdir(n, 0o700)
	}, false, true},
}

func cut(name string, to func(int64) int64) error {
	fi, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.Truncate(name, max(to(fi.Size()), 0))
}

func flip(name string, at func(int64) int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at(fi.Size())); err != nil {
		return err
	}
	b[0] ^= 0x55
	_, err = f.WriteAt(b[:], at(fi.Size()))
	return err
}

func (s *suite) testDamaged(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.must(t, "echo kept > /tmp/kept")
	b.load(t, 2)
	for name, opts := range s.modes() {
		m := b.snapshot(t, opts)
		list, err := os.ReadDir(m.dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			before := s.trace(t, d)
			for _, e := range list {
				fi, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range damages {
					if fi.Size() == 0 && x.name != "missing" {
						continue
					}
					t.Run(e.Name()+"/"+x.name, func(t *testing.T) {
						if x.long {
							testenv.Long(t, "another damage is much the same")
						}
						c := copyMoment(t, m)
						if err := x.do(filepath.Join(c.dir, e.Name())); err != nil {
							t.Fatal(err)
						}
						s.wantRefused(t, d, c, x.quiet && s.info.Capabilities.MemorySnapshot)
					})
				}
			}
			before.wantSame(t)
		})
	}
	t.Run("foreign", func(t *testing.T) {
		m := b.snapshot(t, driver.SnapshotOptions{})
		empty := moment{dir: snapshotDir(t), info: m.info}
		s.wantRefused(t, d, empty, false)
		s.wantRefused(t, d, moment{dir: filepath.Join(empty.dir, "absent"), info: m.info}, false)
		strange := moment{dir: snapshotDir(t), info: m.info}
		for _, name := range []string{"manifest.json", "memory.bin", "state"} {
			if err := os.WriteFile(filepath.Join(strange.dir, name), []byte("{}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.wantRefused(t, d, strange, false)
	})
	t.Run("into something", func(t *testing.T) {
		dir := snapshotDir(t)
		if _, err := b.trySnapshot(t.Context(), filepath.Join(dir, "absent"), driver.SnapshotOptions{}); err == nil {
			t.Error("a snapshot went into a directory that does not exist")
		} else {
			wantError(t, err)
		}
	})
	b.want(t, "cat /tmp/kept", "kept")
}

// wantRefused restores a damaged snapshot, which must fail. With maybe it may succeed, as long as
// it harms nothing.
func (s *suite) wantRefused(t *testing.T, d driver.Driver, m moment, maybe bool) {
	t.Helper()
	spec := s.spec(t)
	r := restorer(t, d)
	b, err := s.tryRestore(t, d, m, spec, driver.RestoreOptions{})
	switch kind := carrel.KindOf(err); {
	case b != nil:
		if !maybe {
			t.Error("a damaged snapshot was restored")
		}
		b.destroy(t)
	case kind != carrel.Invalid && kind != carrel.Unsupported && !(maybe || s.info.Capabilities.MemorySnapshot && kind == carrel.Unavailable):
		t.Errorf("a damaged snapshot gave %v (kind %q), want invalid", err, kind)
	}
	s.wantGone(t, spec)
	// Reading its files must fail cleanly or reach the end.
	scratch := s.spec(t)
	if rc, err := r.SnapshotFiles(t.Context(), m.dir, m.info, scratch); err == nil {
		_, _ = readTar(rc)
		if err := rc.Close(); err != nil {
			wantError(t, err)
		}
	} else {
		wantError(t, err)
	}
	s.wantGone(t, scratch)
}
