package fulldisk

import (
	"archive/tar"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestBigImport imports a template that is larger than the disk. The import is refused before the
// disk is full, and leaves nothing.
func TestBigImport(t *testing.T) {
	t.Parallel()
	dir := disk(t, 640)
	d := daemontest.StartOn(t, dir, miniroot.Archive(t))
	svc := connect(t, d)
	before := left(t, dir)
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		const size = 1 << 30
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Mode: 0o644, Size: size})
		if err == nil {
			_, err = io.CopyN(tw, rand.NewChaCha8([32]byte{1}), size)
		}
		_ = w.CloseWithError(err)
	}()
	low := lowest(t, dir)
	_, err := svc.ImportTemplate(t.Context(), "big", r, nil)
	_ = r.Close()
	if err == nil {
		t.Fatal("an import without room succeeded")
	}
	checkFull(t, err)
	if got := low(); got < 4<<20 {
		t.Errorf("the import left %d bytes of %d for a moment", got, before)
	}
	if got := left(t, dir); got < before-8<<20 {
		t.Errorf("%d bytes are left of %d", got, before)
	}
	if _, err := svc.Create(t.Context(), options(carrel.GVisor)); err != nil {
		t.Error(err)
	}
}
