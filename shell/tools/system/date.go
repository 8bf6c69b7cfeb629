package system

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/system/gnudate"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// show prints text and returns the exit status for it.
func show(c *tool.Call, text string) int {
	if _, err := io.WriteString(c.Out, text); err != nil {
		if !c.Stopped(err) {
			c.Errorf(1, "write error: %s", tool.ErrText(err))
		}
		return 1
	}
	return 0
}

// isoFormats are the formats of -I and --rfc-3339. %Q is the offset with a colon.
var isoFormats = map[string]string{"date": "%Y-%m-%d", "hours": "%Y-%m-%dT%H%:z", "minutes": "%Y-%m-%dT%H:%M%:z", "seconds": "%Y-%m-%dT%H:%M:%S%:z", "ns": "%Y-%m-%dT%H:%M:%S,%N%:z"}
var rfcFormats = map[string]string{"date": "%Y-%m-%d", "seconds": "%Y-%m-%d %H:%M:%S%:z", "ns": "%Y-%m-%d %H:%M:%S.%N%:z"}

// abbreviated finds the word that begins with s.
func abbreviated(s string, words map[string]string) (string, bool) {
	found := ""
	for w, f := range words {
		if s == w {
			return f, true
		}
		if s != "" && strings.HasPrefix(w, s) {
			if found != "" {
				return "", false
			}
			found = f
		}
	}
	return found, found != ""
}

func date(c *tool.Call) int {
	f, ok := c.Flags("d:f:I::r:Rs:u\x81:\x82", "date=d", "debug=\x82", "file=f", "iso-8601=I", "reference=r", "rfc-email=R", "rfc-822=R", "rfc-2822=R", "rfc-3339=\x81", "set=s",
		"utc=u", "universal=u", "uct=u")
	if !ok {
		return 1
	}
	format, formats := "", 0
	for _, o := range f.All {
		text, known := "", true
		switch o.Letter {
		case 'I':
			text = isoFormats["date"]
			if o.Has {
				text, known = abbreviated(o.Value, isoFormats)
			}
		case '\x81':
			text, known = abbreviated(o.Value, rfcFormats)
		case 'R':
			text = "%a, %d %b %Y %H:%M:%S %z"
		case 's':
			return c.Errorf(1, "cannot set date: Operation not permitted")
		default:
			continue
		}
		if !known {
			c.Errorf(1, "invalid argument ‘%s’ for ‘--%s’", o.Value, map[byte]string{'I': "iso-8601", '\x81': "rfc-3339"}[o.Letter])
			return usage.Try(c, 1)
		}
		format = text
		formats++
	}
	for _, a := range f.Args {
		if !strings.HasPrefix(a, "+") {
			if len(f.Args) > 1 || f.Has('d') {
				c.Errorf(1, "the argument ‘%s’ lacks a leading '+';\nwhen using an option to specify date(s), any non-option\nargument must be a format string beginning with '+'", a)
				return usage.Try(c, 1)
			}
			if strings.Trim(a, "0123456789.") != "" || len(a) < 8 {
				return c.Errorf(1, "invalid date ‘%s’", a)
			}
			return c.Errorf(1, "cannot set date: Operation not permitted")
		}
		format = a[1:]
		formats++
	}
	if formats > 1 {
		if len(f.Args) > 1 {
			return usage.Extra(c, 1, f.Args[1])
		}
		return c.Errorf(1, "multiple output formats specified")
	}
	if formats == 0 {
		format = gnudate.Default
	}
	loc := gnudate.Location(c.Getenv("TZ"))
	if f.Has('u') {
		loc = time.UTC
	}
	now := c.Now().In(loc)
	print := func(t time.Time) { fmt.Fprintln(c.Out, gnudate.Format(format, t)) }
	switch {
	case f.Has('r'):
		i, err := c.FS().Stat(c.Abs(f.Value('r', "")))
		if err != nil {
			return c.Errorf(1, "%s: %s", f.Value('r', ""), tool.ErrText(err))
		}
		print(i.Modified.In(loc))
	case f.Has('f'):
		bad := false
		status := usage.Inputs(c, []string{f.Value('f', "")}, "%s", 1, func(_ string, in io.Reader) error {
			return c.Lines(in, '\n', func(l []byte, _ bool) error {
				t, err := gnudate.Parse(string(l), now)
				if err != nil {
					bad = true
					c.Errorf(1, "invalid date ‘%s’", l)
					return nil
				}
				print(t)
				return nil
			})
		})
		if bad {
			status = 1
		}
		return status
	case f.Has('d'):
		t, err := gnudate.Parse(f.Value('d', ""), now)
		if err != nil {
			return c.Errorf(1, "invalid date ‘%s’", f.Value('d', ""))
		}
		print(t.In(loc))
	default:
		print(now)
	}
	return 0
}
