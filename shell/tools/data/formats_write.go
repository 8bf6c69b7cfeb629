package data

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

// plain returns a value as text without quotes.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	if v == nil {
		return ""
	}
	return jq.Text(v)
}

// writeFormat writes a value in a format other than YAML and JSON.
func writeFormat(format string, v any) ([]byte, error) {
	var b bytes.Buffer
	switch format {
	case "csv", "tsv":
		return writeCSV(v, map[string]rune{"csv": ',', "tsv": '\t'}[format])
	case "xml":
		o, ok := v.(*jq.Object)
		if !ok {
			return []byte(plain(v) + "\n"), nil
		}
		for i := range o.Len() {
			k, x := o.At(i)
			if k == "+p_xml" {
				fmt.Fprintf(&b, "<?xml %s?>\n", plain(x))
				continue
			}
			writeXML(&b, k, x, 0)
		}
	case "props":
		writeProps(&b, "", v, 0)
	case "ini":
		o, ok := v.(*jq.Object)
		if !ok {
			return nil, errors.New("only a map can be written as ini")
		}
		for pass := range 2 {
			for i := range o.Len() {
				k, x := o.At(i)
				section, ok := x.(*jq.Object)
				switch {
				case !ok && pass == 0:
					fmt.Fprintf(&b, "%s = %s\n", k, plain(x))
				case ok && pass == 1:
					fmt.Fprintf(&b, "[%s]\n", k)
					for j := range section.Len() {
						n, val := section.At(j)
						fmt.Fprintf(&b, "%s = %s\n", n, plain(val))
					}
				}
			}
		}
	case "toml":
		o, ok := v.(*jq.Object)
		if !ok {
			return []byte(plain(v) + "\n"), nil
		}
		writeTOML(&b, o, "", 0)
	}
	return b.Bytes(), nil
}

func writeCSV(v any, comma rune) ([]byte, error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Comma = comma
	var head []string
	rows := [][]string{}
	for i, x := range list {
		switch x := x.(type) {
		case *jq.Object:
			if i == 0 {
				for k := range x.Len() {
					name, _ := x.At(k)
					head = append(head, name)
				}
				rows = append(rows, head)
			}
			row := make([]string, len(head))
			for k, name := range head {
				val, _ := x.Get(name)
				row[k] = plain(val)
			}
			rows = append(rows, row)
		case []any:
			var row []string
			for _, val := range x {
				row = append(row, plain(val))
			}
			rows = append(rows, row)
		default:
			if len(rows) == 0 {
				rows = append(rows, nil)
			}
			rows[0] = append(rows[0], plain(x))
		}
	}
	err := w.WriteAll(rows)
	return b.Bytes(), err
}

func writeXML(b *bytes.Buffer, name string, v any, depth int) {
	pad := strings.Repeat("  ", depth)
	esc := func(s string) string {
		var e bytes.Buffer
		_ = xml.EscapeText(&e, []byte(s)) // into memory
		return e.String()
	}
	if depth > 200 {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			writeXML(b, name, x, depth)
		}
	case *jq.Object:
		b.WriteString(pad + "<" + name)
		text, children := "", false
		for i := range v.Len() {
			k, x := v.At(i)
			switch {
			case strings.HasPrefix(k, "+@"):
				fmt.Fprintf(b, " %s=\"%s\"", k[2:], esc(plain(x)))
			case k == "+content":
				text = esc(plain(x))
			default:
				children = true
			}
		}
		b.WriteString(">" + text)
		if children {
			b.WriteByte('\n')
			for i := range v.Len() {
				if k, x := v.At(i); !strings.HasPrefix(k, "+") {
					writeXML(b, k, x, depth+1)
				}
			}
			b.WriteString(pad)
		}
		b.WriteString("</" + name + ">\n")
	default:
		fmt.Fprintf(b, "%s<%s>%s</%s>\n", pad, name, esc(plain(v)), name)
	}
}

func writeProps(b *bytes.Buffer, at string, v any, depth int) {
	if depth > maxNodeDepth {
		return
	}
	dot := at
	if dot != "" {
		dot += "."
	}
	switch v := v.(type) {
	case *jq.Object:
		for i := range v.Len() {
			k, x := v.At(i)
			writeProps(b, dot+k, x, depth+1)
		}
	case []any:
		for i, x := range v {
			writeProps(b, dot+strconv.Itoa(i), x, depth+1)
		}
	default:
		fmt.Fprintf(b, "%s = %s\n", at, plain(v))
	}
}

// writeTOML writes a table: first its values, then the tables in it.
func writeTOML(b *bytes.Buffer, o *jq.Object, at string, depth int) {
	if depth > 100 {
		return
	}
	key := func(k string) string {
		if k != "" && strings.Trim(k, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" {
			return k
		}
		return strconv.Quote(k)
	}
	tables := func(v any) []*jq.Object {
		list, ok := v.([]any)
		var out []*jq.Object
		for _, x := range list {
			t, is := x.(*jq.Object)
			ok = ok && is
			out = append(out, t)
		}
		if !ok {
			return nil
		}
		return out
	}
	for i := range o.Len() {
		k, v := o.At(i)
		if _, table := v.(*jq.Object); table || v == nil || len(tables(v)) > 0 {
			continue
		}
		fmt.Fprintf(b, "%s = %s\n", key(k), tomlValue(v, 0))
	}
	for i := range o.Len() {
		k, v := o.At(i)
		name := key(k)
		if at != "" {
			name = at + "." + name
		}
		if t, ok := v.(*jq.Object); ok {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "[%s]\n", name)
			writeTOML(b, t, name, depth+1)
		}
		for _, t := range tables(v) {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "[[%s]]\n", name)
			writeTOML(b, t, name, depth+1)
		}
	}
}

func tomlValue(v any, depth int) string {
	switch v := v.(type) {
	case []any:
		var parts []string
		for _, x := range v {
			if depth < 100 {
				parts = append(parts, tomlValue(x, depth+1))
			}
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case *jq.Object:
		var parts []string
		for i := range v.Len() {
			k, x := v.At(i)
			parts = append(parts, strconv.Quote(k)+" = "+tomlValue(x, depth+1))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case nil:
		return `""`
	}
	return jq.Text(v)
}
