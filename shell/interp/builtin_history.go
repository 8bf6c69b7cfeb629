package interp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// biHistory shows, changes, reads and writes the history.
func biHistory(c *call) int {
	r := c.r
	var what byte
	offset, files := "", 0
	args, ok := c.letters("acd:npsrw", func(l byte, v string) {
		if strings.IndexByte("anrw", l) >= 0 && what != l {
			files++
		}
		if what = l; l == 'd' {
			offset = v
		}
	})
	if !ok {
		return 2
	}
	if files > 1 {
		return c.fail(1, "cannot use more than one of -anrw")
	}
	h := &r.hist
	switch what {
	case 'c':
		r.stifle(0)
		h.base, h.added, h.inFile = 0, 0, 0
		return 0
	case 'd':
		return c.deleteHistory(offset)
	case 's', 'p':
		r.forgetLast()
		if what == 's' && len(args) > 0 {
			r.addHistory(strings.Join(args, " "), r.m.now())
			h.added++
		}
		if what == 'p' {
			for _, a := range args {
				text, err := r.expandHistory(a)
				if err != "" {
					return c.fail(1, "%s: history expansion failed", a)
				}
				c.print(text + "\n")
			}
		}
		return 0
	case 'a', 'n', 'r', 'w':
		return c.fileHistory(what, args)
	}
	most := len(h.lines)
	if len(args) > 0 {
		n, err := strconv.Atoi(args[0])
		switch {
		case err != nil:
			return c.fail(1, "%s: numeric argument required", args[0])
		case len(args) > 1:
			c.fail(1, "too many arguments")
			r.discardHard()
			return 1
		}
		most = min(most, max(n, -n))
	}
	format, stamps := r.get("HISTTIMEFORMAT")
	var b strings.Builder
	for i := len(h.lines) - most; i < len(h.lines); i++ {
		when := ""
		if stamps && format != "" {
			when = strftime(format, h.lines[i].when)
		}
		fmt.Fprintf(&b, "%5d  %s%s\n", h.base+i+1, when, h.lines[i].text)
	}
	return c.print(b.String())
}

// forgetLast removes the current line from the history.
func (r *runner) forgetLast() {
	h := &r.hist
	if n := len(h.lines); h.saved && n > 0 {
		h.lines = h.lines[: n-1 : n-1]
		h.saved = false
		h.added = max(h.added-1, 0)
	}
}

// fileHistory reads or writes a history file.
func (c *call) fileHistory(what byte, args []string) int {
	r, h := c.r, &c.r.hist
	file := r.str("HISTFILE")
	if len(args) > 0 {
		file = args[0]
	}
	ok := true
	switch what {
	case 'a':
		if file == "" {
			return 1
		}
		if h.added > 0 {
			n := min(h.added, len(h.lines))
			ok = r.writeHistory(file, n, true)
			h.inFile, h.added = h.inFile+n, 0
		}
	case 'w':
		ok = r.writeHistory(file, len(h.lines), false)
	case 'r':
		ok = r.readHistory(file, 0)
	case 'n':
		before := len(h.lines) + h.base
		if ok = r.readHistory(file, h.inFile); ok && !r.opts.histappend {
			h.added += len(h.lines) + h.base - before
		}
	}
	return boolStatus(ok)
}

// deleteHistory is history -d OFFSET or START-END.
func (c *call) deleteHistory(offset string) int {
	h := &c.r.hist
	position := func(s string) int {
		n, err := strconv.Atoi(s)
		switch {
		case err != nil:
			return -1
		case strings.HasPrefix(s, "-") && n < 0:
			return n + len(h.lines)
		}
		return n - h.base - 1
	}
	first, last, ranged := offset, offset, false
	if len(offset) > 1 {
		if at := strings.IndexByte(offset[1:], '-'); at >= 0 {
			first, last, ranged = offset[:at+1], offset[at+2:], true
		}
	}
	from, to := position(first), position(last)
	if from < 0 || from >= len(h.lines) {
		return c.fail(1, "%s: history position out of range", first)
	}
	if to < 0 || to >= len(h.lines) {
		return c.fail(1, "%s: history position out of range", last)
	}
	if ranged && to < from {
		return 1
	}
	h.lines = append(h.lines[:from:from], h.lines[to+1:]...)
	return 0
}

// biFc lists lines of the history, runs them again, or opens them in an editor and runs the result.
func biFc(c *call) int {
	var list, plain, reverse, again bool
	editor := ""
	var opts, rest []string
	for i, a := range c.args { // -2 is no option
		if len(a) < 2 || a[0] != '-' || a[1] >= '0' && a[1] <= '9' {
			rest = c.args[i:]
			break
		}
		if opts = append(opts, a); a == "--" || a == "-e" && i+1 < len(c.args) {
			if a == "-e" {
				opts = append(opts, c.args[i+1])
				rest = c.args[i+2:]
				break
			}
			rest = c.args[i+1:]
			break
		}
	}
	next := *c
	next.args = opts
	if _, ok := next.letters(":e:lnrs", func(l byte, v string) {
		switch l {
		case 'l':
			list = true
		case 'n':
			plain = true
		case 'r':
			reverse = true
		case 's':
			again = true
		case 'e':
			if editor = v; v == "-" {
				again = true
			}
		}
	}); !ok {
		return 2
	}
	if again {
		return c.fcAgain(rest)
	}
	h := &c.r.hist
	if len(h.lines) == 0 {
		return 0
	}
	from, to, status := c.fcRange(rest, list)
	if status != 0 {
		return status
	}
	if to < from {
		from, to, reverse = to, from, !reverse || len(rest) > 1
	}
	var b strings.Builder
	for i := range to - from + 1 {
		n := from + i
		if reverse {
			n = to - i
		}
		if list {
			if !plain {
				b.WriteString(strconv.Itoa(n + h.base + 1))
			}
			b.WriteString("\t ")
		}
		b.WriteString(h.lines[n].text + "\n")
	}
	if list {
		return c.print(b.String())
	}
	return c.fcEdit(editor, b.String())
}

// fcLast returns the index of the line before the current one.
func (r *runner) fcLast() int {
	n := len(r.hist.lines)
	switch {
	case !r.opts.history:
		return n - 1
	case r.hist.saved:
		return n - 2
	}
	return n - 1
}

// Results of fcIndex that are not lines.
const (
	fcInvalid = -2
	fcMissing = -1
)

// fcIndex finds a line by its number, by its distance from the end, or by its first characters.
func (r *runner) fcIndex(spec string, list bool) int {
	h := &r.hist
	last := r.fcLast()
	digits := strings.TrimPrefix(spec, "-")
	if n, err := strconv.Atoi(digits); err == nil && digits[0] != '-' && digits[0] != '+' {
		switch {
		case n == 0 && digits != spec && list:
			return len(h.lines) - 1
		case n == 0 && digits != spec:
			return fcInvalid
		case n == 0:
			return last
		case digits != spec:
			return max(last+1-n, 0)
		}
		return min(n-h.base-1, last)
	}
	for i := last; i >= 0; i-- {
		if strings.HasPrefix(h.lines[i].text, spec) {
			return i
		}
	}
	return fcMissing
}

// fcRange returns the range of lines that the arguments of fc name.
func (c *call) fcRange(args []string, list bool) (from, to, status int) {
	last := c.r.fcLast()
	if last < 0 {
		return 0, 0, c.fail(1, "history specification out of range")
	}
	from, to = last, last
	switch {
	case len(args) == 0 && list:
		from = max(last-15, 0)
	case len(args) > 0:
		from = c.r.fcIndex(args[0], list)
		switch {
		case len(args) > 1:
			to = c.r.fcIndex(args[1], list)
		case !list:
			to = from
		}
	}
	switch {
	case from == fcMissing || to == fcMissing:
		return 0, 0, c.fail(1, "no command found")
	case from < 0 || to < 0:
		return 0, 0, c.fail(1, "history specification out of range")
	}
	return from, to, 0
}

// fcAgain is fc -s: it runs a line again, with parts of it replaced.
func (c *call) fcAgain(args []string) int {
	r := c.r
	var from, to []string
	for len(args) > 0 && strings.Contains(args[0], "=") {
		pat, rep, _ := strings.Cut(args[0], "=")
		from, to, args = append(from, pat), append(to, rep), args[1:]
	}
	i := r.fcLast()
	if len(args) > 0 {
		i = r.fcIndex(args[0], false)
	}
	if i < 0 || i >= len(r.hist.lines) {
		return c.fail(1, "no command found")
	}
	text := r.hist.lines[i].text
	for k, pat := range from {
		if pat != "" && len(text)*max(len(to[k]), 1) < maxSource {
			text = strings.ReplaceAll(text, pat, to[k])
		}
	}
	r.writeErr(text + "\n")
	if r.opts.history {
		r.forgetLast()
		if r.keeps(text + " ") {
			r.addHistory(text, r.m.now())
			r.hist.added++
			r.hist.saved = true
		}
	}
	r.script(text)
	return r.status
}

// fcEdit opens lines in an editor and runs the result.
func (c *call) fcEdit(editor, text string) int {
	r := c.r
	r.forgetLast()
	for _, name := range []string{"FCEDIT", "EDITOR"} {
		if editor == "" {
			editor = r.str(name)
		}
	}
	if editor == "" {
		editor = "vi"
	}
	file := fmt.Sprintf("/tmp/bash-fc.%d%06d", r.p.pid, r.nextRandom()%1000000)
	if err := r.view.WriteFile(file, []byte(text), 0o600); err != nil {
		return c.fail(1, "%s: cannot open temp file: %s", file, errText(err))
	}
	defer func() { _ = r.view.Remove(file) }() // nobody else knows it
	r.script(editor + " " + file)
	if r.status != 0 || r.flow != flowNone {
		return max(r.status, 1)
	}
	f, err := r.view.OpenFile(file, vfs.ReadOnly, 0)
	if err != nil {
		return c.fail(1, "%s: %s", file, errText(err))
	}
	_ = f.Close() // it was only looked for
	edited, err := r.readFile(file)
	if err != nil {
		return 1
	}
	r.writeErr(edited)
	if line := strings.TrimRight(edited, "\n"); r.opts.history && line != "" {
		r.addHistory(line, r.m.now())
		r.hist.added++
	}
	r.script(edited)
	return r.status
}
