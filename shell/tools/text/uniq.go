package text

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// uniqer is one run of uniq.
type uniqer struct {
	w                          io.Writer
	count, dups, uniques, fold bool
	all                        string // -D: none, prepend, separate
	group                      string // --group: append, prepend, both, separate
	fields, chars, width       int    // width -1: all
	end                        byte
	prev                       []byte
	n                          int
	any                        bool // a group was printed
	num                        []byte
}

func uniq(c *tool.Call) int {
	for i, a := range c.Args { // uniq -1 and +1 of old
		if len(a) > 1 && a[0] == '-' && a[1] >= '0' && a[1] <= '9' {
			c.Args = append([]string{}, c.Args...)
			c.Args[i] = "-f" + a[1:]
		} else if a == "--" {
			break
		}
	}
	f, ok := c.Flags("cdDf:is:uw:z\x81", "count=c", "repeated=d", "all-repeated=D::", "group=\x81::", "ignore-case=i", "skip-fields=f", "skip-chars=s",
		"unique=u", "check-chars=w", "zero-terminated=z")
	if !ok {
		return 1
	}
	u := &uniqer{count: f.Has('c'), dups: f.Has('d'), uniques: f.Has('u'), fold: f.Has('i'), width: -1, end: '\n'}
	if f.Has('z') {
		u.end = 0
	}
	for _, o := range f.All {
		var to *int
		what := ""
		switch o.Letter {
		case 'D':
			if u.all = o.Value; u.all == "" {
				u.all = "none"
			}
			if u.all != "none" && u.all != "prepend" && u.all != "separate" {
				return c.Errorf(1, "invalid argument ‘%s’ for ‘--all-repeated’", o.Value)
			}
			continue
		case '\x81':
			if u.group = o.Value; u.group == "" {
				u.group = "separate"
			}
			continue
		case 'f':
			to, what = &u.fields, "fields to skip"
		case 's':
			to, what = &u.chars, "bytes to skip"
		case 'w':
			to, what = &u.width, "bytes to compare"
		default:
			continue
		}
		n, err := atoi(o.Value)
		if err != nil {
			return c.Errorf(1, "%s: invalid number of %s", o.Value, what)
		}
		*to = n
	}
	if u.group != "" && (u.count || u.dups || u.uniques || u.all != "") {
		c.Errorf(1, "--group is mutually exclusive with -c/-d/-D/-u")
		return usage.Try(c, 1)
	}
	if u.count && u.all != "" {
		c.Errorf(1, "printing all duplicated lines and repeat counts is meaningless")
		return usage.Try(c, 1)
	}
	if len(f.Args) > 2 {
		return usage.Extra(c, 1, f.Args[2])
	}
	in := "-"
	if len(f.Args) > 0 {
		in = f.Args[0]
	}
	w := c.Buffered()
	r, err := usage.Open(c, in)
	if err != nil {
		return c.Errorf(1, "%s: %s", in, tool.ErrText(err))
	}
	defer func() { _ = r.Close() }() // only read
	if len(f.Args) > 1 && f.Args[1] != "-" {
		out, err := c.Open(f.Args[1], vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return c.Errorf(1, "%s: %s", f.Args[1], tool.ErrText(err))
		}
		defer func() { _ = out.Close() }() // the flush reports
		w.Reset(out)
	}
	u.w = w
	err = c.Lines(r, u.end, func(l []byte, _ bool) error { return u.line(l) })
	if err == nil {
		err = u.finish()
	}
	if err != nil && !c.Stopped(err) {
		return c.Errorf(1, "error reading '%s': %s", in, tool.ErrText(err))
	}
	return c.Flush(w, 0)
}

// key returns the part of a line that is compared.
func (u *uniqer) key(l []byte) []byte {
	for range u.fields {
		i := 0
		for i < len(l) && blank(l[i]) {
			i++
		}
		for i < len(l) && !blank(l[i]) {
			i++
		}
		if l = l[i:]; len(l) == 0 {
			break
		}
	}
	l = l[min(u.chars, len(l)):]
	if u.width >= 0 {
		l = l[:min(u.width, len(l))]
	}
	return l
}

func (u *uniqer) same(a, b []byte) bool {
	a, b = u.key(a), u.key(b)
	if !u.fold {
		return bytes.Equal(a, b)
	}
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if upper(a[i]) != upper(b[i]) {
			return false
		}
	}
	return true
}

func (u *uniqer) line(l []byte) error {
	if u.n > 0 && u.same(u.prev, l) {
		u.n++
		return u.again(l)
	}
	if err := u.finishRun(); err != nil {
		return err
	}
	first := u.n == 0
	u.prev, u.n = append(u.prev[:0], l...), 1
	if u.group == "" {
		return nil
	}
	if u.group == "prepend" || u.group == "both" || !first && u.group == "separate" || u.any && u.group == "append" {
		if _, err := u.w.Write([]byte{u.end}); err != nil {
			return err
		}
	}
	u.any = true
	return u.put(l)
}

// again handles another line of a run.
func (u *uniqer) again(l []byte) error {
	switch {
	case u.group != "":
		return u.put(l)
	case u.all != "":
		if u.n == 2 && !u.uniques {
			if u.all == "prepend" || u.all == "separate" && u.any {
				if _, err := u.w.Write([]byte{u.end}); err != nil {
					return err
				}
			}
			u.any = true
			if err := u.put(u.prev); err != nil {
				return err
			}
		}
		if u.uniques && u.n == 2 {
			return nil
		}
		return u.put(l)
	}
	return nil
}

// finishRun prints the text that is printed once for each run.
func (u *uniqer) finishRun() error {
	if u.n == 0 || u.group != "" || u.all != "" {
		return nil
	}
	if u.dups && u.n == 1 || u.uniques && u.n > 1 {
		return nil
	}
	if u.count {
		u.num = strconv.AppendInt(u.num[:0], int64(u.n), 10)
		for range 7 - len(u.num) {
			if _, err := u.w.Write(oneSpace); err != nil {
				return err
			}
		}
		u.num = append(u.num, ' ')
		if _, err := u.w.Write(u.num); err != nil {
			return err
		}
	}
	return u.put(u.prev)
}

var oneSpace = []byte{' '}

func (u *uniqer) put(l []byte) error {
	if _, err := u.w.Write(l); err != nil {
		return err
	}
	_, err := u.w.Write([]byte{u.end})
	return err
}

func (u *uniqer) finish() error {
	if (u.group == "append" || u.group == "both") && u.any {
		_, err := fmt.Fprintf(u.w, "%c", u.end)
		return err
	}
	return u.finishRun()
}
