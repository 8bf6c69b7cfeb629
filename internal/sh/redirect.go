package sh

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// redirect applies redirections in order. On error a message was written.
func (r *runner) redirect(redirs []*syntax.Redirect) error {
	for _, rd := range redirs {
		if err := r.redirectOne(rd); err != nil {
			return err
		}
		if r.flow != flowNone {
			return errors.New("expansion failed")
		}
	}
	return nil
}

// redirectOne applies one redirection.
func (r *runner) redirectOne(rd *syntax.Redirect) error {
	n := 1
	switch rd.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		n = 0
	}
	if rd.N != nil {
		name := rd.N.Value
		if strings.HasPrefix(name, "{") {
			n = r.fds.free()
			r.set(strings.Trim(name, "{}"), strconv.Itoa(n))
		} else if v, err := strconv.Atoi(name); err == nil && v < 1024 {
			n = v
		} else {
			r.errorf("%s: Bad file descriptor", name)
			return syscall.EBADF
		}
	}
	switch rd.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		text := ""
		if rd.Hdoc != nil {
			text = r.heredoc(rd)
		}
		r.fds.set(n, newDesc(newText(text)))
		return nil
	case syntax.WordHdoc:
		r.fds.set(n, newDesc(newText(r.text(rd.Word)+"\n")))
		return nil
	}
	target, err := r.redirectTarget(rd.Word)
	if err != nil {
		return err
	}
	switch rd.Op {
	case syntax.DplIn, syntax.DplOut:
		return r.duplicate(rd, n, target)
	case syntax.RdrAll, syntax.AppAll:
		d, err := r.open(target, rd.Op)
		if err != nil {
			return err
		}
		r.fds.set(2, d.hold())
		r.fds.set(1, d)
		return nil
	}
	d, err := r.open(target, rd.Op)
	if err != nil {
		return err
	}
	r.fds.set(n, d)
	return nil
}

// heredoc returns a here-document's text.
func (r *runner) heredoc(rd *syntax.Redirect) string {
	var text string
	if quotedWord(rd.Word) {
		for _, p := range rd.Hdoc.Parts {
			if lit, ok := p.(*syntax.Lit); ok {
				text += lit.Value // exactly as it is written
			}
		}
	} else {
		parts := make([]syntax.WordPart, len(rd.Hdoc.Parts))
		for i, p := range rd.Hdoc.Parts {
			if lit, ok := p.(*syntax.Lit); ok {
				same := *lit
				same.Value = keepQuotes(lit.Value)
				p = &same
			}
			parts[i] = p
		}
		text = joinPieces(r.pieces(nil, parts, true, true))
	}
	if rd.Op == syntax.DashHdoc {
		lines := strings.SplitAfter(text, "\n")
		for i, l := range lines {
			lines[i] = strings.TrimLeft(l, "\t")
		}
		text = strings.Join(lines, "")
	}
	return text
}

// quotedWord reports whether any part of a here-document's delimiter is quoted.
func quotedWord(w *syntax.Word) bool {
	for _, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok || strings.Contains(lit.Value, `\`) {
			return true
		}
	}
	return false
}

// keepQuotes doubles the backslash before a double quote: what is special inside
// double quotes is in a here-document too, except for the quote itself.
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

// redirectTarget expands the word of a redirection to exactly one.
func (r *runner) redirectTarget(w *syntax.Word) (string, error) {
	words := r.fields([]*syntax.Word{w})
	if len(words) != 1 {
		r.errorf("%s: ambiguous redirect", wordText(w))
		return "", syscall.EINVAL
	}
	return words[0], nil
}

func wordText(w *syntax.Word) string {
	var b strings.Builder
	if err := syntax.NewPrinter().Print(&b, w); err != nil {
		return "?"
	}
	return b.String()
}

// duplicate does n>&target, n<&target, n>&- and >&file.
func (r *runner) duplicate(rd *syntax.Redirect, n int, target string) error {
	if target == "-" {
		r.fds.set(n, nil)
		return nil
	}
	move := strings.HasSuffix(target, "-")
	from, err := strconv.Atoi(strings.TrimSuffix(target, "-"))
	if err != nil {
		if rd.Op == syntax.DplOut && rd.N == nil {
			d, err := r.open(target, syntax.RdrOut)
			if err != nil {
				return err
			}
			r.fds.set(2, d.hold())
			r.fds.set(1, d)
			return nil
		}
		r.errorf("%s: ambiguous redirect", target)
		return syscall.EINVAL
	}
	d := r.fds.get(from)
	if d == nil {
		r.errorf("%d: Bad file descriptor", from)
		return syscall.EBADF
	}
	r.fds.set(n, d.hold())
	if move && from != n {
		r.fds.set(from, nil)
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
		if i, err := r.view.Stat(r.abs(name)); r.opts.noclobber && err == nil && i.Mode.IsRegular() {
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

// openFile opens a path; the names below /dev that stand for descriptors and the
// terminal are this process's own.
func (r *runner) openFile(name string, flags vfs.Flags) (*desc, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	full := r.abs(name)
	if n, ok := strings.CutPrefix(full, "/proc/self/fd/"); ok {
		full = "/dev/fd/" + n
	}
	if rest, ok := strings.CutPrefix(full, "/dev/"); ok {
		if d, known, err := r.openDev(rest); known {
			return d, err
		}
	}
	f, err := r.view.OpenFile(full, flags, fs.FileMode(0o666&^r.umask))
	if err != nil {
		return nil, err
	}
	if f.Kind() == "fifo" {
		s, err := openFifo(r.ctx, f, flags)
		if err != nil {
			return nil, err
		}
		return newDesc(s), nil
	}
	return newDesc(fileStream{f}), nil
}

// openDev opens /dev/stdin, /dev/fd/N, /dev/tty and the like.
func (r *runner) openDev(name string) (d *desc, known bool, err error) {
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
	return d.hold(), true, nil
}

// procSubst starts <(list) or >(list) and returns the name of its pipe.
func (r *runner) procSubst(ps *syntax.ProcSubst) string {
	s, err := r.fork(false)
	if err != nil {
		r.forkFailed(err)
		return "/dev/null"
	}
	p := NewPipe()
	mine, theirs, at := newDesc(readEnd{p}), newDesc(writeEnd{p}), 1
	if ps.Op == syntax.CmdOut {
		mine, theirs, at = theirs, mine, 0
	}
	s.fds.set(at, theirs)
	n := 63
	for r.fds.get(n) != nil {
		n--
	}
	r.fds.set(n, mine)
	r.m.wg.Add(1)
	go func() {
		defer r.m.wg.Done()
		s.contain(func() { s.stmts(ps.Stmts) })
		s.end(s.status)
	}()
	r.substFDs = append(r.substFDs, substFD{n, s.p})
	return fmt.Sprintf("/dev/fd/%d", n)
}

// substFD is a descriptor of a process substitution.
type substFD struct {
	n int
	p *proc
}

// dropSubsts closes the descriptors of process substitutions made since mark.
func (r *runner) dropSubsts(mark int) {
	for _, s := range r.substFDs[mark:] {
		r.fds.set(s.n, nil)
	}
	r.substFDs = r.substFDs[:mark]
}
