package gvisor

import (
	"archive/tar"
	"io"
	"maps"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver/sparsetar"
)

// write writes a regular file to tw. Holes are left out. out is the writer below tw.
func (p pages) write(out io.Writer, tw *tar.Writer, h *tar.Header, c contents) error {
	h.Size = int64(c.size)
	var pieces []sparsetar.Piece
	stored := int64(0)
	for _, s := range c.segments {
		pieces = append(pieces, sparsetar.Piece{At: int64(s.start), Size: int64(s.end - s.start)})
		stored += int64(s.end - s.start)
	}
	if stored == h.Size {
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if err := p.copySegments(tw, c); err != nil {
			return err
		}
		return tw.Flush()
	}
	if err := tw.Flush(); err != nil { // the last entry's padding
		return err
	}
	// The other records describe the archive's own entry.
	h.PAXRecords = maps.Clone(h.PAXRecords)
	maps.DeleteFunc(h.PAXRecords, func(k, _ string) bool { return !strings.HasPrefix(k, "SCHILY.xattr.") })
	head, data, err := sparsetar.Head(h, pieces)
	if err != nil {
		return err
	}
	if _, err := out.Write(head); err != nil {
		return err
	}
	if err := p.copySegments(out, c); err != nil {
		return err
	}
	_, err = out.Write(make([]byte, sparsetar.Padding(data)))
	return err
}

// copySegments writes a file's data, without its holes.
func (p pages) copySegments(out io.Writer, c contents) error {
	for _, s := range c.segments {
		if err := p.copy(out, s.at, s.end-s.start); err != nil {
			return err
		}
	}
	return nil
}
