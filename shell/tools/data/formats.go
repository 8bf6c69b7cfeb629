package data

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

// readFormat reads a text in a format other than YAML and JSON.
func readFormat(c *tool.Call, format string, text []byte) (any, error) {
	if len(text) > maxYAML {
		return nil, errors.New("document too large")
	}
	if err := c.Pay(int64(len(text)) * 10); err != nil {
		return nil, err
	}
	if !c.Step(1 + len(text)>>1) {
		return nil, tool.ErrStop
	}
	switch format {
	case "csv":
		return readCSV(text, ',')
	case "tsv":
		return readCSV(text, '\t')
	case "xml":
		return readXML(text)
	case "toml":
		return readTOML(text)
	}
	return readINI(text, format == "props")
}

// guess converts a text that looks like a number or boolean.
func guess(s string) any {
	switch s {
	case "true":
		return true
	case "false":
		return false
	case "null", "~":
		return nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && strings.Trim(s, "0123456789.-eE+") == "" && !(len(s) > 1 && s[0] == '0' && s[1] != '.') {
		return f
	}
	return s
}

func readCSV(text []byte, comma rune) (any, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comma, r.FieldsPerRecord, r.LazyQuotes = comma, -1, true
	head, err := r.Read()
	if err == io.EOF {
		return []any{}, nil
	}
	if err != nil {
		return nil, err
	}
	out := []any{}
	for {
		row, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		o := jq.NewObject(len(head))
		for i, h := range head {
			if i < len(row) {
				o.Set(h, guess(row[i]))
			}
		}
		out = append(out, o)
	}
}

// readXML makes objects from elements. Attributes get "+@" before their names. Text next to child
// elements is "+content".
func readXML(text []byte) (any, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false
	type element struct {
		o    *jq.Object
		text strings.Builder
		name string
	}
	root := &element{o: jq.NewObject(1)}
	stack := []*element{root}
	for {
		t, err := d.Token()
		if err == io.EOF {
			return root.o, nil
		}
		if err != nil {
			return nil, err
		}
		top := stack[len(stack)-1]
		switch t := t.(type) {
		case xml.StartElement:
			if len(stack) > maxNodeDepth {
				return nil, errors.New("document is too deep")
			}
			e := &element{o: jq.NewObject(2), name: t.Name.Local}
			for _, a := range t.Attr {
				e.o.Set("+@"+a.Name.Local, a.Value)
			}
			stack = append(stack, e)
		case xml.CharData:
			top.text.Write(t)
		case xml.EndElement:
			if len(stack) < 2 {
				continue
			}
			stack = stack[:len(stack)-1]
			var v any = top.o
			if s := strings.TrimSpace(top.text.String()); top.o.Len() == 0 {
				if v = s; s == "" {
					v = nil
				}
			} else if s != "" {
				top.o.Set("+content", s)
			}
			up := stack[len(stack)-1].o
			old, ok := up.Get(top.name)
			list, many := old.([]any)
			switch {
			case many:
				up.Set(top.name, append(list, v))
			case ok:
				up.Set(top.name, []any{old, v})
			default:
				up.Set(top.name, v)
			}
		case xml.ProcInst:
			if t.Target == "xml" {
				root.o.Set("+p_xml", string(t.Inst))
			}
		}
	}
}

func readTOML(text []byte) (any, error) {
	var m map[string]any
	meta, err := toml.Decode(string(text), &m)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "toml: "))
	}
	order := map[string]int{}
	for i, k := range meta.Keys() {
		if _, ok := order[k.String()]; !ok {
			order[k.String()] = i
		}
	}
	return fromTOML(m, nil, order, 0), nil
}

// fromTOML converts a value from the TOML reader. Keys are in the order of the text.
func fromTOML(v any, at toml.Key, order map[string]int, depth int) any {
	if depth > maxNodeDepth {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for k := range v {
			names = append(names, k)
		}
		place := func(k string) int {
			if i, ok := order[append(at[:len(at):len(at)], k).String()]; ok {
				return i
			}
			return 1 << 30
		}
		sortNames(names, place)
		o := jq.NewObject(len(v))
		for _, k := range names {
			o.Set(k, fromTOML(v[k], append(at[:len(at):len(at)], k), order, depth+1))
		}
		return o
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = fromTOML(x, at, order, depth+1)
		}
		return out
	case []map[string]any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = fromTOML(x, at, order, depth+1)
		}
		return out
	case int64:
		if v > -1<<53 && v < 1<<53 {
			return float64(v)
		}
		return jq.Number(strconv.FormatInt(v, 10))
	case float64, bool, string:
		return v
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}

func sortNames(names []string, place func(string) int) {
	for i := 1; i < len(names); i++ {
		for j := i; j > 0; j-- {
			a, b := place(names[j-1]), place(names[j])
			if a < b || a == b && names[j-1] <= names[j] {
				break
			}
			names[j-1], names[j] = names[j], names[j-1]
		}
	}
}

// readINI reads sections of names and values. With props there are no sections, and names contain
// dots instead.
func readINI(text []byte, props bool) (any, error) {
	root := jq.NewObject(8)
	into := root
	for _, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';' || line[0] == '!':
			continue
		case line[0] == '[' && strings.HasSuffix(line, "]") && !props:
			name := line[1 : len(line)-1]
			old, _ := root.Get(name)
			if into, _ = old.(*jq.Object); into == nil {
				into = jq.NewObject(4)
				root.Set(name, into)
			}
			continue
		}
		i := strings.IndexAny(line, "=:")
		k, v := line, ""
		if i >= 0 {
			k, v = strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:])
		}
		if len(v) > 1 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] && !props {
			into.Set(k, v[1:len(v)-1])
			continue
		}
		if !props {
			into.Set(k, guess(v))
			continue
		}
		at := root
		parts := strings.Split(k, ".")
		for _, p := range parts[:min(len(parts)-1, maxNodeDepth)] {
			old, _ := at.Get(p)
			next, ok := old.(*jq.Object)
			if !ok {
				next = jq.NewObject(2)
				at.Set(p, next)
			}
			at = next
		}
		at.Set(parts[len(parts)-1], guess(v))
	}
	return root, nil
}
