package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestFineRules checks rules that are less known.
func TestFineRules(t *testing.T) {
	f := vfs.New(vfs.Options{})
	root, u := f.Root(), f.As(vfs.Cred{UID: 1000, GID: 1000, Groups: []uint32{50}})
	must(t, root.Mkdir("/home", 0o777))
	must(t, root.WriteFile("/home/roots", nil, 0o644))
	must(t, root.WriteFile("/home/open", nil, 0o666))
	must(t, u.WriteFile("/home/mine", nil, 0o6755))
	must(t, root.MkdirAll("/home/a/moved", 0o777))
	must(t, root.Chmod("/home/a", 0o777))
	for name, c := range map[string]struct{ got, want error }{
		"a hard link to a file that one can't write":  {u.Link("/home/roots", "/home/l1"), syscall.EPERM},
		"to one that one can":                         {u.Link("/home/open", "/home/l2"), nil},
		"give a file to a group that one isn't in":    {u.Chown("/home/mine", 1000, 60), syscall.EPERM},
		"to one that one is in":                       {u.Chown("/home/mine", 1000, 50), nil},
		"move another's directory to another parent":  {u.Rename("/home/a/moved", "/home/moved"), nil},
		"the same without the right to write to it":   {errors.Join(root.Chmod("/home/moved", 0o755), u.Rename("/home/moved", "/home/a/moved")), syscall.EACCES},
		"rename it where it is":                       {u.Rename("/home/moved", "/home/still"), nil},
		"remove the root":                             {root.Remove("/"), syscall.EBUSY},
		"remove a dot":                                {root.Remove("/home/."), syscall.EINVAL},
		"make a file with a slash":                    {root.WriteFile("/home/new/", nil, 0o644), syscall.EISDIR},
		"make a directory where a link leads nowhere": {errors.Join(root.Symlink("no", "/home/dangling"), root.Mkdir("/home/dangling/", 0o755)), syscall.EEXIST},
		"open nothing":                                {second(root.Open("")), syscall.ENOENT},
		"a link to nothing":                           {root.Symlink("", "/x"), syscall.ENOENT},
		"a link to a long path":                       {root.Symlink(strings.Repeat("x", 4096), "/x"), syscall.ENAMETOOLONG},
		"a link with a nul":                           {root.Symlink("a\x00b", "/x"), syscall.EINVAL},
	} {
		if !errors.Is(c.got, c.want) && !(c.want == nil && c.got == nil) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if i, _ := root.Stat("/home/mine"); i.Mode != 0o755 || i.GID != 50 {
		t.Errorf("a new owner leaves %v", i.Mode)
	}
	must(t, root.Chmod("/home", 0o777|fs.ModeSetgid))
	must(t, root.Chown("/home", 0, 77))
	must(t, u.Mkdir("/home/sub", 0o755))
	if i, _ := root.Stat("/home/sub"); i.Mode != fs.ModeDir|fs.ModeSetgid|0o755 || i.GID != 77 {
		t.Errorf("below a setgid directory: %v, %d", i.Mode, i.GID)
	}
}

// TestDeepLinks uses links to go deeper than any path can.
func TestDeepLinks(t *testing.T) {
	f := vfs.New(vfs.Options{})
	v := f.Root()
	at := ""
	for range 1000 {
		at += "/d"
		must(t, v.Mkdir(at, 0o755))
	}
	must(t, v.Symlink(at, "/l0"))
	var err error
	n := 0
	for ; err == nil && n < 20; n++ {
		// Make a thousand more directories below the end of the last link.
		p := fmt.Sprintf("/l%d", n)
		for range 1000 {
			p += "/d"
			if err = v.Mkdir(p, 0o755); err != nil {
				break
			}
		}
		if err == nil {
			err = v.Symlink(p, fmt.Sprintf("/l%d", n+1))
		}
	}
	if !errors.Is(err, syscall.ENAMETOOLONG) || n > 5 {
		t.Errorf("%d thousand directories deep: %v", n, err)
	}
	must(t, v.RemoveAll("/d"))
}
