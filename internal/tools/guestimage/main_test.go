package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/erofs/go-erofs"
)

// The image holds the binaries whole, executable and owned by root, and is the
// same each time: its hash is its name on the host. Only sudo is set-uid.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	contents := map[string][]byte{ // not whole numbers of blocks
		"guest": bytes.Repeat([]byte("guest"), 3001),
		"sudo":  bytes.Repeat([]byte("sudo"), 2001),
	}
	var in []string
	for _, name := range []string{"guest", "sudo"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, contents[name], 0o600); err != nil {
			t.Fatal(err)
		}
		in = append(in, file)
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
		t.Error("two images of the same binaries differ")
	}
	fsys, err := erofs.Open(bytes.NewReader(images[0]))
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"guest": 0o755, "sudo": 0o4755} {
		got, err := fs.ReadFile(fsys, name)
		if err != nil || !bytes.Equal(got, contents[name]) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		info, err := fs.Stat(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o7777 != mode { // the reader leaves the bits where Unix has them
			t.Errorf("%s: mode %o", name, uint32(info.Mode()))
		}
		if st, ok := info.Sys().(*erofs.Stat); !ok || st.UID != 0 || st.GID != 0 {
			t.Errorf("%s: %+v", name, info.Sys())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if run(filepath.Join(dir, "x"), []string{in[0], filepath.Join(dir, "absent")}) == nil {
		t.Error("an absent binary is no error")
	}
	if run(filepath.Join(dir, "x"), in[:1]) == nil {
		t.Error("one binary is no error")
	}
}
