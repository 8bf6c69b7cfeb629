package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/erofs/go-erofs"
)

// The image holds the binary whole, executable and owned by root, and is the same
// each time: its hash is its name on the host.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	binary := bytes.Repeat([]byte("guest"), 3001) // not a whole number of blocks
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, binary, 0o600); err != nil {
		t.Fatal(err)
	}
	var images [2][]byte
	for i := range images {
		out := filepath.Join(dir, "out.erofs")
		if err := run(out, in); err != nil {
			t.Fatal(err)
		}
		var err error
		if images[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two images of one binary differ")
	}
	fsys, err := erofs.Open(bytes.NewReader(images[0]))
	if err != nil {
		t.Fatal(err)
	}
	got, err := fs.ReadFile(fsys, "guest")
	if err != nil || !bytes.Equal(got, binary) {
		t.Errorf("%d bytes of %d, %v", len(got), len(binary), err)
	}
	if info, err := fs.Stat(fsys, "guest"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if run(filepath.Join(dir, "x"), filepath.Join(dir, "absent")) == nil {
		t.Error("an absent binary is no error")
	}
}
