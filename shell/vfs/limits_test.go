package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestFileLimits checks Options.Files and FileSize.
func TestFileLimits(t *testing.T) {
	f := vfs.New(vfs.Options{Files: 3, FileSize: 100_000})
	v := f.Root()
	must(t, v.Mkdir("/d", 0o755))
	must(t, v.WriteFile("/d/a", nil, 0o644))
	must(t, v.Symlink("a", "/d/b"))
	for name, err := range map[string]error{"file": v.WriteFile("/c", nil, 0o644), "directory": v.Mkdir("/c", 0o755), "link": v.Symlink("x", "/c"), "pipe": v.Mkfifo("/c", 0o644)} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a fourth, a %s: %v", name, err)
		}
	}
	must(t, v.Link("/d/a", "/d/again")) // no file of its own
	must(t, v.RemoveAll("/d"))
	if made, limit := f.Files(); made != 0 || limit != 3 {
		t.Errorf("%d of %d", made, limit)
	}
	err := v.WriteFile("/big", make([]byte, 200_000), 0o644)
	if i, _ := v.Stat("/big"); !errors.Is(err, syscall.EFBIG) || i.Size != 100_000 {
		t.Errorf("%d bytes, %v", i.Size, err)
	}
	h, err := v.OpenFile("/big", vfs.WriteOnly, 0)
	must(t, err)
	if err := h.Truncate(100_001); !errors.Is(err, syscall.EFBIG) {
		t.Error(err)
	}
	must(t, h.Close())
}

// TestLinkCharges checks that names, targets and attributes count against the quota.
func TestLinkCharges(t *testing.T) {
	f := vfs.New(vfs.Options{Quota: 64 << 10})
	v := f.Root()
	must(t, v.WriteFile("/f", nil, 0o644))
	n := 0
	for ; v.Link("/f", fmt.Sprintf("/l%d", n)) == nil; n++ {
	}
	if n > 300 {
		t.Errorf("%d hard links in 64 KiB", n)
	}
	for range 10 { // renaming costs nothing
		must(t, v.Rename("/l0", "/m0"))
		must(t, v.Rename("/m0", "/l0"))
	}
	must(t, errors.Join(v0(f)...))
	for n = 0; v.Symlink(strings.Repeat("x", 4000), fmt.Sprintf("/s%d", n)) == nil; n++ {
	}
	if n > 16 {
		t.Errorf("%d long links in 64 KiB", n)
	}
	must(t, errors.Join(v0(f)...))
	if used, _ := f.Usage(); used != 0 {
		t.Errorf("%d bytes stay used", used)
	}
}

// TestTimes checks which operation sets which time.
func TestTimes(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := vfs.New(vfs.Options{Now: func() time.Time { now = now.Add(time.Second); return now }})
	v := f.Root()
	must(t, v.WriteFile("/f", []byte("x"), 0o644))
	a, _ := v.Stat("/f")
	must(t, second(v.ReadFile("/f")))
	b, _ := v.Stat("/f")
	if !b.Accessed.After(a.Accessed) || b.Modified != a.Modified || b.Changed != a.Changed || b.Created != a.Created {
		t.Errorf("reading: %+v then %+v", a, b)
	}
	must(t, second(v.ReadFile("/f")))
	if c, _ := v.Stat("/f"); c.Accessed != b.Accessed {
		t.Errorf("read twice, the access time moves on")
	}
	must(t, v.Chmod("/f", 0o600))
	c, _ := v.Stat("/f")
	if !c.Changed.After(b.Changed) || c.Modified != b.Modified {
		t.Errorf("chmod: %+v then %+v", b, c)
	}
	must(t, v.SetTimes("/f", vfs.Times{Modified: time.Unix(5, 7)}))
	d, _ := v.Stat("/f")
	if d.Modified.UnixNano() != 5e9+7 || d.Accessed != c.Accessed || !d.Changed.After(c.Changed) {
		t.Errorf("times: %+v then %+v", c, d)
	}
	must(t, v.Symlink("f", "/l"))
	must(t, v.SetTimes("/l", vfs.Times{Modified: time.Unix(9, 0), NoFollow: true}))
	if i, _ := v.Lstat("/l"); i.Modified.Unix() != 9 {
		t.Errorf("a link's own time is %v", i.Modified)
	}
}

// TestFifo checks the part of named pipes that this package implements.
func TestFifo(t *testing.T) {
	f := vfs.New(vfs.Options{})
	v := f.Root()
	must(t, v.Mkfifo("/p", 0o640))
	a, err := v.OpenFile("/p", vfs.ReadOnly, 0)
	must(t, err)
	b, err := v.OpenFile("/p", vfs.WriteOnly|vfs.Truncate, 0)
	must(t, err)
	made := 0
	mk := func() any { made++; return new(int) }
	if a.Kind() != "fifo" || a.Device() != "" || a.Shared(mk) != b.Shared(mk) || made != 1 {
		t.Errorf("%q, %d made", a.Kind(), made)
	}
	must(t, a.Close())
	must(t, b.Close())
	c := f.Clone(vfs.Options{})
	if i, err := c.Root().Stat("/p"); err != nil || i.Mode != fs.ModeNamedPipe|0o640 {
		t.Errorf("%v, %v", i.Mode, err)
	}
	base := vfs.New(vfs.Options{Now: func() time.Time { return time.Unix(1, 0) }})
	d := base.Clone(vfs.Options{})
	must(t, d.Root().Mkfifo("/p", 0o600))
	roundTrip(t, d, base, 0)
}
