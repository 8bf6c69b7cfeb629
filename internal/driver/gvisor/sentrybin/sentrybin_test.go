package sentrybin

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
)

// carried returns the assets of a binary that carries content, with the hash of said as its
// checksum.
func carried(t *testing.T, content, said []byte) fstest.MapFS {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(said)
	return fstest.MapFS{
		program: {Data: w.EncodeAll(content, nil)},
		sum:     {Data: []byte(hex.EncodeToString(hash[:]) + "\n")},
	}
}

func TestExtract(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	content := []byte("#!/bin/true\n")
	from := carried(t, content, content)
	name, err := extract(from, dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) os.FileInfo {
		t.Helper()
		got, err := os.ReadFile(name)
		fi, serr := os.Stat(name)
		if err != nil || serr != nil || string(got) != string(content) || fi.Mode() != 0o555 {
			t.Fatalf("%s: %q %v %v", when, got, err, serr)
		}
		return fi
	}
	first := check("first")
	if again, err := extract(from, dir); err != nil || again != name || !os.SameFile(first, check("again")) {
		t.Errorf("made again: %v", err)
	}
	for what, spoil := range map[string]func() error{
		"changed":   func() error { return replace(name, []byte("#!/bin/evil\n"), 0o555) },
		"writable":  func() error { return replace(name, content, 0o777) },
		"a symlink": func() error { return relink(name, "/bin/true") },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := extract(from, dir); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		check(what)
	}
}

func replace(name string, data []byte, mode os.FileMode) error {
	_ = os.Remove(name)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

func relink(name, to string) error {
	_ = os.Remove(name)
	return os.Symlink(to, name)
}

func TestNothingOrDamageCarried(t *testing.T) {
	if _, err := extract(fstest.MapFS{}, t.TempDir()); carrel.KindOf(err) != carrel.Unsupported {
		t.Error(err)
	}
	dir := t.TempDir()
	if _, err := extract(carried(t, []byte("a"), []byte("b")), dir); carrel.KindOf(err) != carrel.Internal {
		t.Error(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
