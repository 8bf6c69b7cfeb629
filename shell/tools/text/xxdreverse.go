package text

import (
	"bufio"
	"io"

	"github.com/carrel-dev/carrel/shell/tool"
)

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// restore is -r: it converts a dump to bytes. seek moves back to an earlier offset.
func (x *xxder) restore(in io.Reader, seek func(at int64) error) error {
	if x.plain {
		return x.restorePlain(in)
	}
	have := int64(0)
	return x.c.Lines(in, '\n', func(l []byte, _ bool) error {
		at, i := int64(0), 0
		for i < len(l) && l[i] == ' ' {
			i++
		}
		digits := i
		for i < len(l) && hexValue(l[i]) >= 0 {
			at = at<<4 | int64(hexValue(l[i]))
			i++
			if at > 1<<48 {
				return nil
			}
		}
		if i == digits || i == len(l) || l[i] != ':' {
			return nil
		}
		i++
		at += x.seek
		switch {
		case at < have:
			if err := seek(at); err != nil {
				return err
			}
		case at > have:
			if err := x.zeros(at - have); err != nil {
				return err
			}
		}
		have = at
		var out []byte
		blanks := 0
		if x.bits {
			out = bitBytes(l[i:], x.cols)
		} else {
			for i < len(l) && len(out) < x.cols {
				if l[i] == ' ' || l[i] == '\t' {
					if blanks++; blanks > 1 && len(out) > 0 {
						break
					}
					i++
					continue
				}
				blanks = 0
				if i+1 >= len(l) {
					break
				}
				hi, lo := hexValue(l[i]), hexValue(l[i+1])
				if hi < 0 || lo < 0 {
					break
				}
				out = append(out, byte(hi<<4|lo))
				i += 2
			}
		}
		have += int64(len(out))
		_, err := x.w.Write(out)
		return err
	})
}

func bitBytes(l []byte, cols int) (out []byte) {
	i := 0
	for len(out) < cols {
		for i < len(l) && l[i] == ' ' {
			i++
		}
		if i+8 > len(l) {
			break
		}
		v := byte(0)
		for _, c := range l[i : i+8] {
			if c != '0' && c != '1' {
				return out
			}
			v = v<<1 | (c - '0')
		}
		out = append(out, v)
		i += 8
	}
	return out
}

// zeros fills a hole.
func (x *xxder) zeros(n int64) error {
	block := make([]byte, 4096)
	for n > 0 {
		if !x.c.Step(16) {
			return tool.ErrStop
		}
		part := block[:min(n, int64(len(block)))]
		if _, err := x.w.Write(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

// restorePlain is -r -p: it reads hexadecimal digits and ignores text between them. A line ends at
// the first pair that is not hexadecimal.
func (x *xxder) restorePlain(in io.Reader) error {
	br := bufio.NewReader(in)
	high, skip := -1, false
	for n := 0; ; n++ {
		if n&255 == 0 && !x.c.Step(256) {
			return tool.ErrStop
		}
		c, err := br.ReadByte()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		v := hexValue(c)
		switch {
		case c == '\n':
			skip = false
		case skip:
		case v < 0:
			if c != ' ' && c != '\t' && c != '\r' {
				skip = high >= 0
				high = -1
			}
		case high < 0:
			high = v
		default:
			if _, err := x.w.Write([]byte{byte(high<<4 | v)}); err != nil {
				return err
			}
			high = -1
		}
	}
}
