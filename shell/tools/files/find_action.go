package files

import (
	"bufio"
	"fmt"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

// action reads actions, which are the expressions with side effects.
func (f *finder) action(name string) (test, bool, error) {
	acts := func(t test, err error) (test, bool, error) {
		f.acts = true
		return t, true, err
	}
	switch name {
	case "-prune":
		return func(e *found) bool { e.prune = true; return true }, true, nil
	case "-quit":
		return func(e *found) bool { f.quit = true; return true }, true, nil
	case "-print":
		return acts(f.print('\n', f.out), nil)
	case "-print0":
		return acts(f.print(0, f.out), nil)
	case "-fprint", "-fprint0", "-fls":
		a, err := f.arg(name)
		if err != nil {
			return acts(nil, err)
		}
		w, err := f.openOut(a)
		switch {
		case err != nil:
			return acts(nil, err)
		case name == "-fls":
			return acts(f.ls(w), nil)
		case name == "-fprint":
			return acts(f.print('\n', w), nil)
		}
		return acts(f.print(0, w), nil)
	case "-printf", "-fprintf":
		w := f.out
		if name == "-fprintf" {
			a, err := f.arg(name)
			if err == nil {
				w, err = f.openOut(a)
			}
			if err != nil {
				return acts(nil, err)
			}
		}
		a, err := f.arg(name)
		if err != nil {
			return acts(nil, err)
		}
		parts := parsePrintf(a)
		return acts(func(e *found) bool {
			for _, p := range parts {
				p(e, w)
			}
			return true
		}, nil)
	case "-ls":
		return acts(f.ls(f.out), nil)
	case "-delete":
		f.depth = true
		return acts(func(e *found) bool {
			if e.path == "." || e.path == ".." {
				return true
			}
			if err := f.FS().Remove(f.Abs(trimSlashes(e.path))); err != nil {
				f.fail("cannot delete %s: %s", curly(e.path), errText(err))
				return false
			}
			return true
		}, nil)
	case "-exec", "-execdir", "-ok", "-okdir":
		return acts(f.exec(name))
	}
	return nil, false, nil
}

func (f *finder) fail(format string, args ...any) {
	_ = f.out.Flush()
	f.status = f.Errorf(1, format, args...)
}

func (f *finder) print(end byte, w *bufio.Writer) test {
	return func(e *found) bool {
		_, _ = w.WriteString(e.path) // the writer keeps the error
		if err := w.WriteByte(end); err != nil {
			f.quit = true
		}
		return true
	}
}

// ls is the format of ls -dils.
func (f *finder) ls(w *bufio.Writer) test {
	return func(e *found) bool {
		i := e.info
		age := f.now.Sub(i.Modified)
		stamp := i.Modified.Format("Jan _2 15:04")
		if age < 0 || age > 182*24*time.Hour {
			stamp = i.Modified.Format("Jan _2  2006")
		}
		name := quoteC(e.path, false)
		if isLink(i.Mode) {
			name += " -> " + quoteC(i.Target, false)
		}
		fmt.Fprintf(w, "%9d %6d %s %3d %-8s %-8s %8d %s %s\n", i.Ino, blocks(i)/2, modeString(i.Mode), i.Links,
			f.Machine().UserName(i.UID), f.Machine().GroupName(i.GID), i.Size, stamp, name)
		return true
	}
}

// batch collects names for -exec +.
type batch struct {
	args  []string
	dir   string
	names []string
	size  int
	paid  int64
}

func (b *batch) run(f *finder) {
	if len(b.names) == 0 {
		return
	}
	_ = f.out.Flush()
	full := append(append([]string{}, b.args...), b.names...)
	if f.Run(tool.Child{Args: full, Dir: b.dir}) != 0 {
		f.status = 1
	}
	_ = f.Pay(-b.paid)
	b.names, b.size, b.paid = nil, 0, 0
}

// exec reads a command up to ; or +.
func (f *finder) exec(name string) (test, error) {
	var args []string
	plus := false
	for {
		if f.at >= len(f.args) {
			return nil, errUsage(fmt.Sprintf("missing argument to `%s'", name))
		}
		a := f.args[f.at]
		f.at++
		if a == ";" {
			break
		}
		if a == "+" && len(args) > 0 && args[len(args)-1] == "{}" {
			plus = true
			break
		}
		args = append(args, a)
	}
	if len(args) == 0 {
		return nil, errUsage(fmt.Sprintf("missing argument to `%s'", name))
	}
	inDir := strings.HasSuffix(name, "dir")
	where := func(e *found) (dir, said string) {
		if !inDir {
			return "", e.path
		}
		dir = f.Abs(parentOf(e.path))
		if said = "./" + lastName(e.path); e.depth == 0 && (e.path == "." || e.path == "/") {
			return f.Abs(e.path), "."
		}
		return dir, said
	}
	if plus {
		if strings.HasPrefix(name, "-ok") {
			return nil, errUsage(fmt.Sprintf("missing argument to `%s'", name))
		}
		if n := strings.Count(strings.Join(args, "\x00"), "{}"); n > 1 {
			return nil, errUsage(fmt.Sprintf("Only one instance of {} is supported with %s ... +", name))
		}
		b := &batch{args: args[:len(args)-1]}
		f.batches = append(f.batches, b)
		return func(e *found) bool {
			dir, said := where(e)
			if dir != b.dir || b.size+len(said) > maxArgs {
				b.run(f)
			}
			cost := int64(len(said) + 32)
			if f.Pay(cost) != nil {
				f.quit = true
				return false
			}
			b.dir, b.paid = dir, b.paid+cost
			b.names = append(b.names, said)
			b.size += len(said) + 1
			return true
		}, nil
	}
	return func(e *found) bool {
		dir, said := where(e)
		full := make([]string, len(args))
		for i, a := range args {
			full[i] = strings.ReplaceAll(a, "{}", said)
		}
		_ = f.out.Flush()
		if strings.HasPrefix(name, "-ok") {
			fmt.Fprintf(f.Err, "< %s ... %s > ? ", args[0], e.path)
			if line := readAnswer(f.In); !strings.HasPrefix(line, "y") && !strings.HasPrefix(line, "Y") {
				return false
			}
			return f.Run(tool.Child{Args: full, Dir: dir, In: strings.NewReader("")}) == 0
		}
		return f.Run(tool.Child{Args: full, Dir: dir}) == 0
	}, nil
}

// search walks all roots.
func (f *finder) search(expr test) {
	if f.rootsFrom != "" {
		data, err := readFile(f.Call, f.rootsFrom)
		if err != nil {
			f.fail("cannot open %s: %s", curly(f.rootsFrom), errText(err))
			return
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(data), "\x00"), "\x00") {
			if name == "" {
				f.fail("%s: invalid zero-length file name", f.rootsFrom)
				continue
			}
			f.root(name, expr)
		}
		return
	}
	for _, r := range f.roots {
		if f.quit {
			return
		}
		f.root(r, expr)
	}
}

// root walks one root.
func (f *finder) root(name string, expr test) {
	walk(f.Call, name, f.links, func(v visit) next {
		if v.err != nil {
			if v.dir || v.depth == 0 || true {
				f.fail("%s: %s", curly(v.path), errText(v.err))
			}
			return goOn
		}
		if v.loop {
			f.fail("File system loop detected; %s is part of the same file system loop as %s.", curly(v.path), curly(name))
			return skip
		}
		dir := v.info.Mode.IsDir()
		e := &found{visit: v, f: f, root: name}
		consider := v.depth >= f.min && v.depth <= f.max && (!dir || v.post == f.depth)
		if consider {
			expr(e)
		}
		switch {
		case f.quit:
			return stop
		case e.prune && !f.depth, dir && !v.post && v.depth >= f.max:
			if dir && f.depth && !v.post {
				// A directory that the walk does not enter gets no post visit.
				p := v
				p.post = true
				if v.depth >= f.min {
					expr(&found{visit: p, f: f, root: name})
				}
			}
			if f.quit {
				return stop
			}
			return skip
		}
		return goOn
	})
}
