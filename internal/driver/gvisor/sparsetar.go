package gvisor

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// blockLength is tar's unit.
const blockLength = 512

// write writes a regular file. One with holes is written in GNU's sparse form 1.0 (as
// PAX records), which every tar knows and archive/tar reads but can't write: a
// file with a hole of a terabyte is nothing in a sandbox, and must not become a
// terabyte on the way out.
func (p pages) write(out io.Writer, tw *tar.Writer, h *tar.Header, c contents) error {
	h.Size = int64(c.size)
	stored := uint64(0)
	for _, s := range c.segments {
		stored += s.end - s.start
	}
	if stored == c.size {
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		for _, s := range c.segments {
			if err := p.copy(tw, s.at, s.end-s.start); err != nil {
				return err
			}
		}
		return tw.Flush()
	}
	if err := tw.Flush(); err != nil { // the last entry's padding
		return err
	}
	list := sparseMap(c)
	body := uint64(len(list)) + stored
	if err := writeSparseHeader(out, h, body); err != nil {
		return err
	}
	if _, err := io.WriteString(out, list); err != nil {
		return err
	}
	for _, s := range c.segments {
		if err := p.copy(out, s.at, s.end-s.start); err != nil {
			return err
		}
	}
	_, err := out.Write(make([]byte, padding(body)))
	return err
}

// padding fills up to a whole block.
func padding(n uint64) int { return int(-n & (blockLength - 1)) }

// sparseMap lists the pieces that are not holes.
func sparseMap(c contents) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", len(c.segments))
	for _, s := range c.segments {
		fmt.Fprintf(&b, "%d\n%d\n", s.start, s.end-s.start)
	}
	b.Write(make([]byte, padding(uint64(b.Len()))))
	return b.String()
}

// writeSparseHeader writes the two headers of a sparse file: the records, and then a
// plain one for those who don't know them.
func writeSparseHeader(out io.Writer, h *tar.Header, body uint64) error {
	records := map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
		"GNU.sparse.name": h.Name, "GNU.sparse.realsize": strconv.FormatInt(h.Size, 10),
		"uid": strconv.Itoa(h.Uid), "gid": strconv.Itoa(h.Gid),
		"size":  strconv.FormatUint(body, 10),
		"mtime": paxTime(h.ModTime),
	}
	for k, v := range h.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") {
			records[k] = v
		}
	}
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(records)) {
		text.WriteString(paxRecord(k, records[k]))
	}
	n := uint64(text.Len())
	x := plainHeader("PaxHeaders/sparse", tar.TypeXHeader, 0o644, n)
	if _, err := out.Write(x[:]); err != nil {
		return err
	}
	text.Write(make([]byte, padding(n)))
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	name := path.Join("GNUSparseFile.0", path.Base(h.Name))
	f := plainHeader(name, tar.TypeReg, h.Mode, body)
	_, err := out.Write(f[:])
	return err
}

// paxTime is a time as seconds with a fraction.
func paxTime(t time.Time) string {
	const nano = 1_000_000_000
	s, n, sign := t.Unix(), int64(t.Nanosecond()), ""
	if s < 0 && n > 0 { // the fraction counts away from zero
		s, n = s+1, nano-n
	}
	if s <= 0 && t.Unix() < 0 {
		sign, s = "-", -s
	}
	return fmt.Sprintf("%s%d.%09d", sign, s, n)
}

// paxRecord is one record: its own length, a space, key=value, a newline.
func paxRecord(k, v string) string {
	const around = 3 // space, =, newline
	n := len(k) + len(v) + around
	n += len(strconv.Itoa(n))
	if s := strconv.Itoa(n) + " " + k + "=" + v + "\n"; len(s) == n {
		return s
	}
	return strconv.Itoa(n+1) + " " + k + "=" + v + "\n"
}

// plainHeader is a ustar header.
func plainHeader(name string, kind byte, mode int64, size uint64) (b [blockLength]byte) {
	const maxOctal = 1 << 33 // what eleven digits hold; a record has the rest
	if size >= maxOctal {
		size = 0
	}
	copy(b[:100], name)
	copy(b[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00", mode, 0, 0, size, 0))
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	copy(b[148:], "        ") // the checksum counts itself as spaces
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}
