package ns

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A file with holes is written in GNU's sparse form, version 1.0, so that a hole of a terabyte is not a terabyte of
// zeros. Package archive/tar reads that form and does not write it.

// piece is a part of a file that holds data.
type piece struct{ at, size int64 }

// pieces finds them.
func pieces(f *os.File, size int64) ([]piece, error) {
	var out []piece
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
		out = append(out, piece{data, min(hole, size) - data})
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
	if err := p.tw.Flush(); err != nil { // the padding of the entry before
		return err
	}
	var list strings.Builder
	var data int64
	for _, x := range parts {
		fmt.Fprintf(&list, "%d\n%d\n", x.at, x.size)
		data += x.size
	}
	// The file's end is said by an empty piece there.
	sparse := padded(fmt.Sprintf("%d\n%s%d\n0\n", len(parts)+1, list.String(), h.Size))
	records := map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": h.Name,
		"GNU.sparse.realsize": strconv.FormatInt(h.Size, 10), "size": strconv.FormatInt(int64(len(sparse))+data, 10),
		"uid": strconv.Itoa(h.Uid), "gid": strconv.Itoa(h.Gid), "mtime": paxTime(h.ModTime)}
	for k, v := range h.PAXRecords {
		records[k] = v
	}
	var pax strings.Builder
	for k, v := range records {
		pax.WriteString(paxRecord(k, v))
	}
	text := pax.String()
	out := rawHeader("PaxHeaders.0/sparse", 'x', 0o644, int64(len(text))) + padded(text) +
		rawHeader("GNUSparseFile.0/sparse", tar.TypeReg, h.Mode, 0) + sparse
	if _, err := io.WriteString(p.w, out); err != nil {
		return err
	}
	for _, x := range parts {
		if err := p.copy(p.w, f, x.at, x.size); err != nil {
			return err
		}
	}
	_, err = io.WriteString(p.w, strings.Repeat("\x00", int(-data&511)))
	return err
}

// padded fills a text up to whole blocks.
func padded(s string) string { return s + strings.Repeat("\x00", -len(s)&511) }

// paxTime is a time as PAX writes it; before 1970 the fraction counts the other way.
func paxTime(t time.Time) string {
	sec, nsec := t.Unix(), t.Nanosecond()
	if sec < 0 && nsec > 0 {
		sec, nsec = sec+1, 1e9-nsec
		if sec == 0 {
			return fmt.Sprintf("-0.%09d", nsec)
		}
	}
	return fmt.Sprintf("%d.%09d", sec, nsec)
}

// paxRecord is "LENGTH KEY=VALUE\n", the length being that of all of it.
func paxRecord(k, v string) string {
	for n := len(k) + len(v) + 3; ; {
		s := fmt.Sprintf("%d %s=%s\n", n, k, v)
		if len(s) == n {
			return s
		}
		n = len(s)
	}
}

// rawHeader is a header block. What it has no room for stands in the PAX records.
func rawHeader(name string, kind byte, mode, size int64) string {
	b := make([]byte, 512)
	copy(b, name)
	for _, f := range []struct {
		at, width int
		value     int64
	}{{100, 8, mode}, {108, 8, 0}, {116, 8, 0}, {124, 12, size}, {136, 12, 0}} {
		copy(b[f.at:], fmt.Sprintf("%0*o", f.width-1, f.value))
	}
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	copy(b[148:], "        ")
	var sum int64
	for _, c := range b {
		sum += int64(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(b)
}
