package files

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Values that say how much of a path may be missing.
const (
	mayMissNone = iota
	mayMissLast
	mayMissAll
)

// canonical resolves an absolute path. With links false, it does not follow symbolic links.
func canonical(c *tool.Call, name string, missing int, links bool) (string, error) {
	at := "/"
	todo := splitPath(name)
	mustDir := strings.HasSuffix(name, "/")
	count, gone := 0, false
	for len(todo) > 0 {
		if !c.Step(2) {
			return "", tool.ErrStop
		}
		part := todo[0]
		todo = todo[1:]
		switch part {
		case ".":
			continue
		case "..":
			at = parentOf(at)
			gone = false
			continue
		}
		next := under(at, part)
		if gone {
			at = next
			continue
		}
		i, err := c.FS().Lstat(next)
		switch {
		case err == nil:
		case missing == mayMissAll:
			gone, at = true, next
			continue
		case missing == mayMissLast && notExist(err) && len(todo) == 0:
			return next, nil
		default:
			return "", err
		}
		if isLink(i.Mode) && links {
			if count++; count > 40 {
				if missing == mayMissAll {
					gone, at = true, next
					continue
				}
				return "", syscall.ELOOP
			}
			if strings.HasPrefix(i.Target, "/") {
				at = "/"
			}
			todo = append(splitPath(i.Target), todo...)
			continue
		}
		if !i.Mode.IsDir() && !isLink(i.Mode) && (len(todo) > 0 || mustDir) && missing != mayMissAll {
			return "", syscall.ENOTDIR
		}
		at = next
	}
	return at, nil
}

// realpath prints resolved paths.
func realpath(c *tool.Call) int {
	f, ok := c.Flags("emLPqsz", "canonicalize-existing=e", "canonicalize-missing=m", "logical=L", "physical=P", "quiet=q", "strip=s", "no-symlinks=s",
		"zero=z", "relative-to=\x81:", "relative-base=\x82:")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	missing := mayMissLast
	switch f.Last("em") {
	case 'e':
		missing = mayMissNone
	case 'm':
		missing = mayMissAll
	}
	mode := f.Last("LPs")
	resolve := func(name string) (string, error) {
		if name == "" {
			return "", syscall.ENOENT
		}
		full := c.Abs(name)
		if mode == 'L' {
			full = cleanPath(full)
		}
		return canonical(c, full, missing, mode != 's')
	}
	to, base := "", ""
	for _, opt := range []struct {
		flag byte
		into *string
	}{{0x81, &to}, {0x82, &base}} {
		if f.Has(opt.flag) {
			p, err := resolve(f.Value(opt.flag, ""))
			if err != nil {
				return c.Errorf(1, "%s: %s", shellQuote(f.Value(opt.flag, ""), false), errText(err))
			}
			*opt.into = p
		}
	}
	if base != "" && to == "" {
		to = base
	}
	end := "\n"
	if f.Has('z') {
		end = "\x00"
	}
	status := 0
	for _, name := range f.Args {
		p, err := resolve(name)
		if err != nil {
			status = 1
			if !f.Has('q') {
				c.Errorf(1, "%s: %s", shellQuote(name, false), errText(err))
			}
			continue
		}
		if to != "" && (base == "" || within(base, p) && within(base, to)) {
			p = relativeTo(to, p)
		}
		if _, err := fmt.Fprint(c.Out, p, end); err != nil {
			return 1
		}
	}
	return status
}

func within(base, p string) bool {
	return p == base || strings.HasPrefix(p, strings.TrimSuffix(base, "/")+"/")
}

// readlink prints the targets of links.
func readlink(c *tool.Call) int {
	f, ok := c.Flags("femnqsvz", "canonicalize=f", "canonicalize-existing=e", "canonicalize-missing=m", "no-newline=n", "quiet=q", "silent=s", "verbose=v", "zero=z")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	end := "\n"
	if f.Has('z') {
		end = "\x00"
	}
	if f.Has('n') {
		if len(f.Args) > 1 {
			c.Errorf(0, "ignoring --no-newline with multiple arguments")
		} else {
			end = ""
		}
	}
	mode := f.Last("fem")
	status := 0
	for _, name := range f.Args {
		var p string
		err := error(syscall.ENOENT)
		if name != "" {
			switch mode {
			case 0:
				p, err = c.FS().Readlink(c.Abs(name))
			default:
				p, err = canonical(c, c.Abs(name), map[byte]int{'e': mayMissNone, 'f': mayMissLast, 'm': mayMissAll}[mode], true)
			}
		}
		if err != nil {
			status = 1
			if f.Has('v') {
				c.Errorf(1, "%s: %s", shellQuote(name, false), errText(err))
			}
			continue
		}
		if _, err := fmt.Fprint(c.Out, p, end); err != nil {
			return 1
		}
	}
	return status
}

// basename prints last names.
func basename(c *tool.Call) int {
	f, ok := c.Flags("+as:z", "multiple=a", "suffix=s", "zero=z")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	names, suffix := f.Args, f.Value('s', "")
	if !f.Has('a') && !f.Has('s') {
		if len(names) > 2 {
			return usage(c, 1, "extra operand %s", curly(names[2]))
		}
		if len(names) == 2 {
			suffix = names[1]
		}
		names = names[:1]
	}
	end := "\n"
	if f.Has('z') {
		end = "\x00"
	}
	out := c.Buffered()
	for _, n := range names {
		b := lastName(n)
		if b != suffix {
			b = strings.TrimSuffix(b, suffix)
		}
		out.WriteString(b + end)
	}
	return flush(c, out, 0)
}

// dirname prints paths without their last name.
func dirname(c *tool.Call) int {
	f, ok := c.Flags("z", "zero=z")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	end := "\n"
	if f.Has('z') {
		end = "\x00"
	}
	out := c.Buffered()
	for _, n := range f.Args {
		out.WriteString(parentOf(n) + end)
	}
	return flush(c, out, 0)
}

// pathchk checks names.
func pathchk(c *tool.Call) int {
	f, ok := c.Flags("pP", "portability=\x81")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	status := 0
	portable := f.Has('p') || f.Has(0x81)
	for _, name := range f.Args {
		if err := checkPath(c, name, portable, f.Has('P') || f.Has(0x81)); err != nil {
			status = c.Errorf(1, "%v", err)
		}
	}
	return status
}

func checkPath(c *tool.Call, name string, portable, extra bool) error {
	parts := splitPath(name)
	if extra {
		for _, p := range parts {
			if strings.HasPrefix(p, "-") {
				return fmt.Errorf("leading '-' in a component of file name %s", quoted(name))
			}
		}
	}
	if name == "" {
		if portable || extra {
			return errors.New("empty file name")
		}
		return errors.New("'': No such file or directory")
	}
	longest, whole := 255, 4096
	if portable {
		longest, whole = 14, 256
		for i := range len(name) {
			if b := name[i]; !letter(b) && !digit(b) && strings.IndexByte("._-/", b) < 0 {
				return fmt.Errorf("nonportable character %s in file name %s", quoted(name[i:i+1]), quoted(name))
			}
		}
	}
	if len(name) >= whole {
		return fmt.Errorf("limit %d exceeded by length %d of file name %s", whole-1, len(name), quoted(name))
	}
	for _, p := range parts {
		if len(p) > longest {
			return fmt.Errorf("limit %d exceeded by length %d of file name component %s", longest, len(p), quoted(p))
		}
	}
	if !portable {
		if _, err := lstat(c, name); err != nil && !notExist(err) {
			return fmt.Errorf("%s: %s", shellQuote(name, false), errText(err))
		}
	}
	return nil
}

// mktemp makes files and directories with new names.
func mktemp(c *tool.Call) int {
	f, ok := c.Flags("dp:qtuV", "directory=d", "quiet=q", "dry-run=u", "suffix=\x81:", "tmpdir=\x82::")
	if !ok {
		return 1
	}
	fail := func(format string, args ...any) int {
		if !f.Has('q') {
			c.Errorf(1, format, args...)
		}
		return 1
	}
	if len(f.Args) > 1 {
		return usage(c, 1, "too many templates")
	}
	tmp := c.Getenv("TMPDIR")
	if tmp == "" {
		tmp = "/tmp"
	}
	template, dir := "tmp.XXXXXXXXXX", ""
	if len(f.Args) == 0 {
		dir = tmp
	} else {
		template = f.Args[0]
	}
	for _, o := range f.All {
		switch {
		case o.Letter == 'p', o.Letter == 0x82 && o.Has:
			if dir = o.Value; dir == "" {
				dir = tmp
			}
		case o.Letter == 't', o.Letter == 0x82:
			dir = tmp
		}
	}
	suffix := f.Value(0x81, "")
	if f.Has(0x81) {
		if !strings.HasSuffix(template, "X") {
			return fail("with --suffix, template %s must end in X", curly(template))
		}
	} else if at := strings.LastIndexByte(template, 'X'); at >= 0 {
		template, suffix = template[:at+1], template[at+1:]
	}
	if strings.Contains(suffix, "/") {
		return fail("invalid suffix %s, contains directory separator", curly(suffix))
	}
	stem := strings.TrimRight(template, "X")
	n := len(template) - len(stem)
	if n < 3 {
		return fail("too few X's in template %s", curly(template+suffix))
	}
	if f.Has('t') && strings.Contains(template, "/") {
		return fail("invalid template, %s, contains directory separator", curly(template))
	}
	if dir != "" && strings.HasPrefix(template, "/") {
		return fail("invalid template, %s; with --tmpdir, it may not be absolute", curly(template))
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for range 1000 {
		if !c.Step(8) {
			return 1
		}
		b := make([]byte, n)
		c.Random(b)
		for i := range b {
			b[i] = letters[int(b[i])%len(letters)]
		}
		name := stem + string(b) + suffix
		if dir != "" {
			name = under(dir, name)
		}
		what := "file"
		var err error
		switch {
		case f.Has('u'):
			if _, err = lstat(c, name); err == nil {
				continue
			}
			err = nil
		case f.Has('d'):
			what = "directory"
			err = c.FS().Mkdir(c.Abs(name), 0o700)
		default:
			var out tool.File
			if out, err = c.Open(name, vfs.ReadWrite|vfs.CreateNew|vfs.Exclusive, 0o600); err == nil {
				_ = out.Close() // nothing was written
			}
		}
		if errors.Is(err, syscall.EEXIST) {
			continue
		}
		if err != nil {
			said := template + suffix
			if dir != "" {
				said = under(dir, said)
			}
			return fail("failed to create %s via template %s: %s", what, curly(said), errText(err))
		}
		if _, err := fmt.Fprintln(c.Out, name); err != nil {
			return 1
		}
		return 0
	}
	return fail("failed to create file via template %s: File exists", curly(template+suffix))
}
