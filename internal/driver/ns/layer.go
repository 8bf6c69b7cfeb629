package ns

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// A snapshot is one file: a line that names its form, a tar stream of the writable layer in the
// form of package driver, and a checksum of all that.

const (
	layerFile  = "layer"
	layerMagic = "carrel layer 1\n"
	layerBuild = "layer-1" // SnapshotInfo.Build
)

// layerWriter writes such a file.
type layerWriter struct {
	f   *os.File
	sum hash.Hash
}

// createLayer begins the file in a snapshot's directory.
func createLayer(dir string) (*layerWriter, error) {
	f, err := os.OpenFile(filepath.Join(dir, layerFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w := &layerWriter{f: f, sum: sha256.New()}
	_, err = w.Write([]byte(layerMagic))
	return w, err
}

// Write implements io.Writer.
func (w *layerWriter) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.sum.Write(b[:n])
	return n, err
}

// finish writes the sum and closes the file.
func (w *layerWriter) finish() error {
	_, err := w.f.Write(w.sum.Sum(nil))
	return errors.Join(err, w.f.Close())
}

// damaged is the error for a snapshot that has changed since it was written.
func damaged(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("the snapshot is damaged: "+format, args...)}
}

// layer is a snapshot's file, already checked. Reading it gives the tar stream.
type layer struct {
	*io.SectionReader
	f *os.File
}

// openLayer opens and checks the file of a snapshot's directory.
func openLayer(dir string) (*layer, error) {
	name := filepath.Join(dir, layerFile)
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, damaged("%w", err)
	}
	l, err := checkLayer(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

func checkLayer(f *os.File) (*layer, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, damaged("%w", err)
	}
	end := info.Size() - sha256.Size
	if !info.Mode().IsRegular() || end < int64(len(layerMagic)) {
		return nil, damaged("%s is no layer", f.Name())
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, end)); err != nil {
		return nil, damaged("%w", err)
	}
	var want [sha256.Size]byte
	head := make([]byte, len(layerMagic))
	if _, err := f.ReadAt(want[:], end); err != nil {
		return nil, damaged("%w", err)
	}
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != layerMagic || !bytes.Equal(sum.Sum(nil), want[:]) {
		return nil, damaged("%s has another sum", f.Name())
	}
	return &layer{io.NewSectionReader(f, int64(len(head)), end-int64(len(head))), f}, nil
}

// Close implements io.Closer.
func (l *layer) Close() error {
	if err := l.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
