package data

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

func xanTo(x *xan, args []string) error {
	format := args[0]
	if format == "tsv" {
		x.outComma = '\t'
		return x.each(args[1:], func() error { return x.header(x.head) }, x.put)
	}
	object := func(row []string) *jq.Object {
		o := jq.NewObject(len(x.head))
		for i, h := range x.head {
			if i < len(row) && row[i] != "" {
				o.Set(h, guess(row[i]))
			} else {
				o.Set(h, nil)
			}
		}
		return o
	}
	switch format {
	case "json":
		all := []any{}
		err := x.each(args[1:], nil, func(row []string) error { all = append(all, object(row)); return x.Pay(int64(100 * len(row))) })
		if err != nil {
			return err
		}
		x.out = append(jq.Append(x.out, all, jq.Style{Indent: "  "}), '\n')
	case "jsonl", "ndjson":
		return x.each(args[1:], nil, func(row []string) error {
			x.out = append(jq.Append(x.out, object(row), jq.Style{}), '\n')
			return x.flush()
		})
	case "txt":
		return x.each(args[1:], nil, func(row []string) error { return x.text("%s\n", strings.Join(row, " ")) })
	case "md", "markdown":
		line := func(row []string) error {
			return x.text("| %s |\n", strings.ReplaceAll(strings.Join(row, " | "), "\n", "<br>"))
		}
		return x.each(args[1:], func() error {
			if err := line(x.head); err != nil {
				return err
			}
			return line(slices.Repeat([]string{"---"}, len(x.head)))
		}, line)
	default:
		return fmt.Errorf("unknown format '%s'", format)
	}
	return nil
}

func xanFrom(x *xan, args []string) error {
	name := "-"
	if len(args) > 0 {
		name = args[0]
	}
	format := cmp.Or(x.f.Value('f', ""), strings.TrimPrefix(path.Ext(name), "."), "json")
	if format == "tsv" || format == "tab" {
		x.comma = '\t'
		return x.each(args, func() error { return x.header(x.head) }, x.put)
	}
	in, err := x.OpenIn(name)
	if err != nil {
		return fmt.Errorf("%s: %s", name, tool.ErrText(err))
	}
	text, err := x.ReadAll(in)
	_ = in.Close() // it was read
	if err != nil {
		return err
	}
	if format == "txt" {
		if err := x.put([]string{"line"}); err != nil {
			return err
		}
		for _, l := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
			if err := x.put([]string{string(l)}); err != nil {
				return err
			}
		}
		return nil
	}
	if format != "json" && format != "jsonl" && format != "ndjson" {
		return fmt.Errorf("unknown format '%s'", format)
	}
	vals, err := readJSON(x.Call, text)
	if err != nil {
		return err
	}
	if len(vals) == 1 {
		if inner, is := vals[0].([]any); is {
			vals = inner
		}
	}
	var head []string
	known := map[string]bool{}
	for _, v := range vals {
		if o, ok := v.(*jq.Object); ok {
			for i := range o.Len() {
				if k, _ := o.At(i); !known[k] {
					known[k] = true
					head = append(head, k)
				}
			}
		}
	}
	if len(head) > 0 {
		if err := x.put(head); err != nil {
			return err
		}
	}
	for _, v := range vals {
		var row []string
		switch v := v.(type) {
		case *jq.Object:
			for _, h := range head {
				e, _ := v.Get(h)
				row = append(row, plain(e))
			}
		case []any:
			for _, e := range v {
				row = append(row, plain(e))
			}
		default:
			row = []string{plain(v)}
		}
		if err := x.put(row); err != nil {
			return err
		}
	}
	return nil
}

func xanFmt(x *xan, args []string) error {
	if t := x.f.Value('t', ""); t != "" {
		if x.outComma = t[0]; t == `\t` || t == "tab" {
			x.outComma = '\t'
		}
	}
	if x.f.Has(0x80) {
		x.outComma = '\t'
	}
	write := x.put
	if x.f.Has('Q') {
		write = func(row []string) error {
			quoted := make([]string, len(row))
			for i, s := range row {
				quoted[i] = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
			}
			return x.text("%s\n", strings.Join(quoted, string(rune(x.outComma))))
		}
	}
	return x.each(args, func() error {
		if x.noHead {
			return nil
		}
		return write(x.head)
	}, write)
}
