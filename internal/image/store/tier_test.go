package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// TestNeededTier imports trees that name a first process, or seem to.
func TestNeededTier(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Options{Dir: dir})
	for _, c := range []struct {
		name string
		make func(root string) error
		want carrel.Tier
	}{
		{"none", func(string) error { return nil }, ""},
		{"systemd", func(root string) error { return os.WriteFile(filepath.Join(root, "init"), []byte("systemd\n"), 0o644) }, carrel.MicroVM},
		{"unknown", func(root string) error { return os.WriteFile(filepath.Join(root, "init"), []byte("runit"), 0o644) }, carrel.MicroVM},
		{"empty", func(root string) error { return os.WriteFile(filepath.Join(root, "init"), []byte("\n"), 0o644) }, ""},
		{"directory", func(root string) error { return os.Mkdir(filepath.Join(root, "init"), 0o755) }, ""},
	} {
		root := t.TempDir()
		at := filepath.Join(root, "etc/carrel")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := c.make(at); err != nil {
			t.Fatal(err)
		}
		img, err := s.ImportDir(t.Context(), c.name, root, nil)
		if err != nil || img.Tier != c.want {
			t.Errorf("%s: tier %q, %v", c.name, img.Tier, err)
		}
	}
	// The next store knows it, too.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, store.Options{Dir: dir})
	all, err := again.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]carrel.Tier{}
	for _, img := range all {
		found[img.Name] = img.Tier
	}
	if found["systemd"] != carrel.MicroVM || found["none"] != "" {
		t.Errorf("after a restart: %v", found)
	}
}
