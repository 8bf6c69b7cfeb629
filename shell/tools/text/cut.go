package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// span is a range of positions from 1. Both ends are included.
type span struct{ from, to int }

// parseSpans reads 1,3-5,7- and returns sorted spans that don't overlap. what is "byte/character"
// or "field".
func parseSpans(list, what string) ([]span, error) {
	var out []span
	zero := errors.New("byte/character positions are numbered from 1")
	if what == "field" {
		zero = errors.New("fields are numbered from 1")
	}
	for p := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		a, b, isRange := strings.Cut(p, "-")
		s := span{1, math.MaxInt}
		var err error
		if isRange && a == "" && b == "" {
			return nil, errors.New("invalid range with no endpoint: -")
		}
		if a != "" {
			if s.from, err = atoi(a); err == nil && s.from == 0 {
				return nil, zero
			}
		}
		if err == nil && !isRange {
			s.to = s.from
		} else if err == nil && b != "" {
			s.to, err = atoi(b)
		}
		if err != nil {
			word := "field"
			if what != "field" {
				word = "byte/character position"
			}
			if isRange {
				return nil, fmt.Errorf("invalid %s range", strings.TrimSuffix(word, " position"))
			}
			return nil, fmt.Errorf("invalid %s value ‘%s’", word, p)
		}
		if s.to < s.from {
			if s.to == 0 && b != "" {
				return nil, errors.New("invalid decreasing range")
			}
			return nil, errors.New("invalid decreasing range")
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, zero
	}
	slices.SortFunc(out, func(a, b span) int { return a.from - b.from })
	n := 0
	for _, s := range out[1:] {
		if s.from <= out[n].to {
			out[n].to = max(out[n].to, s.to)
		} else {
			n++
			out[n] = s
		}
	}
	return out[:n+1], nil
}

// complement returns the positions outside of the spans.
func complement(spans []span) []span {
	var out []span
	at := 1
	for _, s := range spans {
		if s.from > at {
			out = append(out, span{at, s.from - 1})
		}
		if s.to == math.MaxInt {
			return out
		}
		at = s.to + 1
	}
	return append(out, span{at, math.MaxInt})
}

func cut(c *tool.Call) int {
	f, ok := c.Flags("b:c:d:f:nsz\x81\x82:", "bytes=b", "characters=c", "delimiter=d", "fields=f", "only-delimited=s", "complement=\x81",
		"output-delimiter=\x82", "zero-terminated=z")
	if !ok {
		return 1
	}
	kinds := 0
	for _, o := range f.All {
		if strings.IndexByte("bcf", o.Letter) >= 0 {
			kinds++
		}
	}
	fail := func(text string) int {
		c.Errorf(1, "%s", text)
		return usage.Try(c, 1)
	}
	switch {
	case kinds > 1:
		return fail("only one list may be specified")
	case kinds == 0:
		return fail("you must specify a list of bytes, characters, or fields")
	case f.Has('d') && !f.Has('f'):
		return fail("an input delimiter may be specified only when operating on fields")
	case f.Has('s') && !f.Has('f'):
		return fail("suppressing non-delimited lines makes sense\n\tonly when operating on fields")
	}
	delim := byte('\t')
	if f.Has('d') {
		d := f.Value('d', "")
		if len(d) > 1 {
			return fail("the delimiter must be a single character")
		}
		delim = 0
		if d != "" {
			delim = d[0]
		}
	}
	kind := f.Last("bcf")
	what := "byte/character"
	if kind == 'f' {
		what = "field"
	}
	spans, err := parseSpans(f.Value(kind, ""), what)
	if err != nil {
		return fail(err.Error())
	}
	if f.Has('\x81') {
		spans = complement(spans)
	}
	end := byte('\n')
	if f.Has('z') {
		end = 0
	}
	sep, hasSep := []byte{delim}, false
	if f.Has('\x82') {
		if sep, hasSep = []byte(f.Value('\x82', "")), true; len(sep) == 0 {
			sep = []byte{0}
		}
	}
	w := c.Buffered()
	var out []byte
	one := func(l []byte) []byte { return cutBytes(out[:0], l, spans, sep, hasSep) }
	if kind == 'f' {
		only := f.Has('s')
		one = func(l []byte) []byte { return cutFields(out[:0], l, spans, delim, sep, only) }
	}
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		return c.Lines(in, end, func(l []byte, _ bool) error {
			if out = one(l); out == nil {
				return nil
			}
			out = append(out, end)
			_, err := w.Write(out)
			return err
		})
	})
	return c.Flush(w, status)
}

func cutBytes(out, l []byte, spans []span, sep []byte, hasSep bool) []byte {
	if out == nil {
		out = []byte{}
	}
	for i, s := range spans {
		if s.from > len(l) {
			break
		}
		if hasSep && i > 0 {
			out = append(out, sep...)
		}
		out = append(out, l[s.from-1:min(s.to, len(l))]...)
	}
	return out
}

// cutFields returns the selected fields of a line. It returns nil for a line that isn't printed.
func cutFields(out, l []byte, spans []span, delim byte, sep []byte, only bool) []byte {
	if out == nil {
		out = make([]byte, 0, 256)
	}
	at := bytes.IndexByte(l, delim)
	if at < 0 {
		if only {
			return nil
		}
		return append(out, l...)
	}
	field, any := 1, false
	rest, whole := l, true // whole: rest is valid, even if it is empty
	for _, s := range spans {
		for field < s.from && whole {
			at := bytes.IndexByte(rest, delim)
			if at < 0 {
				return out
			}
			rest = rest[at+1:]
			field++
		}
		if s.to == math.MaxInt && len(sep) == 1 && sep[0] == delim {
			if any {
				out = append(out, delim)
			}
			return append(out, rest...)
		}
		for field <= s.to {
			if any {
				out = append(out, sep...)
			}
			any = true
			at := bytes.IndexByte(rest, delim)
			if at < 0 {
				return append(out, rest...)
			}
			out = append(out, rest[:at]...)
			rest = rest[at+1:]
			field++
		}
	}
	return out
}
