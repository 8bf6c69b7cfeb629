package hostbase_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
)

// build makes an image of a machine in a temporary file.
func build(t testing.TB, opts hostbase.Options) (*hostbase.Base, *os.File) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := erofs.NewWriter(f)
	base, err := hostbase.Build(context.Background(), w, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(base.Root, time.Now()); err != nil {
		t.Fatal(err)
	}
	return base, f
}

func TestThisMachine(t *testing.T) {
	start := time.Now()
	base, f := build(t, hostbase.Options{})
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d MB, image %d MB in %v", base.Files, base.Bytes>>20, st.Size()>>20, time.Since(start))
	start = time.Now()
	fp, err := hostbase.Fingerprint(hostbase.Options{})
	t.Log(fp, err, time.Since(start))
}
