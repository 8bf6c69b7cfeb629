package oshost

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMakeSudo checks which sudo an image gets, and which rules are written for it.
func TestMakeSudo(t *testing.T) {
	file := func(t *testing.T, root, name string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(t *testing.T, root, target, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name         string
		image        func(t *testing.T, root string)
		linked       string // path of our link, "" for none
		rule, policy bool   // are /etc/sudoers.d/carrel-user and /etc/sudoers there?
	}{
		{"slim", func(t *testing.T, root string) {
			file(t, root, ".carrel/sudo", 0o755)
			file(t, root, "usr/bin/env", 0o755)
		}, "usr/bin/sudo", true, false},
		{"only /bin", func(t *testing.T, root string) { file(t, root, ".carrel/sudo", 0o755); file(t, root, "bin/sh", 0o755) }, "usr/bin/sudo", true, false},
		{"no /usr/bin to be had", func(t *testing.T, root string) {
			file(t, root, ".carrel/sudo", 0o755)
			file(t, root, "usr/bin", 0o644)
			file(t, root, "bin/sh", 0o755)
		}, "bin/sudo", true, false},
		{"a second time", func(t *testing.T, root string) { link(t, root, ownSudo, "usr/bin/sudo") }, "usr/bin/sudo", true, false},
		{"its own", func(t *testing.T, root string) {
			file(t, root, ".carrel/sudo", 0o755)
			file(t, root, "usr/bin/sudo", 0o755)
		}, "", true, true},
		{"its own, elsewhere", func(t *testing.T, root string) {
			file(t, root, ".carrel/sudo", 0o755)
			file(t, root, "usr/local/bin/sudo", 0o755)
		}, "", true, true},
		{"no guest's sudo", func(t *testing.T, root string) { file(t, root, "usr/bin/env", 0o755) }, "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			c.image(t, root)
			for range 2 { // a second boot changes nothing
				if err := makeSudo(root); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"usr/bin/sudo", "bin/sudo", "usr/local/bin/sudo"} {
				target, _ := os.Readlink(filepath.Join(root, name))
				if (target == ownSudo) != (name == c.linked) {
					t.Errorf("%s leads to %q", name, target)
				}
			}
			if got := exists(filepath.Join(root, "etc/sudoers.d/carrel-user")); got != c.rule {
				t.Errorf("rule written: %v", got)
			}
			if got := exists(filepath.Join(root, "etc/sudoers")); got != c.policy {
				t.Errorf("sudoers written: %v", got)
			}
		})
	}
}
