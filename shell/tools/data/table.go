package data

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// csvReader reads comma-separated values as they come: records may have any number of fields, and
// quotes only where necessary.
type csvReader struct {
	c     *tool.Call
	in    io.Reader
	buf   []byte
	pos   int
	err   error
	comma byte
}

func newCSV(c *tool.Call, in io.Reader, comma byte) *csvReader {
	return &csvReader{c: c, in: in, comma: comma}
}

const maxRecord = 16 << 20

func (r *csvReader) fill() bool {
	if r.err != nil {
		return false
	}
	if r.pos > 0 {
		r.buf = append(r.buf[:0], r.buf[r.pos:]...)
		r.pos = 0
	}
	if len(r.buf) > maxRecord {
		r.err = errors.New("record too long")
		return false
	}
	n := len(r.buf)
	if cap(r.buf)-n < 32<<10 {
		grown := make([]byte, n, 2*cap(r.buf)+64<<10)
		copy(grown, r.buf)
		if err := r.c.Pay(int64(cap(grown) - cap(r.buf))); err != nil {
			r.err = err
			return false
		}
		r.buf = grown
	}
	k, err := r.in.Read(r.buf[n:cap(r.buf)])
	r.buf, r.err = r.buf[:n+k], err
	if !r.c.Step(1 + k>>5) {
		r.err = tool.ErrStop
		return false
	}
	return k > 0
}

// read returns the next record. At the end the error is io.EOF.
func (r *csvReader) read() ([]string, error) {
	at := 0
	for { // the end of the record: a line end outside quotes
		quoted, end := false, -1
		for i := at; i < len(r.buf)-r.pos; i++ {
			switch r.buf[r.pos+i] {
			case '"':
				quoted = !quoted
			case '\n':
				if !quoted {
					end = i
				}
			}
			if end >= 0 {
				break
			}
		}
		if end >= 0 {
			line := r.buf[r.pos : r.pos+end]
			r.pos += end + 1
			line = bytes.TrimSuffix(line, []byte("\r"))
			if len(line) == 0 {
				at = 0
				continue
			}
			return r.fields(line), nil
		}
		if !r.fill() {
			if r.err != nil && r.err != io.EOF {
				return nil, r.err
			}
			line := bytes.TrimSuffix(r.buf[r.pos:], []byte("\r"))
			r.pos = len(r.buf)
			if len(line) == 0 {
				return nil, io.EOF
			}
			return r.fields(line), nil
		}
	}
}

// fields cuts a record.
func (r *csvReader) fields(line []byte) []string {
	var out []string
	for {
		if len(line) == 0 || line[0] != '"' {
			i := bytes.IndexByte(line, r.comma)
			if i < 0 {
				return append(out, string(line))
			}
			out = append(out, string(line[:i]))
			line = line[i+1:]
			continue
		}
		var b []byte
		line = line[1:]
		for {
			i := bytes.IndexByte(line, '"')
			if i < 0 {
				b = append(b, line...)
				line = nil
				break
			}
			b = append(b, line[:i]...)
			if line = line[i+1:]; len(line) == 0 || line[0] != '"' {
				break
			}
			b = append(b, '"')
			line = line[1:]
		}
		i := bytes.IndexByte(line, r.comma)
		if i < 0 {
			return append(out, string(b)+string(line))
		}
		out = append(out, string(b)+string(line[:i]))
		line = line[i+1:]
	}
}

// appendRow writes a record.
func appendRow(b []byte, row []string, comma byte) []byte {
	for i, s := range row {
		if i > 0 {
			b = append(b, comma)
		}
		if strings.IndexByte(s, comma) >= 0 || strings.ContainsAny(s, "\"\r\n") || s == "" && len(row) == 1 {
			b = append(b, '"')
			b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
			b = append(b, '"')
			continue
		}
		b = append(b, s...)
	}
	return append(b, '\n')
}
