package text

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// nlStyle says which lines of a section are numbered.
type nlStyle struct {
	kind byte // a t n p
	re   *bre
}

func parseStyle(s string) (nlStyle, error) {
	switch {
	case s == "a" || s == "t" || s == "n":
		return nlStyle{kind: s[0]}, nil
	case strings.HasPrefix(s, "p"):
		re, err := compileBRE(s[1:])
		return nlStyle{'p', re}, err
	}
	return nlStyle{}, errors.New("invalid style")
}

func nl(c *tool.Call) int {
	f, ok := c.Flags("b:d:f:h:i:l:n:ps:v:w:", "body-numbering=b", "section-delimiter=d", "footer-numbering=f", "header-numbering=h", "line-increment=i",
		"join-blank-lines=l", "number-format=n", "no-renumber=p", "number-separator=s", "starting-line-number=v", "number-width=w")
	if !ok {
		return 1
	}
	styles := map[byte]nlStyle{'b': {kind: 't'}, 'f': {kind: 'n'}, 'h': {kind: 'n'}}
	ints := map[byte]int64{'i': 1, 'l': 1, 'v': 1, 'w': 6}
	names := map[byte]string{'b': "body", 'f': "footer", 'h': "header", 'i': "line number increment", 'l': "line number of blank lines", 'v': "starting line number", 'w': "line number field width"}
	format := "rn"
	for _, o := range f.All {
		switch o.Letter {
		case 'b', 'f', 'h':
			st, err := parseStyle(o.Value)
			if err != nil {
				c.Errorf(1, "invalid %s numbering style: ‘%s’", names[o.Letter], o.Value)
				return usage.Try(c, 1)
			}
			styles[o.Letter] = st
		case 'i', 'l', 'v', 'w':
			n, err := strconv.ParseInt(o.Value, 10, 64)
			if err != nil || n < 1 && (o.Letter == 'w' || o.Letter == 'l') || o.Letter == 'w' && n > 1<<20 {
				return c.Errorf(1, "invalid %s: ‘%s’", names[o.Letter], o.Value)
			}
			ints[o.Letter] = n
		case 'n':
			if o.Value != "ln" && o.Value != "rn" && o.Value != "rz" {
				c.Errorf(1, "invalid line numbering format: ‘%s’", o.Value)
				return usage.Try(c, 1)
			}
			format = o.Value
		}
	}
	verb := map[string]string{"ln": "%-*d", "rn": "%*d", "rz": "%0*d"}[format]
	delim := f.Value('d', `\:`)
	if len(delim) == 1 {
		delim += ":"
	}
	sep := f.Value('s', "\t")
	pad := strings.Repeat(" ", int(ints['w'])+len(sep))
	section, line, blanks := byte('b'), ints['v'], int64(0)
	w := c.Buffered()
	number := func() {
		fmt.Fprintf(w, verb+"%s", int(ints['w']), line, sep)
		line += ints['i']
	}
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		return c.Lines(in, '\n', func(l []byte, _ bool) error {
			if delim != "" && len(l) >= len(delim) && string(l[:len(delim)]) == delim {
				next := map[string]byte{delim + delim + delim: 'h', delim + delim: 'b', delim: 'f'}[string(l)]
				if next != 0 {
					section = next
					if !f.Has('p') {
						line = ints['v']
					}
					return w.WriteByte('\n')
				}
			}
			st := styles[section]
			on := false
			switch st.kind {
			case 'a':
				if on = true; ints['l'] > 1 {
					if blanks++; len(l) > 0 || blanks >= ints['l'] {
						blanks = 0
					} else {
						on = false
					}
				}
			case 't':
				on = len(l) > 0
			case 'p':
				on = st.re.match(l)
			}
			if on {
				number()
			} else {
				_, _ = w.WriteString(pad) // the next one reports
			}
			_, _ = w.Write(l)
			return w.WriteByte('\n')
		})
	})
	return c.Flush(w, status)
}
