//go:build linux

package box_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
)

func itoa(n int) string { return strconv.Itoa(n) }

// files makes a directory with files. Names that end with a slash are directories.
func files(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte("content of "+name+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWritableAndReadOnly(t *testing.T) {
	dir := files(t, "proj/.git/hooks/", "proj/file", "proj/locked", "beside")
	proj := dir + "/proj"
	s := shell(`echo new > file && cat file
		for f in locked .git/hooks/x ../beside /etc/x /usr/x; do (echo no > $f) 2>/dev/null && echo wrote $f; done
		mv locked moved 2>/dev/null && echo moved; rm -f locked 2>/dev/null; test -e locked && echo kept
		mv .git away 2>/dev/null && echo away
		ls ..`)
	s.Dir, s.NoTmp = proj, true
	s.Mounts = []box.Mount{
		{Kind: box.Writable, Source: proj, Target: proj},
		{Kind: box.ReadOnly, Source: proj + "/.git/hooks", Target: proj + "/.git/hooks"},
		{Kind: box.ReadOnly, Target: proj + "/locked"},
		{Kind: box.ReadOnly, Target: proj + "/missing", Optional: true},
	}
	expect(t, s, "new\nkept\nbeside\nproj\n")
	if b, _ := os.ReadFile(proj + "/file"); string(b) != "new\n" {
		t.Errorf("outside: %q", b)
	}
}

func TestPrivateDirectories(t *testing.T) {
	dir := files(t, "secret")
	s := shell(`ls -A /tmp /run /dev/shm | grep -v : | grep .; for d in /tmp /run /dev/shm; do echo x > $d/carrel-box-mine && cat $d/carrel-box-mine; done; test -e ` + dir + `/secret && echo seen`)
	expect(t, s, "x\nx\nx\n")
	for _, d := range []string{"/tmp", "/run", "/dev/shm"} {
		if _, err := os.Stat(d + "/carrel-box-mine"); err == nil {
			t.Error(d, "is the host's")
		}
	}
}

func TestTmpfsAndFile(t *testing.T) {
	dir := files(t, "proj/empty/full", "proj/given")
	s := shell(`ls empty; echo x > empty/y && echo made; cat given; (echo z > given) 2>/dev/null || echo ro; cat /run/deep/er`)
	s.Dir = dir + "/proj"
	s.Mounts = []box.Mount{
		{Kind: box.Writable, Source: s.Dir, Target: s.Dir},
		{Kind: box.Tmpfs, Target: s.Dir + "/empty", Size: 1 << 20},
		{Kind: box.ReadFile, Source: "text\n", Target: s.Dir + "/given"},
		{Kind: box.ReadFile, Source: "deep\n", Target: "/run/deep/er"},
	}
	expect(t, s, "made\ntext\nro\ndeep\n")
	if b, _ := os.ReadFile(s.Dir + "/given"); string(b) != "content of proj/given\n" {
		t.Errorf("outside: %q", b)
	}
}

func TestHidden(t *testing.T) {
	dir := files(t, "proj/.env", "proj/secret/key", "proj/blank", "proj/blanks/key", "proj/real/key")
	proj := dir + "/proj"
	if err := os.Symlink("real", proj+"/link"); err != nil {
		t.Fatal(err)
	}
	s := shell(`cat .env secret/key real/key 2>/dev/null; ls secret real 2>/dev/null; chmod 777 .env secret 2>/dev/null && echo opened
		mv .env x 2>/dev/null && echo moved; rm -rf secret 2>/dev/null; cat blank; ls blanks; test -e .env && echo there`)
	s.Dir = proj
	s.Mounts = []box.Mount{{Kind: box.Writable, Source: proj, Target: proj}}
	s.Hidden = []box.Hidden{{Path: proj + "/.env"}, {Path: proj + "/secret"}, {Path: proj + "/link"}, {Path: proj + "/none"}, {Path: proj + "/.env/none"},
		{Path: proj + "/blank", Blank: true}, {Path: proj + "/blanks", Blank: true}}
	expect(t, s, "there\n")
	t.Run("and told", func(t *testing.T) {
		touched := make(chan string, 1000)
		o := box.Options{Events: box.Events{Touched: func(i int, path, op string, pid int) { touched <- itoa(i) + " " + path }}}
		if out, _ := output(t, s, o); out != "there\n" {
			t.Errorf("%q", out)
		}
		close(touched)
		var all []string
		for x := range touched {
			all = append(all, x)
		}
		if text := strings.Join(all, "\n"); os.Geteuid() == 0 && (!strings.Contains(text, "0 "+proj+"/.env") || !strings.Contains(text, "1 "+proj+"/secret")) {
			t.Errorf("told %q", all)
		}
	})
}

func TestLinkInsteadOfDirectory(t *testing.T) {
	need(t)
	dir := files(t, "proj/", "victim/")
	if err := os.Symlink(dir+"/victim", dir+"/proj/build"); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]box.Mount{
		"source":  {Kind: box.Writable, Source: dir + "/proj/build", Target: dir + "/proj/build"},
		"parent":  {Kind: box.Writable, Source: dir + "/proj/build/x", Target: "/run/x"},
		"tmpfs":   {Kind: box.Tmpfs, Target: dir + "/proj/build"},
		"overlay": {Kind: box.Overlay, Source: dir + "/proj/build", Work: dir + "/proj", Target: dir + "/proj"},
	} {
		t.Run(name, func(t *testing.T) {
			s := plain("true")
			s.Mounts = []box.Mount{{Kind: box.Writable, Source: dir, Target: dir}, m}
			_, err := box.Start(t.Context(), s, box.Options{})
			if err == nil || !strings.Contains(err.Error(), "symbolic link") || !strings.Contains(err.Error(), "build") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestMissingMounts(t *testing.T) {
	need(t)
	dir := files(t, "proj/")
	for _, m := range []box.Mount{
		{Kind: box.Writable, Source: dir + "/none", Target: dir + "/none"},
		{Kind: box.ReadOnly, Source: dir, Target: "/etc/none-of-ours"},
	} {
		s := plain("true")
		s.Mounts = []box.Mount{m}
		_, err := box.Start(t.Context(), s, box.Options{})
		if err == nil || !strings.Contains(err.Error(), m.Target) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		s.Mounts[0].Optional = true
		expect(t, s, "")
	}
	if _, err := os.Stat("/etc/none-of-ours"); err == nil {
		t.Error("a directory was made on the host")
	}
}

func TestOverlay(t *testing.T) {
	for _, place := range []string{"inside a private directory", "not inside one"} {
		t.Run(place, func(t *testing.T) {
			dir := files(t, "proj/file", "proj/gone", "up/", "work/")
			t.Cleanup(func() { _ = os.Chmod(dir+"/work/work", 0o700) }) // the kernel makes it closed
			proj := dir + "/proj"
			s := shell(`echo new > file; rm gone; mkdir made; ls; cat file`)
			s.Dir, s.NoTmp = proj, place != "inside a private directory"
			s.Mounts = []box.Mount{{Kind: box.Overlay, Source: dir + "/up", Work: dir + "/work", Target: proj}}
			if !s.NoTmp {
				s.Mounts = append([]box.Mount{{Kind: box.ReadOnly, Source: proj, Target: proj}}, s.Mounts...)
			}
			expect(t, s, "file\nmade\nnew\n")
			if b, _ := os.ReadFile(proj + "/file"); string(b) != "content of proj/file\n" {
				t.Errorf("the lower directory changed: %q", b)
			}
			if b, _ := os.ReadFile(dir + "/up/file"); string(b) != "new\n" {
				t.Errorf("upper: %q", b)
			}
		})
	}
}

func TestEmptyRoot(t *testing.T) {
	dir := files(t, "proj/file")
	s := shell(`cat file; ls /; (echo x > /x) 2>/dev/null; test -e /home && echo home; ls /proc/self/fd > /dev/null && echo proc`)
	s.Root, s.Dir = box.Root{}, dir+"/proj"
	s.Mounts = []box.Mount{{Kind: box.ReadOnly, Source: "/usr", Target: "/usr"}, {Kind: box.ReadOnly, Source: "/lib64", Target: "/lib64", Optional: true},
		{Kind: box.ReadOnly, Source: s.Dir, Target: s.Dir}}
	for _, d := range []string{"/lib", "/bin"} { // links, or directories on old systems
		if info, err := os.Lstat(d); err == nil && info.IsDir() {
			s.Mounts = append(s.Mounts, box.Mount{Kind: box.ReadOnly, Source: d, Target: d})
		}
	}
	if info, err := os.Lstat("/lib64"); err == nil && !info.IsDir() {
		s.Mounts = append(s.Mounts[:1], s.Mounts[2:]...)
	}
	out, _ := output(t, s, box.Options{})
	if !strings.HasPrefix(out, "content of proj/file\n") || !strings.HasSuffix(out, "proc\n") || strings.Contains(out, "home") || strings.Contains(out, "var") {
		t.Errorf("%q", out)
	}
}

func TestLayers(t *testing.T) {
	dir := files(t, "a/only-a", "b/only-b", "b/both", "a/both", "up/", "work/")
	t.Cleanup(func() { _ = os.Chmod(dir+"/work/work", 0o700) })
	for _, d := range []string{"usr", "lib", "lib64", "bin", "proc", "dev", "sys", "tmp", "run"} {
		if err := os.MkdirAll(dir+"/b/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := shell(`cat /only-a /only-b /both; echo new > /both; rm /only-b; ls -d /home /etc 2>/dev/null`)
	s.Root = box.Root{Lower: []string{dir + "/a", dir + "/b"}, Upper: dir + "/up", Work: dir + "/work"}
	for _, d := range []string{"/usr", "/lib", "/lib64", "/bin"} {
		if real, err := filepath.EvalSymlinks(d); err == nil {
			s.Mounts = append(s.Mounts, box.Mount{Kind: box.ReadOnly, Source: real, Target: d})
		}
	}
	expect(t, s, "content of a/only-a\ncontent of b/only-b\ncontent of a/both\n")
	if b, _ := os.ReadFile(dir + "/up/both"); string(b) != "new\n" {
		t.Errorf("upper: %q", b)
	}
	if _, err := os.Stat(dir + "/b/only-b"); err != nil {
		t.Error("the lower layer changed")
	}
}

func TestReadOnlyHome(t *testing.T) {
	dir := files(t, "home/", "home/proj/")
	if err := os.Chmod(dir+"/home", 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir+"/home", 0o755)
	s := shell("echo x > y && cat y; pwd")
	s.Dir = dir + "/home/proj"
	s.Mounts = []box.Mount{{Kind: box.Writable, Source: s.Dir, Target: s.Dir}}
	expect(t, s, "x\n"+s.Dir+"\n")
}

func TestErrorsHaveKinds(t *testing.T) {
	need(t)
	s := plain("true")
	s.Mounts = []box.Mount{{Kind: box.Writable, Source: "/nowhere", Target: "/nowhere"}}
	_, err := box.Start(t.Context(), s, box.Options{})
	if carrel.KindOf(err) != carrel.Internal && carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("%v", carrel.KindOf(err))
	}
}
