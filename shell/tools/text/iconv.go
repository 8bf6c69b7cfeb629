package text

import (
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// charset normalizes the name of an encoding. It returns "" for an unknown one.
func charset(name string) string {
	name, _, _ = strings.Cut(strings.ToUpper(name), "//")
	switch strings.NewReplacer("-", "", "_", "").Replace(name) {
	case "UTF8", "":
		return "utf8"
	case "UTF16":
		return "utf16"
	case "UTF16LE", "UCS2LE":
		return "utf16le"
	case "UTF16BE", "UCS2BE":
		return "utf16be"
	case "UTF32":
		return "utf32"
	case "UTF32LE", "UCS4LE":
		return "utf32le"
	case "UTF32BE", "UCS4BE", "UCS4":
		return "utf32be"
	case "ISO88591", "LATIN1", "L1", "8859", "ISO8859":
		return "latin1"
	case "ASCII", "USASCII", "ANSIX3.41968", "646":
		return "ascii"
	case "WINDOWS1252", "CP1252":
		return "cp1252"
	}
	return ""
}

// high1252 are the characters of Windows-1252 from 0x80 to 0x9f.
var high1252 = []rune{0x20ac, -1, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039, 0x152, -1, 0x17d, -1, -1, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc, 0x2122, 0x161, 0x203a, 0x153, -1, 0x17e, 0x178}

// decodeRune reads one character. n is 0 for an incomplete one, and r is -1 for an invalid one.
func decodeRune(b []byte, from string) (r rune, n int) {
	switch from {
	case "utf8":
		r, n = utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			if !utf8.FullRune(b) {
				return -1, 0
			}
			return -1, 1
		}
		return r, n
	case "utf16le", "utf16be":
		var order binary.ByteOrder = binary.LittleEndian
		if from == "utf16be" {
			order = binary.BigEndian
		}
		if len(b) < 2 {
			return -1, 0
		}
		r = rune(order.Uint16(b))
		if !utf16.IsSurrogate(r) {
			return r, 2
		}
		if len(b) < 4 {
			return -1, 0
		}
		if r = utf16.DecodeRune(r, rune(order.Uint16(b[2:]))); r == utf8.RuneError {
			return -1, 2
		}
		return r, 4
	case "utf32le", "utf32be":
		if len(b) < 4 {
			return -1, 0
		}
		v := binary.LittleEndian.Uint32(b)
		if from == "utf32be" {
			v = binary.BigEndian.Uint32(b)
		}
		if v > 0x10ffff {
			return -1, 4
		}
		return rune(v), 4
	case "ascii":
		if b[0] >= 0x80 {
			return -1, 1
		}
	case "cp1252":
		if b[0] >= 0x80 && b[0] < 0xa0 {
			return high1252[b[0]-0x80], 1
		}
	}
	return rune(b[0]), 1
}

// encodeRune appends a character. ok is false when the encoding does not have it.
func encodeRune(out []byte, r rune, to string) ([]byte, bool) {
	switch to {
	case "utf8":
		return utf8.AppendRune(out, r), true
	case "utf16le", "utf16be":
		for _, u := range utf16.AppendRune(nil, r) {
			if to == "utf16le" {
				out = binary.LittleEndian.AppendUint16(out, u)
			} else {
				out = binary.BigEndian.AppendUint16(out, u)
			}
		}
		return out, true
	case "utf32le":
		return binary.LittleEndian.AppendUint32(out, uint32(r)), true
	case "utf32be":
		return binary.BigEndian.AppendUint32(out, uint32(r)), true
	case "ascii":
		return append(out, byte(r)), r < 0x80
	case "cp1252":
		for i, h := range high1252 {
			if h == r && r > 0 {
				return append(out, byte(0x80+i)), true
			}
		}
	}
	return append(out, byte(r)), r < 0x100
}

func iconv(c *tool.Call) int {
	f, ok := c.Flags("cf:lo:st:\x81", "from-code=f", "list=l", "output=o", "silent=s", "to-code=t", "verbose=\x81")
	if !ok {
		return 64
	}
	if f.Has('l') {
		_, err := io.WriteString(c.Out, "ASCII//\nCP1252//\nISO-8859-1//\nLATIN1//\nUTF-8//\nUTF-16//\nUTF-16BE//\nUTF-16LE//\nUTF-32//\nUTF-32BE//\nUTF-32LE//\n")
		return boolInt(err != nil)
	}
	from, to := charset(f.Value('f', "")), charset(f.Value('t', ""))
	for name, set := range map[string]string{f.Value('f', ""): from, f.Value('t', ""): to} {
		if set == "" {
			return c.Errorf(1, "conversion from or to unsupported encoding `%s'", name)
		}
	}
	suffix := strings.ToUpper(f.Value('t', ""))
	skip, approximate := f.Has('c') || strings.Contains(suffix, "//IGNORE"), strings.Contains(suffix, "//TRANSLIT")
	w := c.Buffered()
	if o := f.Value('o', ""); o != "" {
		file, err := c.Open(o, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return c.Errorf(1, "cannot open output file: %s", tool.ErrText(err))
		}
		defer func() { _ = file.Close() }() // the flush reports
		w.Reset(file)
	}
	begin := to == "utf16" || to == "utf32"
	bad := false
	status := usage.Inputs(c, f.Args, "cannot open input file `%s'", 1, func(_ string, in io.Reader) error {
		purse := usage.NewPurse(c)
		defer purse.Free()
		data, err := purse.ReadAll(in)
		if err != nil {
			return err
		}
		src := from
		if src == "utf16" || src == "utf32" {
			width := map[string]int{"utf16": 2, "utf32": 4}[src]
			big := len(data) >= width && data[width-2] == 0xfe && data[width-1] == 0xff
			if big || len(data) >= width && data[0] == 0xff && data[1] == 0xfe {
				data = data[width:]
			}
			src += map[bool]string{true: "be", false: "le"}[big]
		}
		dst := to
		if to == "utf16" || to == "utf32" {
			dst += "le"
		}
		var out []byte
		if begin && len(data) > 0 {
			out, _ = encodeRune(out, 0xfeff, dst)
			begin = false
		}
		for at := 0; at < len(data); {
			r, n := decodeRune(data[at:], src)
			if n == 0 {
				bad = true
				c.Errorf(1, "incomplete character or shift sequence at end of buffer")
				break
			}
			next, fine := out, false
			if r >= 0 {
				next, fine = encodeRune(out, r, dst)
			}
			switch {
			case fine:
				out = next
			case approximate && r >= 0:
				out = append(out, '?')
			case skip:
			default:
				bad = true
				_, _ = w.Write(out) // the flush reports
				c.Errorf(1, "illegal input sequence at position %d", at)
				return usage.ErrEnd
			}
			if at += n; len(out) > 32<<10 {
				if _, err := w.Write(out); err != nil {
					return err
				}
				if out = out[:0]; !c.Step(1024) {
					return tool.ErrStop
				}
			}
		}
		_, err = w.Write(out)
		return err
	})
	if bad {
		status = 1
	}
	return c.Flush(w, status)
}
