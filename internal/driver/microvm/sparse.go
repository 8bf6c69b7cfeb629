//go:build linux

package microvm

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyPiece is how much is copied between two looks at the context, in bytes.
const copyPiece = 4 << 20

// copySparse copies a file into an empty one: by sharing its blocks where the filesystem can, and
// else without its holes.
func copySparse(ctx context.Context, to, from *os.File, size int64) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return to.Truncate(size)
	}
	return copyData(ctx, to, from, size)
}

// copyData copies a file without its holes.
func copyData(ctx context.Context, to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole to the end
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		end, err := unix.Seek(int(from.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		end = min(end, size)
		for at = begin; at < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(end-at, copyPiece)
			part := io.NewSectionReader(from, at, n)
			if _, err := io.CopyBuffer(plainWriter{io.NewOffsetWriter(to, at)}, plainReader{part}, buf); err != nil {
				return err
			}
			at += n
		}
	}
	return nil
}

// dataEnd is the end of a file's last part that is no hole.
func dataEnd(f *os.File) (end int64, err error) {
	for {
		begin, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return end, nil
		}
		if err == nil {
			end, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		}
		if err != nil {
			return 0, os.NewSyscallError("lseek", err)
		}
	}
}

// plainWriter and plainReader hide other methods, so that io.CopyBuffer uses the buffer.
type (
	plainWriter struct{ io.Writer }
	plainReader struct{ io.Reader }
)
