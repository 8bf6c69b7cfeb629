// Package sparsetar writes files with holes into tar streams. SnapshotFiles must not write a
// sandbox's hole of a terabyte as a terabyte of zeros. Package archive/tar reads such files but
// does not write them.
//
// The form is version 1.0 of the GNU tar manual, in PAX records: an extended header, a plain
// header, a list of the pieces that hold data, and those pieces, one after another.
package sparsetar

import (
	"archive/tar"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// block is tar's unit, in bytes.
const block = 512

// maxRecords is the largest extended header that readers accept, in bytes.
const maxRecords = 1 << 20

// Piece is a part of a file that holds data. GNU tar reads each piece from the start of a block. So
// every piece except the last must be whole blocks of 512 bytes, as the pieces of filesystems are.
// Package archive/tar reads pieces of any size.
type Piece struct{ At, Size int64 }

// Head returns the headers that precede a file's data. pieces are in order and do not overlap. h
// describes the file as for tar.Writer. h.Size is the size with holes. Head keeps all PAX records
// of h. data is the size of all pieces; after them the caller writes [Padding](data) zeros. The
// caller must first flush the tar.Writer of the same stream. Error: the records are more than a
// reader takes (E2BIG).
func Head(h *tar.Header, pieces []Piece) (head []byte, data int64, err error) {
	list, data := pieceList(pieces, h.Size)
	records := map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": h.Name,
		"GNU.sparse.realsize": strconv.FormatInt(h.Size, 10),
		"size":                strconv.FormatInt(int64(len(list))+data, 10),
		"uid":                 strconv.Itoa(h.Uid), "gid": strconv.Itoa(h.Gid), "mtime": timeText(h.ModTime),
	}
	maps.Copy(records, h.PAXRecords)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(records)) {
		text.WriteString(record(k, records[k]))
	}
	if text.Len() >= maxRecords {
		return nil, 0, fmt.Errorf("%s: %w", h.Name, syscall.E2BIG)
	}
	head = headerBlock("PaxHeaders.0/sparse", tar.TypeXHeader, 0o644, int64(text.Len()))
	head = pad(append(head, text.String()...))
	// Readers use the values in the records. The plain header has no room for most of them.
	head = append(head, headerBlock("GNUSparseFile.0/sparse", tar.TypeReg, h.Mode, 0)...)
	return append(head, list...), data, nil
}

// Padding is the number of zeros that fill up n bytes to whole blocks.
func Padding(n int64) int64 { return -n & (block - 1) }

func pad(b []byte) []byte { return append(b, make([]byte, Padding(int64(len(b))))...) }

// pieceList writes the list of pieces. It joins pieces that touch. An empty piece at the end gives
// the file's size.
func pieceList(pieces []Piece, size int64) (list []byte, data int64) {
	var joined []Piece
	for _, p := range pieces {
		data += p.Size
		if n := len(joined); n > 0 && joined[n-1].At+joined[n-1].Size == p.At {
			joined[n-1].Size += p.Size
			continue
		}
		joined = append(joined, p)
	}
	joined = append(joined, Piece{At: size})
	list = fmt.Appendf(list, "%d\n", len(joined))
	for _, p := range joined {
		list = fmt.Appendf(list, "%d\n%d\n", p.At, p.Size)
	}
	return pad(list), data
}

// timeText writes a time as seconds with a fraction. Before 1970 the fraction counts away from
// zero.
func timeText(t time.Time) string {
	sec, nsec, sign := t.Unix(), int64(t.Nanosecond()), ""
	if sec < 0 {
		sign, sec = "-", -sec
		if nsec > 0 {
			sec, nsec = sec-1, int64(time.Second)-nsec
		}
	}
	return fmt.Sprintf("%s%d.%09d", sign, sec, nsec)
}

// record returns one PAX record. It begins with its own length.
func record(k, v string) string {
	rest := " " + k + "=" + v + "\n"
	n := len(rest)
	for n != len(strconv.Itoa(n))+len(rest) {
		n = len(strconv.Itoa(n)) + len(rest)
	}
	return strconv.Itoa(n) + rest
}

// headerBlock returns a ustar header with no owner and no time.
func headerBlock(name string, kind byte, mode, size int64) []byte {
	b := make([]byte, block)
	copy(b, name)
	octal := func(at, width int, v int64) { copy(b[at:], fmt.Sprintf("%0*o", width-1, v)) }
	octal(100, 8, mode)
	octal(108, 8, 0)
	octal(116, 8, 0)
	octal(124, 12, size)
	octal(136, 12, 0)
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := int64(8 * ' ') // the checksum's own field counts as spaces
	for _, c := range b {
		sum += int64(c)
	}
	octal(148, 7, sum)
	b[155] = ' '
	return b
}
