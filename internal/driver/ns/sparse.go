package ns

import (
	"archive/tar"
	"errors"
	"os"

	"github.com/carrel-dev/carrel/internal/driver/sparsetar"
	"golang.org/x/sys/unix"
)

// pieces finds the parts of a file that hold data.
func pieces(f *os.File, size int64) ([]sparsetar.Piece, error) {
	var out []sparsetar.Piece
	fd := int(f.Fd())
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		out = append(out, sparsetar.Piece{At: data, Size: min(hole, size) - data})
		at = hole
	}
	return out, nil
}

// sparse writes a file with holes.
func (p *packer) sparse(f *os.File, h *tar.Header) error {
	parts, err := pieces(f, h.Size)
	if err != nil {
		return err
	}
	if err := p.tw.Flush(); err != nil { // writes the padding of the previous entry
		return err
	}
	head, data, err := sparsetar.Head(h, parts)
	if err != nil {
		return err
	}
	if _, err := p.w.Write(head); err != nil {
		return err
	}
	for _, x := range parts {
		if err := p.copy(p.w, f, x.At, x.Size); err != nil {
			return err
		}
	}
	_, err = p.w.Write(make([]byte, sparsetar.Padding(data)))
	return err
}
