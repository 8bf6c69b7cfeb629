package erofs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadAndExtend writes an image, reads its tree back and extends it. Every node and every
// content of the first image must be the same in the second.
func TestReadAndExtend(t *testing.T) {
	one, two := newFile(t), newFile(t)
	w := NewWriter(one)
	root := NewDir(0o755)
	content := bytes.Repeat([]byte("carrel "), 3000)
	big, err := w.AddFile(root, "big", 0o640, content)
	if err != nil {
		t.Fatal(err)
	}
	big.UID, big.GID = 12, 34
	big.SetMtime(time.Unix(1000, 5))
	root.Set("hard", big)
	root.Set("link", NewSymlink("big"))
	root.Set("long", NewSymlink(strings.Repeat("x/", 2040)))
	dir := NewDir(0o700 | fs.ModeSticky)
	root.Set("dir", dir)
	for i := range 500 { // a directory of several blocks
		if _, err := w.AddFile(dir, fmt.Sprintf("file-with-a-long-name-%04d", i), 0o600,
			fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(root, time.Unix(5, 0)); err != nil {
		t.Fatal(err)
	}
	tree, err := Read(one)
	if err != nil {
		t.Fatal(err)
	}
	w, err = Extend(two, one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddFile(tree, "new", 0o644, []byte("added")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(tree, time.Unix(6, 0)); err != nil {
		t.Fatal(err)
	}
	again, err := Read(two)
	if err != nil {
		t.Fatal(err)
	}
	if n := again.Child("big"); n == nil || n != again.Child("hard") || n.Links() != 2 ||
		n.Mode != 0o640 || n.UID != 12 || n.GID != 34 ||
		!n.Mtime().Equal(time.Unix(1000, 5)) || !bytes.Equal(bytesOf(t, two, n), content) {
		t.Errorf("big = %+v", n)
	}
	if n := again.Child("link"); n == nil || n.Target != "big" {
		t.Errorf("link = %+v", n)
	}
	if n := again.Child("long"); n == nil || len(n.Target) != 4080 {
		t.Errorf("long = %+v", n)
	}
	if n := again.Child("new"); n == nil || string(bytesOf(t, two, n)) != "added" {
		t.Errorf("new = %+v", n)
	}
	kids := again.Child("dir")
	if kids == nil || kids.Mode != fs.ModeDir|fs.ModeSticky|0o700 || kids.Len() != 500 {
		t.Fatalf("dir = %+v", kids)
	}
	for i := range 500 {
		n := kids.Child(fmt.Sprintf("file-with-a-long-name-%04d", i))
		if n == nil || string(bytesOf(t, two, n)) != fmt.Sprint(i) {
			t.Fatalf("file %d = %+v", i, n)
		}
	}
}

func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func bytesOf(t *testing.T, f *os.File, n *Node) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(f, n.Data.Offset(), n.Data.Size))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
