package eval

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
)

// sizes of the buffers of readers.
const (
	firstChunk = 8 << 10
	chunkSize  = 64 << 10
)

// reader splits a stream into records. Records are parts of a chunk. A chunk is never overwritten,
// so it lives as long as one of its records is used.
type reader struct {
	in    io.Reader
	close func() int // returns the exit status, for close and the end of the program
	buf   []byte
	r, w  int // bytes that were read but not yet returned
	eof   bool
	err   error
	paid  int64
	begun bool // paragraphs: newlines before the first one were skipped
}

// fill reads more. It returns false at the end. When the chunk is full, the rest moves to a new
// chunk.
func (rd *reader) fill(m *machine) bool {
	if rd.eof {
		return false
	}
	if rd.w == len(rd.buf) {
		size := chunkSize
		if rd.buf == nil {
			size = firstChunk
		}
		if left := rd.w - rd.r; left > maxText {
			m.fatal("record is too long: %d bytes", left)
		} else if 2*left > size {
			size = 2 * left
		}
		m.owe(int64(size) - rd.paid)
		if rd.paid = int64(size); size > chunkSize {
			m.settle()
		}
		next := make([]byte, size)
		rd.w = copy(next, rd.buf[rd.r:rd.w])
		rd.buf, rd.r = next, 0
	}
	for range 100 {
		n, err := rd.in.Read(rd.buf[rd.w:])
		rd.w += n
		m.step(1 + n>>9)
		if err != nil {
			rd.eof = true
			if !errors.Is(err, io.EOF) {
				rd.err = err
			}
		}
		if n > 0 {
			return true
		}
		if rd.eof {
			return false
		}
	}
	rd.eof, rd.err = true, io.ErrNoProgress
	return false
}

// done gives back the memory charged for the reader.
func (rd *reader) done(m *machine) {
	m.owe(-rd.paid)
	rd.paid, rd.buf, rd.eof = 0, nil, true
	rd.r, rd.w = 0, 0
}

// take returns the record of n bytes, and skips the separator after it.
func (rd *reader) take(n, sep int) (text, term string) {
	text = stringOf(rd.buf[rd.r : rd.r+n])
	term = stringOf(rd.buf[rd.r+n : rd.r+n+sep])
	rd.r += n + sep
	return text, term
}

// rest returns the remaining bytes at the end of the stream.
func (rd *reader) rest() (text, term string, ok bool) {
	if rd.r == rd.w {
		return "", "", false
	}
	text, term = rd.take(rd.w-rd.r, 0)
	return text, term, true
}

// recordMode says how records end.
type recordMode int

const (
	toByte recordMode = iota
	toExpression
	toParagraph
	toCSV
)

// read returns the next record and the text that ended it.
func (rd *reader) read(m *machine) (text, term string, ok bool) {
	switch m.rsMode {
	case toExpression:
		return rd.readExpression(m, m.rsRegex)
	case toParagraph:
		return rd.readParagraph(m)
	case toCSV:
		return rd.readCSV(m)
	}
	scanned := 0
	for {
		if i := bytes.IndexByte(rd.buf[rd.r+scanned:rd.w], m.rsByte); i >= 0 {
			text, term = rd.take(scanned+i, 1)
			return text, term, true
		}
		scanned = rd.w - rd.r
		if !rd.fill(m) {
			return rd.rest()
		}
	}
}

// readExpression reads up to a match. A match that could become longer with what is not read yet
// has to wait: it first reads more.
func (rd *reader) readExpression(m *machine, re *regex.Regexp) (text, term string, ok bool) {
	for {
		have := rd.buf[rd.r:rd.w]
		start, end := matchSome(re, have)
		m.checkRegex(re)
		if start >= 0 && (rd.eof || !re.MayGrow(have, start, end)) {
			text, term = rd.take(start, end-start)
			return text, term, true
		}
		if !rd.fillMore(m) {
			if start >= 0 {
				continue
			}
			return rd.rest()
		}
	}
}

// fillMore reads until the buffer has twice as many bytes. So searching bytes again adds little
// work. If input is slow, it waits for only one read.
func (rd *reader) fillMore(m *machine) bool {
	want := 2 * (rd.w - rd.r)
	some := false
	for rd.w-rd.r < want || !some {
		full := rd.w == len(rd.buf)
		if !rd.fill(m) {
			break
		}
		some = true
		if !full && rd.w < len(rd.buf) && want < chunkSize {
			break
		}
	}
	return some
}

// matchSome finds a match that is not empty.
func matchSome(re *regex.Regexp, b []byte) (start, end int) {
	for at := 0; at <= len(b); {
		start, end = re.FindIndex(b, at)
		if start < 0 || end > start {
			return start, end
		}
		at = start + 1
	}
	return -1, -1
}

// readParagraph reads up to empty lines. It skips empty lines before the first record.
func (rd *reader) readParagraph(m *machine) (text, term string, ok bool) {
	for !rd.begun || rd.r < rd.w && rd.buf[rd.r] == '\n' {
		for rd.r < rd.w && rd.buf[rd.r] == '\n' {
			rd.r++
		}
		if rd.r < rd.w {
			rd.begun = true
			break
		}
		if !rd.fill(m) {
			return "", "", false
		}
	}
	scanned := 0
	for {
		have := rd.buf[rd.r:rd.w]
		if i := bytes.Index(have[scanned:], []byte("\n\n")); i >= 0 {
			end := scanned + i
			stop := end
			for stop < len(have) && have[stop] == '\n' {
				stop++
			}
			if stop < len(have) || rd.eof {
				text, term = rd.take(end, stop-end)
				return text, term, true
			}
			scanned = end
		} else {
			scanned = max(len(have)-1, 0)
		}
		if !rd.fill(m) {
			break
		}
	}
	have := rd.buf[rd.r:rd.w]
	trimmed := bytes.TrimRight(have, "\n")
	if len(have) == 0 {
		return "", "", false
	}
	text, term = rd.take(len(trimmed), len(have)-len(trimmed))
	return text, term, true
}

// readCSV reads a line. Newlines between quotation marks belong to the line.
func (rd *reader) readCSV(m *machine) (text, term string, ok bool) {
	quoted := false
	for at := 0; ; {
		have := rd.buf[rd.r:rd.w]
		for ; at < len(have); at++ {
			if have[at] == '"' {
				quoted = !quoted
			} else if have[at] == '\n' && !quoted {
				text, term = rd.take(at, 1)
				if t := strings.TrimSuffix(text, "\r"); t != text {
					text, term = t, "\r\n"
				}
				return text, term, true
			}
		}
		if !rd.fill(m) {
			return rd.rest()
		}
	}
}
