package text

import (
	"bufio"
	"errors"
	"io"

	"github.com/carrel-dev/carrel/shell/tool"
)

// puller reads lines one at a time, for programs that read several inputs in parallel.
type puller struct {
	c    *tool.Call
	br   *bufio.Reader
	end  byte
	long []byte
	n    int
}

func newPuller(c *tool.Call, in io.Reader, end byte) *puller {
	return &puller{c: c, br: bufio.NewReaderSize(in, 32<<10), end: end}
}

// next returns a line without its end, and whether it had an end. The line is valid until the next
// call. The error is io.EOF after the last line.
func (p *puller) next() (line []byte, whole bool, err error) {
	if p.n++; p.n&63 == 0 && !p.c.Step(64) {
		return nil, false, tool.ErrStop
	}
	p.long = p.long[:0]
	for {
		part, err := p.br.ReadSlice(p.end)
		if err == bufio.ErrBufferFull {
			p.long = append(p.long, part...)
			if len(p.long) > tool.MaxLine {
				return nil, false, errors.New("line too long")
			}
			if !p.c.Step(len(part) >> 6) {
				return nil, false, tool.ErrStop
			}
			continue
		}
		line = part
		if len(p.long) > 0 {
			p.long = append(p.long, part...)
			line = p.long
		}
		if err != nil && (err != io.EOF || len(line) == 0) {
			return nil, false, err
		}
		if n := len(line); n > 0 && line[n-1] == p.end {
			return line[:n-1], true, nil
		}
		return line, false, nil
	}
}
