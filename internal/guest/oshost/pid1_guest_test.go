package oshost

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGuestCommand shows that the guest is on the PATH, unless the image has a file of that name.
func TestGuestCommand(t *testing.T) {
	root := t.TempDir()
	link := filepath.Join(root, "usr/local/bin/carrel-guest")
	if err := makeGuestCommand(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(link); err == nil {
		t.Error("a link to nothing was made")
	}
	if err := os.MkdirAll(filepath.Join(root, ".carrel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ownGuest), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := makeGuestCommand(root); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(link); err != nil || to != ownGuest {
			t.Error(to, err)
		}
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(link, []byte("mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := makeGuestCommand(root); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(link); string(data) != "mine" {
		t.Error("the image's own was replaced")
	}
}
