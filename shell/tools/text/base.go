package text

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// codec is an encoding for base64, base32 and basenc.
type codec struct {
	in, out  int // bytes of a group, and characters of its encoding
	encode   func(dst, src []byte)
	decode   func(dst, src []byte) (int, error)
	alphabet string
	pad      bool
}

const (
	std64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	url64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	std32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	hex32 = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
)

var codecs = map[string]codec{
	"base64":    {3, 4, base64.StdEncoding.Encode, base64.StdEncoding.Decode, std64, true},
	"base64url": {3, 4, base64.URLEncoding.Encode, base64.URLEncoding.Decode, url64, true},
	"base32":    {5, 8, base32.StdEncoding.Encode, base32.StdEncoding.Decode, std32, true},
	"base32hex": {5, 8, base32.HexEncoding.Encode, base32.HexEncoding.Decode, hex32, true},
	"base16":    {1, 2, func(d, s []byte) { copy(d, bytes.ToUpper(hex.AppendEncode(nil, s))) }, hex.Decode, "0123456789ABCDEF", false},
	"base2msbf": {1, 8, func(d, s []byte) { encodeBits(d, s, 7, -1) }, func(d, s []byte) (int, error) { return decodeBits(d, s, 7, -1) }, "01", false},
	"base2lsbf": {1, 8, func(d, s []byte) { encodeBits(d, s, 0, 1) }, func(d, s []byte) (int, error) { return decodeBits(d, s, 0, 1) }, "01", false},
}

func encodeBits(d, s []byte, first, dir int) {
	for i, c := range s {
		for k := range 8 {
			d[8*i+k] = '0' + c>>(first+dir*k)&1
		}
	}
}

func decodeBits(d, s []byte, first, dir int) (int, error) {
	n := 0
	for ; len(s) >= 8; s = s[8:] {
		var c byte
		for k := range 8 {
			c |= (s[k] - '0') << (first + dir*k)
		}
		d[n] = c
		n++
	}
	if len(s) > 0 {
		return n, errInvalid
	}
	return n, nil
}

var errInvalid = errors.New("invalid input")

func baseCommand(kind string) tool.Command {
	return func(c *tool.Call) int {
		long := []string{"decode=d", "ignore-garbage=i", "wrap=w"}
		short := "diw:"
		if kind == "" {
			for name := range codecs {
				long = append(long, name+"=\x81")
			}
			long = append(long, "z85=\x82")
			short += "\x81\x82"
		}
		f, ok := c.Flags(short, long...)
		if !ok {
			return 1
		}
		name := kind
		for _, o := range f.All {
			switch o.Letter {
			case '\x81':
				name = o.Long
			case '\x82':
				return c.Errorf(1, "z85 is not supported here")
			}
		}
		if name == "" {
			c.Errorf(1, "missing encoding type")
			return usage.Try(c, 1)
		}
		wrap, err := atoi(f.Value('w', "76"))
		if err != nil {
			return c.Errorf(1, "invalid wrap size: ‘%s’", f.Value('w', ""))
		}
		if len(f.Args) > 1 {
			return usage.Extra(c, 1, f.Args[1])
		}
		w := c.Buffered()
		k := codecs[name]
		status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
			if f.Has('d') {
				err := k.decodeAll(c, w, in, f.Has('i'))
				if errors.Is(err, errInvalid) {
					_ = w.Flush() // writes the valid part; the error is reported
					c.Errorf(1, "invalid input")
					return tool.ErrStop
				}
				return err
			}
			return k.encodeAll(c, w, in, wrap)
		})
		return c.Flush(w, status)
	}
}

func (k codec) encodeAll(c *tool.Call, w io.Writer, in io.Reader, wrap int) error {
	buf := make([]byte, 15<<10)
	out := make([]byte, len(buf)/k.in*k.out)
	col := 0
	for {
		n, err := io.ReadFull(in, buf)
		if !c.Step(1 + n>>6) {
			return tool.ErrStop
		}
		size := (n + k.in - 1) / k.in * k.out
		k.encode(out, buf[:n])
		text := out[:size]
		for wrap > 0 && len(text) > 0 {
			take := min(wrap-col, len(text))
			if _, werr := w.Write(text[:take]); werr != nil {
				return werr
			}
			if col, text = col+take, text[take:]; col == wrap {
				if _, werr := w.Write(newline); werr != nil {
					return werr
				}
				col = 0
			}
		}
		if _, werr := w.Write(text); werr != nil {
			return werr
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			if col > 0 {
				_, err = w.Write(newline)
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// decodeAll decodes group by group, so that the text before an error is written.
func (k codec) decodeAll(c *tool.Call, w io.Writer, in io.Reader, garbage bool) error {
	var good [256]bool
	for i := range len(k.alphabet) {
		good[k.alphabet[i]] = true
		if k.alphabet == "0123456789ABCDEF" {
			good[strings.ToLower(k.alphabet)[i]] = true
		}
	}
	if k.pad {
		good['='] = true
	}
	buf := make([]byte, 16<<10)
	var rest, out []byte
	for {
		n, err := in.Read(buf)
		if !c.Step(1 + n>>6) {
			return tool.ErrStop
		}
		bad := false
		for _, b := range buf[:n] {
			if good[b] {
				rest = append(rest, b)
			} else if !garbage && b != '\n' {
				bad = true
				break
			}
		}
		whole := len(rest) / k.out * k.out
		if out, bad = k.groups(out[:0], rest[:whole], bad); len(out) > 0 {
			if _, werr := w.Write(out); werr != nil {
				return werr
			}
		}
		if bad {
			return errInvalid
		}
		rest = append(rest[:0], rest[whole:]...)
		if err == io.EOF {
			if len(rest) > 0 {
				return k.tail(w, rest)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// groups decodes complete groups. Padding may end a group anywhere. Another text then follows.
func (k codec) groups(out, text []byte, bad bool) ([]byte, bool) {
	if len(text) == 0 {
		return out, bad
	}
	if bytes.IndexByte(text, '=') < 0 {
		at := len(out)
		out = append(out, make([]byte, len(text)/k.out*k.in)...)
		n, err := k.decode(out[at:], text)
		return out[:at+n], bad || err != nil
	}
	for ; len(text) > 0; text = text[k.out:] {
		var d [8]byte
		n, err := k.decode(d[:], text[:k.out])
		out = append(out, d[:n]...)
		if err != nil {
			return k.partial(out, text[:k.out]), true
		}
	}
	return out, bad
}

// partial decodes the part of a bad group before the padding.
func (k codec) partial(out, text []byte) []byte {
	if k.in != 3 {
		return out
	}
	text = bytes.TrimRight(text, "=")
	if i := bytes.IndexByte(text, '='); i >= 0 {
		text = text[:i]
	}
	for len(text) < 4 {
		text = append(bytes.Clone(text), 'A')
		if len(text) == 4 {
			return out
		}
	}
	return out
}

// tail handles an incomplete group at the end. It writes the decoded part and returns an error.
func (k codec) tail(w io.Writer, rest []byte) error {
	if rest = bytes.TrimRight(rest, "="); k.in == 3 && len(rest) >= 2 && bytes.IndexByte(rest, '=') < 0 {
		full := append(bytes.Clone(rest), "AA"[:4-len(rest)]...)
		var d [3]byte
		if n, err := k.decode(d[:], full); err == nil && n == 3 {
			if _, werr := w.Write(d[:len(rest)-1]); werr != nil {
				return werr
			}
		}
	}
	return errInvalid
}
