package web

import (
	"bytes"
	"encoding/hex"
	"io"
	"path"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// add appends to the data to send.
func (c *config) add(b []byte) {
	if c.hasData {
		c.data = append(c.data, '&')
	}
	c.data = append(c.data, b...)
	c.hasData = true
}

// dataOf returns the value of -d. After an @ it is the name of a file.
func (c *curl) dataOf(v string, strip bool) ([]byte, error) {
	name, ok := strings.CutPrefix(v, "@")
	if !ok {
		return []byte(v), nil
	}
	b, err := c.file(name)
	if err != nil {
		return nil, fail(errRead, "Failed to open %s", name)
	}
	if strip {
		b = bytes.Map(func(r rune) rune {
			if r == '\n' || r == '\r' || r == 0 {
				return -1
			}
			return r
		}, b)
	}
	return b, nil
}

func (c *curl) addData(v string, strip bool) error {
	b, err := c.dataOf(v, strip)
	if err == nil {
		c.config.add(b)
	}
	return err
}

func (c *curl) addEncoded(v string) error {
	b, err := c.encoded(v)
	if err == nil {
		c.config.add(b)
	}
	return err
}

// encoded returns the value of --data-urlencode: content, =content, name=content, @file or
// name@file.
func (c *curl) encoded(v string) ([]byte, error) {
	i := strings.IndexAny(v, "=@")
	if i < 0 {
		return []byte(escape(v)), nil
	}
	name, rest := v[:i], v[i+1:]
	if v[i] == '@' {
		b, err := c.file(rest)
		if err != nil {
			return nil, fail(errRead, "Failed to open %s", rest)
		}
		rest = string(b)
	}
	if name != "" {
		name += "="
	}
	return []byte(name + escape(rest)), nil
}

// escape percent-encodes everything except letters, digits and -._~.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' || letter(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte("0123456789ABCDEF"[c>>4])
		b.WriteByte("0123456789ABCDEF"[c&15])
	}
	return b.String()
}

// multipart returns the body of -F and its content type.
func (c *curl) multipart(fields []string) ([]byte, string, error) {
	mark := make([]byte, 8)
	c.Random(mark)
	boundary := strings.Repeat("-", 24) + hex.EncodeToString(mark)
	var b bytes.Buffer
	for _, f := range fields {
		name, v, ok := strings.Cut(f, "=")
		if !ok {
			return nil, "", fail(errUsage, "Illegally formatted input field")
		}
		kind, filename := "", ""
		var content []byte
		if literal, ok := strings.CutPrefix(v, "\x00"); ok {
			content = []byte(literal)
		} else {
			parts := strings.Split(v, ";")
			v = parts[0]
			for i, p := range parts[1:] {
				key, val, _ := strings.Cut(strings.TrimSpace(p), "=")
				switch key {
				case "type":
					kind = val
				case "filename":
					filename = strings.Trim(val, `"`)
				case "headers", "encoder":
				default:
					v = strings.Join(parts[:i+2], ";")
				}
			}
			switch {
			case strings.HasPrefix(v, "@"), strings.HasPrefix(v, "<"):
				data, err := c.file(v[1:])
				if err != nil {
					return nil, "", fail(errRead, "Failed to open/read local data from file/application")
				}
				content = data
				if v[0] == '@' {
					if filename == "" {
						filename = path.Base(v[1:])
					}
					if kind == "" {
						kind = typeOf(filename)
					}
				}
			default:
				content = []byte(strings.Trim(v, `"`))
			}
		}
		b.WriteString("--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + quoteField(name) + `"`)
		if filename != "" {
			b.WriteString(`; filename="` + quoteField(filename) + `"`)
		}
		b.WriteString("\r\n")
		if kind != "" {
			b.WriteString("Content-Type: " + kind + "\r\n")
		}
		b.WriteString("\r\n")
		b.Write(content)
		b.WriteString("\r\n")
		if !c.Step(1 + len(content)>>8) {
			return nil, "", tool.ErrStop
		}
	}
	b.WriteString("--" + boundary + "--\r\n")
	return b.Bytes(), "multipart/form-data; boundary=" + boundary, nil
}

func quoteField(s string) string {
	return strings.NewReplacer(`"`, "%22", "\r", "%0D", "\n", "%0A").Replace(s)
}

// typeOf guesses a content type from a file name.
func typeOf(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".txt", ".text":
		return "text/plain"
	case ".html", ".htm":
		return "text/html"
	case ".json":
		return "application/json"
	case ".xml":
		return "application/xml"
	case ".png":
		return "image/png"
	case ".gif":
		return "image/gif"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".svg":
		return "image/svg+xml"
	case ".pdf":
		return "application/pdf"
	}
	return "application/octet-stream"
}

// paidReader pays for the bytes that are read through it.
type paidReader struct {
	c *tool.Call
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (p *paidReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	if !p.c.Step(1 + n>>9) {
		return n, tool.ErrStop
	}
	return n, err
}
