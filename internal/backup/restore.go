package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/datadir"
)

const (
	opRestore = "restore"
	// maxDocument bounds the entries that describe the archive, in bytes.
	maxDocument = 1 << 16
	// maxEntries bounds the number of files.
	maxEntries = 50_000_000
)

// errNotWhole means that the archive ends before its last entry.
var errNotWhole = errors.New("the backup is cut off: its last entry is not there")

// Restore makes a data directory from a backup. The directory must be empty or missing. It appears
// only when the whole backup was read and is sound. Errors: Conflict (the directory is not empty),
// Invalid (not a complete backup), Internal.
func Restore(ctx context.Context, r io.Reader, dataDir string) (_ Summary, err error) {
	if entries, err := os.ReadDir(dataDir); err == nil && len(entries) > 0 {
		return Summary{}, &carrel.Error{Op: opRestore, Kind: carrel.Conflict, Field: "data-dir", Err: fmt.Errorf("%s is not empty", dataDir),
			Hint: "give a directory that does not exist yet: --data-dir DIR"}
	}
	parent := filepath.Dir(filepath.Clean(dataDir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return Summary{}, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	tmp, err := os.MkdirTemp(parent, ".carrel-restore-")
	if err != nil {
		return Summary{}, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp)
		}
	}()
	zr, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return Summary{}, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	defer zr.Close()
	x := &unpacker{dir: tmp, in: zr, tr: tar.NewReader(zr)}
	if err := x.all(ctx); err != nil {
		kind := carrel.Invalid
		if e := (*fs.PathError)(nil); errors.As(err, &e) && !crossed(err) || ctx.Err() != nil { // this machine's fault
			kind = carrel.Internal
		}
		return Summary{}, &carrel.Error{Op: opRestore, Kind: kind, Field: "backup", Err: err,
			Hint: "nothing was restored"}
	}
	if x.sum.Identity != "" { // the new directory is another one, and knows whose content it has
		if err := datadir.Restored(tmp, x.sum.Identity); err != nil {
			return Summary{}, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
		}
	}
	_ = os.Remove(dataDir) // an empty one
	if err := os.Rename(tmp, dataDir); err != nil {
		return Summary{}, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	return x.sum, atomicfile.SyncDir(parent)
}

// crossed reports whether names of an archive are in each other's way: one is there twice, or is a
// file and a directory. The directory was empty before.
func crossed(err error) bool {
	return errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}

// unpacker turns entries into files.
type unpacker struct {
	dir string
	in  io.Reader // what tr reads
	tr  *tar.Reader
	sum Summary
}

// all reads the archive.
func (x *unpacker) all(ctx context.Context) error {
	if err := x.head(); err != nil {
		return err
	}
	for {
		h, err := x.tr.Next()
		if errors.Is(err, io.EOF) {
			return errNotWhole
		}
		if err != nil {
			return fmt.Errorf("it can't be read: %w", err)
		}
		if h.Name == tailName {
			return x.tail(h)
		}
		if x.sum.Files++; x.sum.Files > maxEntries {
			return fmt.Errorf("it has more than %d files", maxEntries)
		}
		if err := x.entry(h); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// head reads the first entry.
func (x *unpacker) head() error {
	h, err := x.tr.Next()
	if err != nil || h.Name != headName {
		return errors.New("it is no backup of Carrel's")
	}
	if err := x.document(h, &x.sum.Head); err != nil {
		return err
	}
	if x.sum.Form != formVersion {
		return fmt.Errorf("it has the form %d; this build reads form %d", x.sum.Form, formVersion)
	}
	return nil
}

// tail reads the last entry, and checks that the archive ends after it.
func (x *unpacker) tail(h *tar.Header) error {
	var t tail
	if err := x.document(h, &t); err != nil {
		return err
	}
	if t.Files != x.sum.Files || t.Bytes != x.sum.Bytes {
		return fmt.Errorf("it should have %d files of %d bytes and has %d of %d", t.Files, t.Bytes, x.sum.Files, x.sum.Bytes)
	}
	if _, err := x.tr.Next(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its last entry")
	}
	// zstd compares its checksum when it reads the end.
	n, err := io.Copy(io.Discard, x.in)
	if err == nil && n > 0 {
		err = errors.New("something follows its end")
	}
	return err
}

func (x *unpacker) document(h *tar.Header, v any) error {
	if h.Size > maxDocument {
		return fmt.Errorf("entry %s is too long", h.Name)
	}
	raw, err := io.ReadAll(x.tr)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return fmt.Errorf("entry %s: %w", h.Name, err)
	}
	return nil
}

// entry makes one file.
func (x *unpacker) entry(h *tar.Header) error {
	if !filepath.IsLocal(h.Name) || filepath.Clean(h.Name) != h.Name {
		return fmt.Errorf("entry %q: no name for a file of a data directory", h.Name)
	}
	name := filepath.Join(x.dir, h.Name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return x.file(name, h)
	case tar.TypeLink:
		if !filepath.IsLocal(h.Linkname) {
			return fmt.Errorf("entry %q: a link to %q", h.Name, h.Linkname)
		}
		return os.Link(filepath.Join(x.dir, h.Linkname), name)
	}
	return fmt.Errorf("entry %q: neither a file nor a link", h.Name)
}

// file writes a file. Long runs of zeros become holes, because most of them were holes before.
func (x *unpacker) file(name string, h *tar.Header) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := copySparse(f, x.tr)
	x.sum.Bytes += n
	if err == nil {
		err = f.Truncate(n)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode).Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("entry %s: %w", h.Name, err)
	}
	return os.Chtimes(name, time.Time{}, h.ModTime)
}

// zeros is a block of zeros.
var zeros = make([]byte, 64<<10)

// copySparse copies, and skips blocks of zeros.
func copySparse(f *os.File, r io.Reader) (n int64, err error) {
	buf := make([]byte, len(zeros))
	for {
		got, err := io.ReadFull(r, buf)
		if got > 0 && !bytes.Equal(buf[:got], zeros[:got]) {
			if _, err := f.WriteAt(buf[:got], n); err != nil {
				return n, err
			}
		}
		n += int64(got)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && got < len(buf) {
			// ReadFull returns ErrUnexpectedEOF for a short last block, and tar for a cut-off
			// archive. The entry's own reader tells which it is.
			if _, more := r.Read(make([]byte, 1)); more != nil && !errors.Is(more, io.EOF) {
				return n, more
			}
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
