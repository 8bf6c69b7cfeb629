package vfs_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// FuzzPaths uses any texts as paths and as a link's target. Nothing may break. No listed path may
// be malformed or lead to another file. Removing all files must give back every byte.
func FuzzPaths(f *testing.F) {
	for _, s := range [][3]string{{"..", "/d/l/../x", "/d/e"}, {"/d/l", "/d/l", "/"}, {"e/", "/d/l/", "//d//."}, {"\x00", "", strings.Repeat("a/", 3000)},
		{strings.Repeat("../", 500), "/d/l/d/l/d", "/d/e/../../d/l"}, {"nope", "/d/l/", "/d/l/x"}} {
		f.Add(s[0], s[1], s[2])
	}
	base := vfs.New(vfs.Options{Quota: 1 << 20, Files: 100})
	must(f, base.Root().MkdirAll("/d/e", 0o755))
	must(f, base.Root().WriteFile("/d/f", []byte("x"), 0o644))
	f.Fuzz(func(t *testing.T, target, a, b string) {
		c := base.Clone(vfs.Options{Quota: 1 << 20, Files: 100})
		v := c.Root()
		_ = v.Symlink(target, "/d/l")
		for _, p := range []string{a, b} {
			_ = v.WriteFile(p, []byte("data"), 0o644)
			_ = v.Mkdir(p, 0o755)
			_ = v.Mkfifo(p+"p", 0o644)
			if i, err := v.Stat(p); err == nil {
				if !strings.HasPrefix(i.Path, "/") || strings.Contains(i.Path, "//") || strings.Contains(i.Path+"/", "/../") || strings.Contains(i.Path+"/", "/./") {
					t.Errorf("%q is %q", p, i.Path)
				}
				if j, err := v.Lstat(i.Path); err != nil || j.Ino != i.Ino || j.Mode&fs.ModeSymlink != 0 {
					t.Errorf("%q leads to %q, which is another file: %v", p, i.Path, err)
				}
			}
		}
		_ = v.Link(a, b)
		_ = v.Rename(a, b)
		_ = v.Remove(a)
		_ = v.RemoveAll(b)
		l, err := v.ReadDir("/")
		must(t, err)
		for _, i := range l {
			must(t, v.RemoveAll(i.Path))
		}
		// The files of the start state were removed too. The used bytes must then be 0.
		if used, _ := c.Usage(); used != 0 {
			t.Errorf("%d bytes stay used", used)
		}
		if made, _ := c.Files(); made != 0 {
			t.Errorf("%d files stay", made)
		}
	})
}
