package jq

import (
	"encoding/base32"
	"encoding/base64"
	"math"
	"strings"
	"unicode/utf8"
)

// formats are the @names.
var formats = map[string]func(m *vm, v any) (string, error){
	"@text": toText,
	"@json": (*vm).json,
	"@html": escaper(strings.NewReplacer("<", "&lt;", ">", "&gt;", "&", "&amp;", "'", "&apos;", `"`, "&quot;").Replace),
	"@uri":  escaper(percent),
	"@urid": func(m *vm, v any) (string, error) { return m.changed(v, unpercent) },
	"@csv": row("csv", ",", func(s string) string {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}),
	"@tsv":     row("tsv", "\t", strings.NewReplacer("\t", `\t`, "\n", `\n`, "\r", `\r`, `\`, `\\`).Replace),
	"@sh":      shell,
	"@base64":  escaper(func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }),
	"@base64d": unbase64,
	"@base32":  escaper(func(s string) string { return base32.StdEncoding.EncodeToString([]byte(s)) }),
	"@base32d": func(m *vm, v any) (string, error) {
		return m.changed(v, func(s string) (string, error) {
			b, err := base32.StdEncoding.DecodeString(s)
			if err != nil {
				return "", errorf("%s is not valid base32 data", described(v))
			}
			return strings.ToValidUTF8(string(b), "\ufffd"), nil
		})
	},
}

// json is a value as JSON.
func (m *vm) json(v any) (string, error) { return m.text(v) }

// toText returns a value as text: a string unchanged, any other value as JSON.
func toText(m *vm, v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return m.text(v)
}

// changed applies a function to a value's text.
func (m *vm) changed(v any, f func(string) (string, error)) (string, error) {
	s, err := toText(m, v)
	if err == nil {
		s, err = f(s)
	}
	return s, err
}

func escaper(f func(string) string) func(*vm, any) (string, error) {
	return func(m *vm, v any) (string, error) {
		return m.changed(v, func(s string) (string, error) { return f(s), nil })
	}
}

func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte("0123456789ABCDEF"[c>>4])
		b.WriteByte("0123456789ABCDEF"[c&15])
	}
	return b.String()
}

func unpercent(s string) (string, error) {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) || strings.IndexByte(hexDigits, s[i+1]|0x20) < 0 || strings.IndexByte(hexDigits, s[i+2]|0x20) < 0 {
			return "", errorf("%s is not a valid uri encoding", described(s))
		}
		b = append(b, byte(strings.IndexByte(hexDigits, s[i+1]|0x20)<<4|strings.IndexByte(hexDigits, s[i+2]|0x20)))
		i += 2
	}
	if !utf8.Valid(b) {
		return "", errorf("%s is not a valid uri encoding", described(s))
	}
	return string(b), nil
}

// row is a line of a table.
func row(name, sep string, quote func(string) string) func(*vm, any) (string, error) {
	return func(_ *vm, v any) (string, error) {
		list, ok := v.([]any)
		if !ok {
			return "", errorf("%s cannot be %s-formatted, only an array can be", described(v), name)
		}
		var b strings.Builder
		for i, x := range list {
			if i > 0 {
				b.WriteString(sep)
			}
			switch x := x.(type) {
			case nil:
			case bool, Number:
				b.WriteString(Text(x))
			case float64:
				if !math.IsNaN(x) {
					b.WriteString(Text(x))
				}
			case string:
				b.WriteString(quote(x))
			default:
				return "", errorf("%s is not valid in a csv row", described(x))
			}
		}
		return b.String(), nil
	}
}

func shell(_ *vm, v any) (string, error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var b strings.Builder
	for i, x := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		switch x := x.(type) {
		case []any, *Object:
			return "", errorf("%s can not be escaped for shell", described(x))
		case string:
			b.WriteString("'" + strings.ReplaceAll(x, "'", `'\''`) + "'")
		default:
			b.WriteString(Text(x))
		}
	}
	return b.String(), nil
}

func unbase64(m *vm, v any) (string, error) {
	s, err := toText(m, v)
	if err != nil {
		return "", err
	}
	s = strings.TrimRight(s, "=")
	if len(s)%4 == 1 {
		return "", errorf("%s trailing base64 byte found", described(v))
	}
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil && len(b) == 0 && s != "" {
		return "", errorf("%s is not valid base64 data", described(v))
	}
	return strings.ToValidUTF8(string(b), "\ufffd"), nil
}
