//go:build linux

package datadir

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// open opens a directory and writes its identity.
func open(t *testing.T, path string, adopt bool) *Dir {
	t.Helper()
	d, err := Open(path, adopt)
	if err == nil {
		err = d.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// edit changes the file of a directory.
func edit(t *testing.T, path string, change func(*Identity)) {
	t.Helper()
	i, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	change(&i)
	raw, err := i.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(path, File), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func clone(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestVerdicts opens a directory that something was done to.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, dir, to string) string // returns the directory to open
		want Verdict
	}{
		"nothing": {func(_ *testing.T, dir, _ string) string { return dir }, Same},
		"mv": {func(t *testing.T, dir, to string) string {
			if err := os.Rename(dir, to); err != nil {
				t.Fatal(err)
			}
			return to
		}, Same},
		"cp": {func(t *testing.T, dir, to string) string { clone(t, dir, to); return to }, Copied},
		"cp in its place": {func(t *testing.T, dir, to string) string {
			if err := os.Rename(dir, to); err != nil {
				t.Fatal(err)
			}
			clone(t, to, dir)
			return dir
		}, Copied},
		"reboot": {func(t *testing.T, dir, _ string) string {
			edit(t, dir, func(i *Identity) { i.Boot, i.Device = "another", i.Device+1 })
			return dir
		}, Same},
		"another device in one boot": {func(t *testing.T, dir, _ string) string {
			edit(t, dir, func(i *Identity) { i.Device++ })
			return dir
		}, Copied},
		"another host": {func(t *testing.T, dir, _ string) string {
			edit(t, dir, func(i *Identity) { i.Boot, i.Host = "another", "another" })
			return dir
		}, Copied},
		"another name of the host in one boot": {func(t *testing.T, dir, _ string) string {
			edit(t, dir, func(i *Identity) { i.Host = "another" })
			return dir
		}, Same},
		"an image of the filesystem, and the original in its place": {func(t *testing.T, dir,
			to string) string {
			clone(t, dir, to)
			edit(t, to, func(i *Identity) {
				now, err := spotOf(to)
				if err != nil {
					t.Fatal(err)
				}
				now.Boot, now.Path = "another", dir
				i.Spot = now
			})
			return to
		}, Copied},
		"no lasting inodes, another path": {func(t *testing.T, dir, to string) string {
			edit(t, dir, func(i *Identity) { i.Inode, i.Path = 0, to })
			return dir
		}, Copied},
		"no file": {func(t *testing.T, dir, _ string) string {
			for _, name := range []string{File, secondFile} {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		}, Fresh},
		"a lost file": {func(t *testing.T, dir, _ string) string {
			if err := os.Remove(filepath.Join(dir, File)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, Same},
		"a damaged file": {func(t *testing.T, dir, _ string) string {
			if err := os.WriteFile(filepath.Join(dir, File), []byte("\x00\x00"), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}, Same},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			first := open(t, dir, false)
			at := c.do(t, dir, filepath.Join(top, "other"))
			second, err := Open(at, false)
			if err != nil || second.Verdict != c.want {
				t.Fatalf("%+v, %v", second, err)
			}
			if (second.ID == first.ID) != (c.want == Same) || second.Copy() != (c.want == Copied) {
				t.Errorf("%s after %s: %+v", second.ID, first.ID, second)
			}
			if second.Copy() && second.CopyOf != first.ID {
				t.Errorf("a copy of %s", second.CopyOf)
			}
		})
	}
}

// TestStaysACopy opens a copy again and again, until it is adopted, and copies it.
func TestStaysACopy(t *testing.T) {
	top := t.TempDir()
	dir, to, third := filepath.Join(top, "data"), filepath.Join(top, "copy"),
		filepath.Join(top, "third")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	original := open(t, dir, false)
	clone(t, dir, to)
	first := open(t, to, false)
	again := open(t, to, false)
	if again.ID != first.ID || again.Verdict != Same || !again.Copy() {
		t.Errorf("%+v", again)
	}
	if problem, hint, err := Inspect(to); err != nil || !strings.Contains(problem, original.ID) ||
		hint == "" {
		t.Errorf("%q, %q, %v", problem, hint, err)
	}
	owner := open(t, to, true)
	if owner.Copy() || !owner.Claimed || owner.ID == original.ID {
		t.Errorf("%+v", owner)
	}
	if last := open(t, to, true); last.Claimed || last.Copy() {
		t.Errorf("%+v", last)
	}
	clone(t, to, third)
	if d := open(t, third, false); d.CopyOf != owner.ID || !d.Copy() {
		t.Errorf("%+v", d)
	}
	if d := open(t, dir, true); d.Claimed || d.ID != original.ID {
		t.Errorf("the original: %+v", d)
	}
}

// TestDamagedIdentity refuses to guess.
func TestDamagedIdentity(t *testing.T) {
	for _, text := range []string{"", "{", `{"form":1}`, `{"form":1,"id":"../x"}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, false); !errors.Is(err, carrel.Invalid) || carrel.HintOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), []byte(`{"form":2,"id":"d1"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, false); !errors.Is(err, carrel.Unsupported) {
		t.Errorf("a newer form: %v", err)
	}
}
