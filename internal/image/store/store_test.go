package store_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel/internal/image/store"
)

func open(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = filepath.Join(t.TempDir(), "templates")
	}
	s, err := store.Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestTmp(t *testing.T) {
	s := open(t, store.Options{CacheDir: "/tmp/imgt/cache"})
	img, err := s.Get(context.Background(), "base")
	t.Log(img, err)
}
