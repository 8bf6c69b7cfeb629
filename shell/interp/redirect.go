package interp

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// undo is a descriptor before a redirection. A nil old means that it was closed.
type undo struct {
	n   int
	old *desc
}

// redirect applies redirections in order. When ok is false, it has written a message. In both cases
// the caller undoes the redirections in done.
func (r *runner) redirect(redirs []*syntax.Redirect) (done []undo, ok bool) {
	for _, rd := range redirs {
		if err := r.redirectOne(&done, rd); err != nil || r.flow != flowNone {
			return done, false
		}
	}
	return done, true
}

// undoRedirects restores the descriptors.
func (r *runner) undoRedirects(done []undo) {
	for i := len(done) - 1; i >= 0; i-- {
		r.fds.set(done[i].n, done[i].old)
	}
}

// keepRedirects makes redirections permanent: it closes the old descriptors.
func keepRedirects(done []undo) {
	for _, u := range done {
		if u.old != nil {
			u.old.drop()
		}
	}
}

// put sets a descriptor for the duration of a command. It takes over d's reference.
func (r *runner) put(done *[]undo, n int, d *desc) error {
	if err := r.mayOpen(n); d != nil && err != nil {
		d.drop()
		if errors.Is(err, syscall.EBADF) {
			r.errorf("%d: Bad file descriptor", n)
		} else {
			r.errorf("cannot duplicate fd: %s", errText(err))
		}
		return err
	}
	old := r.fds.get(n)
	if old != nil {
		old.hold()
	}
	*done = append(*done, undo{n, old})
	r.fds.set(n, d)
	return nil
}

// mayOpen returns an error if descriptor n can't be made.
func (r *runner) mayOpen(n int) error {
	most := r.maxFDs()
	if n >= most {
		return syscall.EBADF
	}
	if len(r.fds) >= most && r.fds.get(n) == nil {
		return syscall.EMFILE
	}
	return nil
}

// number returns the descriptor of a redirection. For {name} it is a new one. For {name}>&- it is
// the descriptor whose number is the variable's value.
func (r *runner) number(rd *syntax.Redirect) (n int, name string, err error) {
	switch rd.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
	default:
		n = 1
	}
	if rd.N == nil {
		return n, "", nil
	}
	text := rd.N.Value
	if !strings.HasPrefix(text, "{") {
		n, err = strconv.Atoi(text)
		if err != nil {
			r.errorf("%s: Bad file descriptor", text)
		}
		return n, "", err
	}
	name = strings.Trim(text, "{}")
	if lit := rd.Word.Lit(); lit == "-" && (rd.Op == syntax.DplIn || rd.Op == syntax.DplOut) {
		n, err = strconv.Atoi(r.str(name))
		if err != nil || r.fds.get(n) == nil {
			r.errorf("%s: Bad file descriptor", name)
			return 0, "", syscall.EBADF
		}
		return n, name, nil
	}
	return r.fds.free(), name, nil
}

// bind assigns the descriptor's number to the variable of {name}.
func (r *runner) bind(done *[]undo, name string, n int) error {
	if name == "" {
		return nil
	}
	if base, sub, isElem := strings.Cut(name, "["); isElem {
		if !r.setElem(base, strings.TrimSuffix(sub, "]"), strconv.Itoa(n), false) {
			return syscall.EINVAL
		}
	} else if !r.set(name, strconv.Itoa(n)) {
		r.errorf("%s: cannot assign fd to variable", name)
		return syscall.EINVAL
	}
	if u := *done; !r.opts.varredirClose && len(u) > 0 && u[len(u)-1].n == n {
		keepRedirects(u[len(u)-1:])
		*done = u[:len(u)-1] // the descriptor stays open after the command
	}
	return nil
}

// redirectOne applies one redirection.
func (r *runner) redirectOne(done *[]undo, rd *syntax.Redirect) error {
	n, name, err := r.number(rd)
	if err != nil {
		return err
	}
	var d *desc
	switch rd.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		text := ""
		if rd.Hdoc != nil {
			text = r.heredoc(rd)
		}
		d = newDesc(r.newText(text))
	case syntax.WordHdoc:
		d = newDesc(r.newText(r.text(rd.Word) + "\n"))
	case syntax.DplIn, syntax.DplOut:
		return r.duplicate(done, rd, n, name)
	default:
		target, err := r.redirectTarget(rd.Word)
		if err != nil {
			return err
		}
		if d, err = r.open(target, rd.Op); err != nil {
			return err
		}
		if rd.Op == syntax.RdrAll || rd.Op == syntax.AppAll {
			return r.both(done, d)
		}
	}
	if r.flow != flowNone {
		d.drop()
		return errExpansion
	}
	if err := r.put(done, n, d); err != nil {
		return err
	}
	return r.bind(done, name, n)
}

var errExpansion = errors.New("expansion failed")

// both sends standard output and standard error to d.
func (r *runner) both(done *[]undo, d *desc) error {
	if err := r.put(done, 1, d.hold()); err != nil {
		d.drop()
		return err
	}
	return r.put(done, 2, d)
}

// heredoc returns a here-document's text.
func (r *runner) heredoc(rd *syntax.Redirect) string {
	tabs := rd.Op == syntax.DashHdoc
	if quotedWord(rd.Word) {
		var text strings.Builder
		for _, p := range rd.Hdoc.Parts {
			if lit, ok := p.(*syntax.Lit); ok {
				text.WriteString(lit.Value) // exactly as it is written
			}
		}
		if tabs {
			return stripTabs(text.String(), true)
		}
		return text.String()
	}
	parts := make([]syntax.WordPart, len(rd.Hdoc.Parts))
	start := true
	for i, p := range rd.Hdoc.Parts {
		if lit, ok := p.(*syntax.Lit); ok {
			same := *lit
			same.Value = keepQuotes(lit.Value)
			if tabs {
				same.Value = stripTabs(same.Value, start)
			}
			start = strings.HasSuffix(lit.Value, "\n")
			p = &same
		} else {
			start = false
		}
		parts[i] = p
	}
	return joinPieces(r.pieces(nil, parts, true, true))
}

// stripTabs removes the tabs at the beginning of lines. start says whether the text begins at the
// beginning of a line.
func stripTabs(text string, start bool) string {
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		if i > 0 || start {
			lines[i] = strings.TrimLeft(l, "\t")
		}
	}
	return strings.Join(lines, "")
}

// quotedWord reports whether any part of a here-document's delimiter is quoted.
func quotedWord(w *syntax.Word) bool {
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.SglQuoted, *syntax.DblQuoted:
			return true
		case *syntax.Lit:
			if strings.Contains(p.Value, `\`) {
				return true
			}
		}
	}
	return false
}

// keepQuotes doubles the backslash before a double quote. The same characters are special in double
// quotes and in a here-document, except for the double quote itself.
func keepQuotes(s string) string {
	if !strings.Contains(s, `\"`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		b.WriteByte(s[i])
		if s[i] != '\\' || i+1 == len(s) {
			continue
		}
		i++
		if s[i] == '"' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// redirectTarget expands the word of a redirection to exactly one word.
func (r *runner) redirectTarget(w *syntax.Word) (string, error) {
	words := r.fields([]*syntax.Word{w})
	if r.flow != flowNone {
		return "", errExpansion
	}
	if len(words) != 1 {
		r.errorf("%s: ambiguous redirect", wordText(w))
		return "", syscall.EINVAL
	}
	return words[0], nil
}

func wordText(w *syntax.Word) string { return nodeText(w) }

// nodeText prints a piece of source.
func nodeText(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return "?"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// duplicate implements n>&target, n<&target, n>&m-, n>&- and >&file.
func (r *runner) duplicate(done *[]undo, rd *syntax.Redirect, n int, name string) error {
	target, err := r.redirectTarget(rd.Word)
	if err != nil {
		return err
	}
	if target == "-" {
		if name != "" {
			r.fds.set(n, nil)
			return nil
		}
		return r.put(done, n, nil)
	}
	move := strings.HasSuffix(target, "-")
	from, err := strconv.Atoi(strings.TrimSuffix(target, "-"))
	if err != nil || from < 0 || strings.HasPrefix(target, "+") {
		if rd.Op == syntax.DplOut && n == 1 && name == "" && target != "" {
			d, err := r.open(target, syntax.RdrOut)
			if err != nil {
				return err
			}
			return r.both(done, d)
		}
		r.errorf("%s: ambiguous redirect", wordText(rd.Word))
		return syscall.EINVAL
	}
	d := r.fds.get(from)
	if d == nil {
		r.errorf("%s: Bad file descriptor", wordText(rd.Word))
		return syscall.EBADF
	}
	if err := r.put(done, n, d.hold()); err != nil {
		return err
	}
	if err := r.bind(done, name, n); err != nil {
		return err
	}
	if move && from != n {
		return r.put(done, from, nil)
	}
	return nil
}

// open opens a redirection's file.
func (r *runner) open(name string, op syntax.RedirOperator) (*desc, error) {
	flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	switch op {
	case syntax.RdrIn:
		flags = vfs.ReadOnly
	case syntax.AppOut, syntax.AppAll:
		flags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
	case syntax.RdrInOut:
		flags = vfs.ReadWrite | vfs.CreateNew
	case syntax.RdrOut, syntax.RdrAll:
		if !r.opts.noclobber {
			break
		}
		if i, err := r.view.Stat(r.abs(name)); err == nil && i.Mode.IsRegular() {
			r.errorf("%s: cannot overwrite existing file", name)
			return nil, fs.ErrExist
		}
	}
	d, err := r.openFile(name, flags)
	if err != nil {
		r.errorf("%s: %s", name, errText(err))
	}
	return d, err
}

// openFile opens a path. Names below /dev that mean descriptors or the terminal refer to those of
// this process.
func (r *runner) openFile(name string, flags vfs.Flags) (*desc, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	full := r.abs(name)
	if n, ok := strings.CutPrefix(full, "/proc/self/fd/"); ok {
		full = "/dev/fd/" + n
	}
	if rest, ok := strings.CutPrefix(full, "/dev/"); ok {
		if d, known, err := r.openDev(rest, flags); known {
			return d, err
		}
	}
	if len(r.fds) >= r.maxFDs() {
		return nil, syscall.EMFILE
	}
	if n := r.m.files.Add(1); r.m.limits.Files > 0 && n > r.m.limits.Files {
		r.m.files.Add(-1)
		return nil, syscall.ENFILE
	}
	f, err := r.view.OpenFile(full, flags, fs.FileMode(0o666&^r.umask))
	if err != nil {
		r.m.files.Add(-1)
		return nil, err
	}
	if f.Kind() == "fifo" {
		r.m.files.Add(-1) // a pipe is no file
		s, err := openFifo(r.ctx, f, flags)
		if err != nil {
			return nil, err
		}
		return newDesc(s), nil
	}
	return newDesc(fileStream{f: f, m: r.m, most: r.maxFile()}), nil
}

// openDev opens /dev/stdin, /dev/fd/N, /dev/tty and the like.
func (r *runner) openDev(name string, flags vfs.Flags) (d *desc, known bool, err error) {
	n := -1
	switch name {
	case "stdin":
		n = 0
	case "stdout":
		n = 1
	case "stderr":
		n = 2
	case "tty":
		if t := r.p.tree.tty; t != nil {
			return newDesc(ttyStream{t}), true, nil
		}
		return nil, true, syscall.ENXIO
	default:
		num, ok := strings.CutPrefix(name, "fd/")
		if !ok {
			return nil, false, nil
		}
		if n, err = strconv.Atoi(num); err != nil {
			return nil, true, syscall.ENOENT
		}
	}
	if d = r.fds.get(n); d == nil {
		return nil, true, syscall.ENOENT
	}
	if s, ok := d.stream.(fileStream); ok {
		// Linux opens the file again: the new descriptor has its own offset.
		if i, err := s.f.Stat(); err == nil && i.Mode.IsRegular() {
			if same, err := r.view.Stat(i.Path); err == nil && same.Ino == i.Ino {
				if again, err := r.openFile(i.Path, flags&^(vfs.CreateNew|vfs.Exclusive)); err == nil {
					return again, true, nil
				}
			}
		}
	}
	return d.hold(), true, nil
}
