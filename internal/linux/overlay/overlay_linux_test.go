package overlay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// text returns an operation that writes a file.
func text(p, s string) op { return op{Do: "write", Path: p, Data: []byte(s)} }

// TestChangesAndApply makes every kind of change that a program may make to a tree, and applies
// them.
func TestChangesAndApply(t *testing.T) {
	w := newWorld(t)
	w.file("kept", "as it is\n", 0o644)
	w.file("edited", "one\ntwo\nthree\n", 0o644)
	w.file("rewritten", "the same\n", 0o644)
	w.file("mode", "x\n", 0o644)
	w.file("gone", "x\n", 0o644)
	w.file("dir/a", "a\n", 0o644)
	w.file("dir/b/c", "c\n", 0o644)
	w.file("replaced/old", "old\n", 0o644)
	w.file("replaced/both", "both\n", 0o644)
	w.file("todir", "x\n", 0o644)
	w.file("tofile/x/y", "y\n", 0o644)
	w.file("tofile-1", "between in bytes, not in elements\n", 0o644)
	w.file("setuid", "x\n", 0o4755)
	w.file("hard1", "linked\n", 0o644)
	if err := os.Link(filepath.Join(w.lower, "hard1"), filepath.Join(w.lower, "hard2")); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"link": "kept", "linkdir": "dir", "linkout": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(w.lower, from)); err != nil {
			t.Fatal(err)
		}
	}
	w.run(
		text("edited", "one\n2\nthree\n"),
		text("rewritten", "the same\n"),
		op{Do: "chmod", Path: "mode", Mode: 0o755},
		op{Do: "rm", Path: "gone"},
		op{Do: "rm", Path: "dir"},
		op{Do: "rm", Path: "replaced"}, text("replaced/both", "both\n"), text("replaced/new", "new\n"),
		op{Do: "rm", Path: "todir"}, text("todir/in", "in\n"),
		op{Do: "rm", Path: "tofile"}, text("tofile", "a file\n"),
		op{Do: "rm", Path: "link"}, text("link", "a file\n"),
		op{Do: "rm", Path: "linkout"}, op{Do: "symlink", Path: "linkout", To: "../../../etc/shadow"},
		text("new/deep/er/file", "deep\n"),
		op{Do: "mkdir", Path: "new/empty"},
		op{Do: "symlink", Path: "new/link", To: "/"},
		text("new/setuid", "x\n"), op{Do: "chmod", Path: "new/setuid", Mode: 0o6755},
		op{Do: "append", Path: "hard1", Data: []byte("more\n")},
		text("locked/file", "x\n"), op{Do: "chmod", Path: "locked/file", Mode: 0}, op{Do: "chmod", Path: "locked", Mode: 0o111},
		text("two/a", "names\n"), op{Do: "link", Path: "two/a", To: "two/b"},
	)
	list, words := w.changes()
	equalLists(t, words, []string{
		"removed dir", "removed dir/a", "removed dir/b", "removed dir/b/c",
		"modified edited", "removed gone", "modified hard1", "modified link", "modified linkout",
		"added locked", "added locked/file", "mode mode",
		"added new", "added new/deep", "added new/deep/er", "added new/deep/er/file", "added new/empty", "added new/link", "added new/setuid",
		"added replaced/new", "removed replaced/old",
		"modified todir", "added todir/in",
		"modified tofile", "removed tofile/x", "removed tofile/x/y",
		"added two", "added two/a", "added two/b",
	})
	skipped, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{})
	if err != nil || len(skipped) != 0 {
		t.Fatal(skipped, err)
	}
	if os.Geteuid() != 0 { // the snapshot must be able to read
		_ = os.Chmod(filepath.Join(w.lower, "locked"), 0o711)
		_ = os.Chmod(filepath.Join(w.lower, "locked/file"), 0o400)
	}
	want := w.merged
	strip := want[`"new/setuid"`]
	strip.Mode &^= 0o6000
	want[`"new/setuid"`] = strip
	got := snapshot(w.lower)
	if os.Geteuid() != 0 {
		delete(got, `"locked"`)
		delete(got, `"locked/file"`)
		delete(want, `"locked"`)
		delete(want, `"locked/file"`)
	}
	same(t, got, want)
	if _, again := w.changes(); len(again) != 1 && os.Geteuid() == 0 || len(again) > 3 {
		// Nothing may be left. The file that lost its setuid bit is not listed, because the
		// comparison ignores that bit.
		if len(again) != 0 {
			t.Errorf("after applying: %v", again)
		}
	}
	var a, b unix.Stat_t
	if err := errors.Join(unix.Lstat(filepath.Join(w.lower, "two/a"), &a), unix.Lstat(filepath.Join(w.lower, "two/b"), &b)); err != nil || a.Ino != b.Ino {
		t.Errorf("hard links: %v, %d %d", err, a.Ino, b.Ino)
	}
	noStage(t, w.lower)
}

// noStage fails when Apply left files of its own.
func noStage(t *testing.T, dir string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, _ error) error {
		if strings.HasPrefix(filepath.Base(p), ".carrel-apply-") {
			t.Errorf("%s was left", p)
		}
		return nil
	})
}

// TestSpecialFiles checks that special files are listed, named in the diff and left out by Apply.
func TestSpecialFiles(t *testing.T) {
	w := newWorld(t)
	w.file("was", "a file\n", 0o644)
	w.run(op{Do: "fifo", Path: "pipe"}, op{Do: "socket", Path: "sock"}, op{Do: "rm", Path: "was"}, op{Do: "fifo", Path: "was"})
	list, words := w.changes()
	equalLists(t, words, []string{"added pipe", "added sock", "modified was"})
	var diff bytes.Buffer
	if err := overlay.Diff(t.Context(), &diff, w.lower, w.upper, list); err != nil {
		t.Fatal(err)
	}
	if got := diff.String(); got != "# b/pipe is a named pipe now\n# b/sock is a socket now\n# b/was is a named pipe now\n" {
		t.Errorf("diff %q", got)
	}
	skipped, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{})
	if err != nil || len(skipped) != 3 || skipped[0].Rule != "a named pipe is not carried over" || skipped[1].Rule != "a socket is not carried over" {
		t.Error(skipped, err)
	}
	if got, _ := os.ReadFile(filepath.Join(w.lower, "was")); string(got) != "a file\n" {
		t.Errorf("was: %q", got)
	}
}

// TestWhiteouts reads both forms of whiteouts, and compares with the kernel's result.
func TestWhiteouts(t *testing.T) {
	w := newWorld(t)
	w.file("a", "a\n", 0o644)
	w.file("b", "b\n", 0o644)
	w.file("d/x", "x\n", 0o644)
	w.file("empty", "not empty\n", 0o644)
	if err := errors.Join(overlay.Whiteout(w.upper, "a"), os.Mkdir(filepath.Join(w.upper, "d"), 0o755), overlay.Opaque(w.upper, "d"),
		os.WriteFile(filepath.Join(w.upper, "b"), nil, 0o644), unix.Setxattr(filepath.Join(w.upper, "b"), "user.overlay.whiteout", []byte("y"), 0),
		unix.Setxattr(w.upper, "user.overlay.opaque", []byte("x"), 0),
		os.WriteFile(filepath.Join(w.upper, "empty"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	list, words := w.changes()
	equalLists(t, words, []string{"removed a", "removed b", "removed d/x", "modified empty"})
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); err != nil {
		t.Fatal(err)
	}
	got := snapshot(w.lower)
	if len(got) != 2 || len(got[`"empty"`].Text) != 0 {
		t.Errorf("%v", got)
	}
	// The kernel agrees with Whiteout and Opaque. (It reads the other form only in lower layers.)
	if err := errors.Join(os.Remove(filepath.Join(w.upper, "b")), unix.Removexattr(w.upper, "user.overlay.opaque")); err != nil {
		t.Fatal(err)
	}
	w.file("a", "a\n", 0o644)
	w.file("d/x", "x\n", 0o644)
	w.run()
	if len(w.merged) != 2 {
		t.Errorf("the kernel shows %v", w.merged)
	}
}

// TestHostileLayer reads a layer that no program could make through a mount. Nothing outside may be
// touched or read.
func TestHostileLayer(t *testing.T) {
	w := newWorld(t)
	secret := filepath.Join(w.dir, "secret")
	writeFile(t, filepath.Join(secret, "key"), "secret\n", 0o600)
	// The lower directory has links where the layer has directories, and the reverse.
	if err := errors.Join(os.Symlink(secret, filepath.Join(w.lower, "d")), os.Symlink(secret, filepath.Join(w.upper, "e")),
		os.Mkdir(filepath.Join(w.upper, "d"), 0o755)); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(w.lower, "e/key"), "mine\n", 0o644)
	writeFile(t, filepath.Join(w.upper, "d/key"), "evil\n", 0o644)
	list, words := w.changes()
	equalLists(t, words, []string{"modified d", "added d/key", "modified e", "removed e/key"})
	var diff bytes.Buffer
	if err := overlay.Diff(t.Context(), &diff, w.lower, w.upper, list); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(diff.String(), "secret\n-") || strings.Contains(diff.String(), "-secret") {
		t.Errorf("the diff reads through a link:\n%s", diff.String())
	}
	for _, p := range []string{"../secret/key", "/etc/passwd", "d/../../secret/key", ".", ""} {
		_, err := overlay.Apply(t.Context(), w.lower, w.upper, []overlay.Change{{Path: p, Kind: overlay.Removed}}, overlay.Options{})
		if !errors.Is(err, carrel.Invalid) {
			t.Errorf("%q: %v", p, err)
		}
	}
	// A link that appears after Changes made the list.
	stale := []overlay.Change{{Path: "e2/key", Kind: overlay.Added, Mode: 0o644}}
	writeFile(t, filepath.Join(w.upper, "e2/key"), "evil\n", 0o644)
	if err := os.Symlink(secret, filepath.Join(w.lower, "e2")); err != nil {
		t.Fatal(err)
	}
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, stale, overlay.Options{Force: true}); err == nil {
		t.Error("written through a link")
	}
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(secret, "key")); string(got) != "secret\n" {
		t.Errorf("the secret is %q", got)
	}
	if to, _ := os.Readlink(filepath.Join(w.lower, "e")); to != secret {
		t.Errorf("e leads to %q", to)
	}
	noStage(t, w.lower)
}

// TestForeignLayers checks that layers with redirects or without content are refused.
func TestForeignLayers(t *testing.T) {
	for _, c := range []struct{ at, name string }{{"d", "redirect"}, {"f", "metacopy"}} {
		w := newWorld(t)
		w.file("d/x", "x\n", 0o644)
		w.file("f", "f\n", 0o644)
		writeFile(t, filepath.Join(w.upper, "d/y"), "y\n", 0o644)
		writeFile(t, filepath.Join(w.upper, "f"), "", 0o644)
		if err := unix.Setxattr(filepath.Join(w.upper, c.at), "user.overlay."+c.name, []byte("/etc"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := overlay.Changes(t.Context(), w.lower, w.upper, overlay.Options{}); err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A program inside can't set these attributes: the kernel keeps such names apart, or refuses.
	w := newWorld(t)
	w.file("d/x", "x\n", 0o644)
	w.lenient = true
	w.run(text("d/y", "y\n"), op{Do: "setxattr", Path: "d", To: "user.overlay.redirect", Data: []byte("/etc")},
		op{Do: "setxattr", Path: "d", To: "user.overlay.opaque", Data: []byte("y")},
		op{Do: "setxattr", Path: "d/y", To: "user.overlay.whiteout", Data: []byte("y")})
	if _, words := w.changes(); len(words) != 1 || words[0] != "added d/y" {
		t.Error(words)
	}
}

// TestProtected checks that protected paths stay, and so do the directories above them.
func TestProtected(t *testing.T) {
	w := newWorld(t)
	w.file(".git/hooks/pre-commit", "#!/bin/sh\n", 0o755)
	w.file(".git/objects/aa", "aa\n", 0o644)
	w.file("swap/.mcp.json", "{}\n", 0o644)
	w.file("plain", "x\n", 0o644)
	w.run(
		op{Do: "rm", Path: ".git"}, text(".git/hooks/evil", "#!/bin/sh\n"), text(".git/new", "n\n"),
		op{Do: "rm", Path: "swap"}, op{Do: "symlink", Path: "swap", To: "/"},
		text(".mcp.json", "{}\n"), text(".vscode/deep/tasks.json", "{}\n"), text("plain", "y\n"),
	)
	list, _ := w.changes()
	rule := func(p string) (string, bool) {
		base := filepath.Base(p)
		return "built-in: " + base, base == "hooks" || base == ".mcp.json" || base == ".vscode"
	}
	skipped, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{Protected: rule})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, s := range skipped {
		words = append(words, s.Path+": "+s.Rule)
	}
	equalLists(t, words, []string{
		".git/hooks/evil: built-in: hooks", ".git/hooks/pre-commit: built-in: hooks",
		".mcp.json: built-in: .mcp.json", ".vscode: built-in: .vscode", ".vscode/deep: built-in: .vscode", ".vscode/deep/tasks.json: built-in: .vscode",
		"swap: holds .mcp.json, which stays", "swap/.mcp.json: built-in: .mcp.json",
	})
	got := snapshot(w.lower)
	for _, p := range []string{`".git/hooks/pre-commit"`, `".git/new"`, `"swap/.mcp.json"`} {
		if _, ok := got[p]; !ok {
			t.Errorf("%s is missing", p)
		}
	}
	if _, ok := got[`".git/objects"`]; ok || string(got[`"plain"`].Text) != "y\n" {
		t.Errorf("what was not protected is not done: %v", got)
	}
}

// TestConflicts checks that Apply names the files that somebody else changed, and does nothing.
func TestConflicts(t *testing.T) {
	for _, with := range []string{"base", "since"} {
		t.Run(with, func(t *testing.T) {
			w := newWorld(t)
			for _, n := range []string{"mine", "both", "same", "removed", "dir/x"} {
				w.file(n, "old\n", 0o644)
			}
			base := map[string]fs.FileInfo{}
			_ = filepath.WalkDir(w.lower, func(p string, d fs.DirEntry, _ error) error {
				rel, _ := filepath.Rel(w.lower, p)
				base[rel], _ = d.Info()
				return nil
			})
			time.Sleep(20 * time.Millisecond) // the clock of the filesystem is coarse
			o := overlay.Options{Since: time.Now()}
			if with == "base" {
				o = overlay.Options{Base: func(p string) (fs.FileInfo, bool) { i, ok := base[p]; return i, ok }}
			}
			time.Sleep(20 * time.Millisecond)
			w.run(text("mine", "new\n"), text("both", "new\n"), text("same", "new\n"), op{Do: "rm", Path: "removed"}, text("added", "new\n"))
			w.file("both", "theirs\n", 0o644)
			w.file("same", "new\n", 0o644)
			w.file("removed", "theirs\n", 0o644)
			w.file("added", "theirs\n", 0o644)
			before := snapshot(w.lower)
			list, _ := w.changes()
			_, err := overlay.Apply(t.Context(), w.lower, w.upper, list, o)
			if !errors.Is(err, carrel.Conflict) || !strings.Contains(err.Error(), "added, both, removed") || carrel.HintOf(err) == "" {
				t.Fatalf("%v", err)
			}
			same(t, snapshot(w.lower), before)
			o.Force = true
			if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, o); err != nil {
				t.Fatal(err)
			}
			same(t, snapshot(w.lower), w.merged2("removed"))
		})
	}
}

// merged2 is the merged state without some paths that were made later.
func (w *world) merged2(without ...string) map[string]state {
	out := map[string]state{}
	for p, s := range w.merged {
		out[p] = s
	}
	for _, p := range without {
		delete(out, fmt.Sprintf("%q", p))
	}
	return out
}

// TestStaleList changes the lower directory after Changes. Apply must refuse.
func TestStaleList(t *testing.T) {
	w := newWorld(t)
	w.file("a", "a\n", 0o644)
	w.file("gone/x", "x\n", 0o644)
	w.run(text("a", "b\n"), text("new", "n\n"), op{Do: "rm", Path: "gone"})
	list, _ := w.changes()
	w.file("new", "theirs\n", 0o644)
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); !errors.Is(err, carrel.Conflict) {
		t.Error(err)
	}
	_ = os.Remove(filepath.Join(w.lower, "new"))
	w.file("gone/theirs", "x\n", 0o644)
	skipped, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{})
	if err != nil || len(skipped) != 1 || skipped[0].Path != "gone" || skipped[0].Rule != "holds theirs, which stays" {
		t.Error(skipped, err)
	}
}

// TestFailureIsUndone makes a rename fail half way.
func TestFailureIsUndone(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can make a file that nobody can rename
	}
	testenv.Need(t, "immutable", immutable(t, filepath.Join(t.TempDir(), "x"), true))
	w := newWorld(t)
	for _, n := range []string{"a", "dir/b", "dir/c", "gone/x", "z/last"} {
		w.file(n, "old\n", 0o644)
	}
	w.run(text("a", "new\n"), text("dir/b", "new\n"), op{Do: "rm", Path: "gone"}, text("n/e/w", "new\n"),
		op{Do: "chmod", Path: "dir/c", Mode: 0o600}, op{Do: "rm", Path: "dir/b"}, op{Do: "symlink", Path: "dir/b", To: "c"}, text("z/last", "new\n"))
	list, _ := w.changes()
	if err := immutable(t, filepath.Join(w.lower, "z/last"), false); err != nil {
		t.Fatal(err)
	}
	before := snapshot(w.lower)
	_, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{})
	if !errors.Is(err, carrel.Forbidden) || !strings.Contains(err.Error(), "z/last") {
		t.Errorf("%v", err)
	}
	same(t, snapshot(w.lower), before)
	noStage(t, w.lower)
}

// immutable sets the immutable flag of a file until the test ends. With probe it uses a file of its
// own.
func immutable(t *testing.T, p string, probe bool) error {
	if probe {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			return err
		}
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	const immutableFlag = 0x10
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|immutableFlag); err != nil {
		return err
	}
	t.Cleanup(func() {
		if f, err := os.Open(p); err == nil {
			_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
			_ = f.Close()
		}
	})
	return nil
}

// TestDiskFull checks that Apply on a full disk changes nothing and returns that error.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can mount a small filesystem
	}
	w := newWorld(t)
	small := filepath.Join(w.dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		testenv.Need(t, "mount", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	w.lower = filepath.Join(small, "lower")
	w.file("a", "old\n", 0o644)
	w.file("gone", "old\n", 0o644)
	big := bytes.Repeat([]byte("0123456789abcdef"), 40<<10)
	w.run(text("a", "new\n"), op{Do: "rm", Path: "gone"}, op{Do: "write", Path: "big1", Data: big}, op{Do: "write", Path: "big2", Data: big})
	list, _ := w.changes()
	before := snapshot(w.lower)
	_, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{})
	if !errors.Is(err, carrel.Exhausted) || !strings.Contains(err.Error(), "big2") {
		t.Errorf("%v", err)
	}
	same(t, snapshot(w.lower), before)
	noStage(t, w.lower)
	if err := unix.Mount("", small, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); !errors.Is(err, carrel.Forbidden) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("read-only: %v", err)
	}
}

// TestMountInside checks that a mount in the lower directory is not part of it.
func TestMountInside(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can mount outside
	}
	w := newWorld(t)
	w.file("m/below", "below\n", 0o644)
	m := filepath.Join(w.lower, "m")
	if err := unix.Mount("tmpfs", m, "tmpfs", 0, "size=1m"); err != nil {
		testenv.Need(t, "mount", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(m, unix.MNT_DETACH) })
	writeFile(t, filepath.Join(m, "mounted"), "mounted\n", 0o644)
	// In a user namespace the kernel refuses to overlay it, because that would reveal the files
	// below the mount.
	if err := overlay.Probe(w.lower, w.dir); !errors.Is(err, carrel.Unsupported) || !strings.Contains(err.Error(), m) {
		t.Errorf("%v", err)
	}
	if _, err := mounted(job{Lower: []string{w.lower}, Upper: w.upper, Work: w.work, At: w.at}); err == nil {
		t.Error("the kernel mounts it")
	}
	for p, s := range map[string]string{"m/below": "evil\n", "m/mounted": "evil\n", "n": "n\n"} {
		writeFile(t, filepath.Join(w.upper, p), s, 0o644)
	}
	list, _ := w.changes()
	skipped, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range skipped {
		if s.Rule != "another filesystem is mounted there" {
			t.Error(s)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(m, "mounted")); string(got) != "mounted\n" || len(skipped) == 0 {
		t.Errorf("%q %v", got, skipped)
	}
}

// TestSparse keeps holes.
func TestSparse(t *testing.T) {
	w := newWorld(t)
	w.run(op{Do: "sparse", Path: "holes", Data: []byte("end")})
	list, _ := w.changes()
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(w.lower, "holes"), &st); err != nil || st.Size != 1<<30+3 || st.Blocks > 2048 {
		t.Errorf("%v: %d bytes in %d blocks", err, st.Size, st.Blocks)
	}
}

// TestReadOnlyDirectories uses directories that a program made writable, changed and closed again.
func TestReadOnlyDirectories(t *testing.T) {
	w := newWorld(t)
	w.file("ro/a", "a\n", 0o444)
	w.file("rw/a", "a\n", 0o444)
	for _, d := range []string{"ro", "rw"} {
		if err := os.Chmod(filepath.Join(w.lower, d), 0o555); err != nil {
			t.Fatal(err)
		}
	}
	w.run(op{Do: "chmod", Path: "ro", Mode: 0o755}, op{Do: "rm", Path: "ro/a"}, text("ro/b", "b\n"), op{Do: "chmod", Path: "ro", Mode: 0o555},
		op{Do: "chmod", Path: "rw", Mode: 0o755}, text("rw/b", "b\n"))
	list, _ := w.changes()
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, snapshot(w.lower), w.merged)
}

// random returns random operations on a random tree, with names of every kind.
func random(r *rand.Rand, names []string) (files map[string]string, ops []op) {
	lines := func() string {
		var b strings.Builder
		for range r.IntN(30) {
			fmt.Fprintf(&b, "line %d\n", r.IntN(12))
		}
		if r.IntN(3) == 0 {
			b.WriteString("no newline")
		}
		return b.String()
	}
	p := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		return strings.Join(parts, "/")
	}
	files = map[string]string{}
	for range 25 {
		files[p()] = lines()
	}
	var known []string
	for f := range files {
		known = append(known, f)
	}
	slices.Sort(known)
	pick := func() string {
		if r.IntN(3) > 0 {
			return known[r.IntN(len(known))]
		}
		return p()
	}
	for range 30 {
		switch r.IntN(9) {
		case 0, 1, 2:
			ops = append(ops, text(pick(), lines()))
		case 3:
			ops = append(ops, op{Do: "append", Path: pick(), Data: []byte("more\n")})
		case 4, 5:
			ops = append(ops, op{Do: "rm", Path: pick()})
		case 6:
			ops = append(ops, op{Do: "rename", Path: pick(), To: pick()})
		case 7:
			ops = append(ops, op{Do: "symlink", Path: pick(), To: p()})
		case 8:
			ops = append(ops, op{Do: "chmodfile", Path: pick(), Mode: []fs.FileMode{0o644, 0o755}[r.IntN(2)]})
		}
	}
	return files, ops
}

// TestDiffIsApply works on random trees. Apply must give the tree that the program saw. "git apply"
// and "patch -p1" of the diff must give the same.
func TestDiffIsApply(t *testing.T) {
	names := []string{"a", "b", "a.b", "a-b", "Ünïcode", "with space", "tab\there", `back\slash`, `quo"te`, "bad\xff\xfe", "b.d", "line\rreturn", "-rf", "\u202eevil"}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for seed := range rounds {
		for _, tool := range []string{"git", "patch"} {
			t.Run(fmt.Sprintf("%s/%d", tool, seed), func(t *testing.T) {
				if _, err := exec.LookPath(tool); err != nil {
					testenv.Need(t, tool, err)
				}
				own := names
				if tool == "git" {
					own = append(own, "new\nline")
				}
				compareWith(t, rand.New(rand.NewPCG(uint64(seed), 7)), tool, own)
			})
		}
	}
}

func compareWith(t *testing.T, r *rand.Rand, tool string, names []string) {
	w := newWorld(t)
	w.lenient = true
	files, ops := random(r, names)
	other := filepath.Join(t.TempDir(), "other")
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if os.MkdirAll(filepath.Dir(filepath.Join(w.lower, p)), 0o755) == nil {
			_ = os.WriteFile(filepath.Join(w.lower, p), []byte(files[p]), 0o644)
		}
	}
	if out, err := exec.Command("cp", "-a", w.lower, other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.run(ops...)
	list, _ := w.changes()
	typeChanges := false
	for _, c := range list {
		if st, err := os.Lstat(filepath.Join(w.lower, c.Path)); err == nil && c.Kind == overlay.Modified && st.Mode().Type() != c.Mode.Type() {
			typeChanges = true
		}
	}
	var diff bytes.Buffer
	if err := overlay.Diff(t.Context(), &diff, w.lower, w.upper, list); err != nil {
		t.Fatal(err)
	}
	if skipped, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	same(t, snapshot(w.lower), w.merged)
	if tool == "patch" && typeChanges {
		return // patch deletes last, so a replacement finds the old file in its place
	}
	cmd := exec.Command("patch", "-p1", "--no-backup-if-mismatch", "-s")
	if tool == "git" {
		cmd = exec.Command("git", "apply", "--whitespace=nowarn", "-")
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(other), "HOME="+t.TempDir())
	}
	cmd.Dir = other
	cmd.Stdin = bytes.NewReader(diff.Bytes())
	if out, err := cmd.CombinedOutput(); err != nil && diff.Len() > 0 {
		t.Fatalf("%s: %v\n%s\n%s", tool, err, out, diff.String())
	}
	same(t, filesOnly(snapshot(other)), filesOnly(w.merged))
	if t.Failed() {
		t.Log(diff.String())
	}
}

// filesOnly leaves directories out, because diffs don't have them.
func filesOnly(m map[string]state) map[string]state {
	out := map[string]state{}
	for p, s := range m {
		if s.Mode&unix.S_IFMT != unix.S_IFDIR {
			out[p] = s
		}
	}
	return out
}

// TestMountOptions mounts directories with every kind of name.
func TestMountOptions(t *testing.T) {
	for _, name := range []string{"a:b", "a,b", `a\b`, `end\`, `\:,`, "with space", "new\nline", "bad\xff", "upperdir=x", ",userxattr", `::\\,,`, `a\,b`} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			w := newWorldIn(t, dir)
			w.file("low", "low\n", 0o644)
			second := filepath.Join(dir, "second"+name)
			writeFile(t, filepath.Join(second, "below"), "below\n", 0o644)
			got, err := mounted(job{Lower: []string{w.lower, second}, Upper: w.upper, Work: w.work, At: w.at, Ops: []op{text("new", "new\n")}})
			if err != nil {
				testenv.Need(t, "overlay", noNamespaces())
				t.Fatal(err)
			}
			if len(got) != 3 {
				t.Errorf("%v", got)
			}
			if s, err := os.ReadFile(filepath.Join(w.upper, "new")); err != nil || string(s) != "new\n" {
				t.Error("the change is not in the upper layer:", err)
			}
			if err := overlay.Probe(w.lower, w.dir); err == nil { // it holds the lower directory
				return
			} else if !errors.Is(err, carrel.Unsupported) {
				t.Error(err)
			}
		})
	}
	for _, c := range []struct {
		lower       []string
		upper, work string
	}{{nil, "/u", "/w"}, {[]string{""}, "/u", "/w"}, {[]string{"/l"}, "/u", ""}, {[]string{"/l\x00"}, "/u", "/w"}, {[]string{"/" + strings.Repeat(":", 2100)}, "/u", "/w"}} {
		if text, err := overlay.MountOptions(c.lower, c.upper, c.work, true); err == nil {
			t.Errorf("%.20q: %.100s", c.lower, text)
		}
	}
}

// TestProbe checks the reasons why a directory can't hold a layer.
func TestProbe(t *testing.T) {
	w := newWorld(t)
	if err := overlay.Probe(w.lower, w.work); err != nil {
		t.Errorf("a good one: %v", err)
	}
	if left, _ := os.ReadDir(w.work); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := os.Mkdir(filepath.Join(w.lower, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ lower, dir, want string }{
		{w.lower, filepath.Join(w.lower, "in"), "lies in"},
		{w.lower, w.lower, "lies in"},
		{w.lower, filepath.Join(w.dir, "missing"), "no such file"},
		{filepath.Join(w.dir, "missing"), w.work, "no such file"},
		{"/etc/passwd", w.work, "no directory"},
		{w.lower, "/proc/self", ""},
	} {
		err := overlay.Probe(c.lower, c.dir)
		if !errors.Is(err, carrel.Unsupported) || !strings.Contains(err.Error(), c.want) || carrel.HintOf(err) == "" {
			t.Errorf("%s over %s: %v", c.dir, c.lower, err)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	at := filepath.Join(w.dir, "at")
	text, err := overlay.MountOptions([]string{w.lower}, w.upper, w.work, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("overlay", at, "overlay", 0, text); err != nil {
		testenv.Need(t, "overlay", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	if err := overlay.Probe(filepath.Join(w.lower, "in"), at); err == nil || !strings.Contains(err.Error(), "an overlay itself") {
		t.Errorf("overlay on overlay: %v", err)
	}
	ro := filepath.Join(w.dir, "ro")
	if err := os.Mkdir(ro, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", ro, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(ro, unix.MNT_DETACH) })
	if err := overlay.Probe(w.lower, ro); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("read-only: %v", err)
	}
}

// TestBinaryAndBig checks that a diff only names binary and big files, and that Apply applies them.
func TestBinaryAndBig(t *testing.T) {
	w := newWorld(t)
	w.file("bin", "a\x00b", 0o644)
	w.file("perm", "x\n", 0o600)
	big := strings.Repeat("0123456789abcde\n", 600<<10)
	w.run(text("bin", "a\x00c"), text("big", big), op{Do: "chmod", Path: "perm", Mode: 0o640})
	list, _ := w.changes()
	var diff bytes.Buffer
	if err := overlay.Diff(t.Context(), &diff, w.lower, w.upper, list); err != nil {
		t.Fatal(err)
	}
	want := "diff --git a/big b/big\nnew file mode 100644\nBinary files /dev/null and b/big differ\n" +
		"diff --git a/bin b/bin\nBinary files a/bin and b/bin differ\n" +
		"# the permissions of b/perm were 0600 and are 0640\n"
	if diff.String() != want {
		t.Errorf("%s", diff.String())
	}
	if _, err := overlay.Apply(t.Context(), w.lower, w.upper, list, overlay.Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, snapshot(w.lower), w.merged)
}

// TestRemove removes a layer that is hard to remove.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	deep := strings.Repeat("d/", 500) + "f"
	w.run(text(deep, "x\n"), text("closed/a", "x\n"), op{Do: "chmod", Path: "closed", Mode: 0}, op{Do: "symlink", Path: "out", To: w.lower})
	w.file("stays", "x\n", 0o644)
	for _, d := range []string{w.upper, w.work} {
		if err := overlay.Remove(d); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(d); err == nil {
			t.Errorf("%s is still there", d)
		}
	}
	if _, err := os.Lstat(filepath.Join(w.lower, "stays")); err != nil {
		t.Error(err)
	}
}

// TestCancelled checks that cancelled work ends and changes nothing.
func TestCancelled(t *testing.T) {
	w := newWorld(t)
	w.file("a", "a\n", 0o644)
	w.run(text("a", "b\n"))
	list, _ := w.changes()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := overlay.Apply(ctx, w.lower, w.upper, list, overlay.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := overlay.Changes(ctx, w.lower, w.upper, overlay.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, _ := os.ReadFile(filepath.Join(w.lower, "a")); string(got) != "a\n" {
		t.Errorf("%q", got)
	}
	noStage(t, w.lower)
}
