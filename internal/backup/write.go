package backup

import (
	"archive/tar"
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
	"github.com/carrel-dev/carrel/internal/datadir"
	"github.com/carrel-dev/carrel/internal/version"
)

// Write writes a backup of a data directory to w. The directory's daemon may run. Write changes
// nothing in the directory except for a stage, which it removes at the end. If it is killed, the
// next backup removes the stage. Errors: NotFound (no data directory), Conflict (a record's content
// is missing), Internal.
func Write(ctx context.Context, dataDir string, w io.Writer) (Summary, error) {
	s, undo, err := newStage(ctx, dataDir)
	if err != nil {
		return Summary{}, err
	}
	defer undo()
	host, _ := os.Hostname()
	sum := Summary{Head: Head{Form: formVersion, Created: time.Now().UTC().Round(time.Second), Host: host, Build: version.Version}, Snapshots: len(s.snaps)}
	if own, err := datadir.Read(dataDir); err == nil {
		sum.Identity = own.ID
	}
	for _, rec := range s.records {
		switch rec.Sandbox.State {
		case carrel.Paused:
			sum.Paused++
		case carrel.Running:
			sum.Running++
		}
	}
	if err := writeArchive(ctx, s.dir, w, &sum); err != nil {
		return Summary{}, &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	return sum, nil
}

// writeArchive writes all files below dir and counts them.
func writeArchive(ctx context.Context, dir string, w io.Writer, sum *Summary) error {
	zw, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	a := &archiver{tw: tar.NewWriter(zw), sum: sum, seen: map[uint64]string{}}
	err = a.document(headName, sum.Head)
	if err == nil {
		err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return errors.Join(err, ctx.Err())
			}
			rel, err := filepath.Rel(dir, name)
			if err != nil {
				return err
			}
			if err := a.file(name, filepath.ToSlash(rel)); err != nil {
				return fmt.Errorf("%s: %w", rel, err)
			}
			return ctx.Err()
		})
	}
	if err == nil {
		err = a.document(tailName, tail{sum.Files, sum.Bytes})
	}
	return errors.Join(err, a.tw.Close(), zw.Close())
}

// archiver writes entries.
type archiver struct {
	tw   *tar.Writer
	sum  *Summary
	seen map[uint64]string // by inode number: the entry of a file with several names
}

// document writes one of the entries that describe the archive.
func (a *archiver) document(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := a.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(raw)), ModTime: a.sum.Created}); err != nil {
		return err
	}
	_, err = a.tw.Write(raw)
	return err
}

// file writes one file. If the file was already written under another name, it writes a link to
// that name.
func (a *archiver) file(name, entry string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: entry, Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: info.ModTime(), Format: tar.FormatPAX}
	a.sum.Files++
	st := info.Sys().(*syscall.Stat_t)
	if first, ok := a.seen[st.Ino]; ok {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return a.tw.WriteHeader(h)
	}
	a.seen[st.Ino] = entry
	if err := a.tw.WriteHeader(h); err != nil {
		return err
	}
	// Logs grow while they are read: take their present size.
	n, err := io.CopyN(a.tw, f, h.Size)
	a.sum.Bytes += n
	return err
}
