package sh

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// basicRegex turns a POSIX basic expression into one of package regexp.
func basicRegex(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			i++
			switch d := s[i]; {
			case strings.IndexByte("(){}|+?", d) >= 0:
				b.WriteByte(d)
			case d >= '1' && d <= '9':
				return "", errors.New("back-references are not supported in the simulated tier")
			case d == '<' || d == '>':
				b.WriteString(`\b`)
			case strings.IndexByte("wWsSbB", d) >= 0:
				b.WriteString(`\` + string(d))
			case d == 'n':
				b.WriteByte('\n')
			case d == 't':
				b.WriteByte('\t')
			default:
				b.WriteString(regexp.QuoteMeta(string(d)))
			}
		case c == '[':
			set, end, ok := bracket(s, i)
			if !ok {
				return "", errors.New("unmatched [, [^, [:, [., or [=")
			}
			if strings.HasPrefix(s[i:], "[!") {
				set = `[\!` + strings.TrimPrefix(set, "[^")
			}
			b.WriteString(set)
			i = end - 1
		case strings.IndexByte("(){}|+?", c) >= 0:
			b.WriteString(`\` + string(c))
		case c == '*' && (i == 0 || s[i-1] == '^' && i == 1 || strings.HasSuffix(s[:i], `\(`)):
			b.WriteString(`\*`)
		case c == '^' && i > 0 && !strings.HasSuffix(s[:i], `\(`) && !strings.HasSuffix(s[:i], `\|`):
			b.WriteString(`\^`)
		case c == '$' && i+1 < len(s) && !strings.HasPrefix(s[i+1:], `\)`) && !strings.HasPrefix(s[i+1:], `\|`):
			b.WriteString(`\$`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// grep is one run of grep.
type grep struct {
	c       *call
	f       flags
	re      *regexp.Regexp
	names   bool // print file names
	max     int
	before  int
	after   int
	matched bool
	status  int
	include string
	exclude string
}

func toolGrep(c *call) int {
	var patterns []string
	args := c.args
	for i := 0; i < len(args); i++ { // -e may be given more than once
		if args[i] == "--" {
			break
		}
		if args[i] == "-e" && i+1 < len(args) {
			patterns = append(patterns, args[i+1])
			i++
		}
	}
	f, ok := c.flags("rRinvcElLoFqsHhwxPGa1e:m:A:B:C:f:I:X:", "recursive=r", "ignore-case=i", "line-number=n", "invert-match=v", "count=c",
		"extended-regexp=E", "files-with-matches=l", "files-without-match=L", "only-matching=o", "fixed-strings=F", "quiet=q", "silent=q", "no-messages=s",
		"with-filename=H", "no-filename=h", "word-regexp=w", "line-regexp=x", "regexp=e", "max-count=m", "after-context=A", "before-context=B", "context=C",
		"include=I", "exclude=X", "perl-regexp=P", "color=1", "text=a")
	if !ok {
		return 2
	}
	if len(patterns) == 0 && f.has('e') {
		patterns = []string{f.val['e']}
	}
	if f.has('f') {
		in, err := c.openIn(f.val['f'])
		if err != nil {
			return c.complain(2, "%s: %s", f.val['f'], errText(err))
		}
		data, err := c.slurp(in)
		_ = in.Close()
		if err != nil {
			return 2
		}
		patterns = append(patterns, strings.TrimSuffix(string(data), "\n"))
	} else if !f.has('e') {
		if len(f.args) == 0 {
			return c.complain(2, "usage: grep [OPTION]... PATTERNS [FILE]...")
		}
		patterns, f.args = f.args[:1], f.args[1:]
	}
	g := &grep{c: c, f: f, include: f.val['I'], exclude: f.val['X'], max: -1}
	if err := g.compile(strings.Split(strings.Join(patterns, "\n"), "\n")); err != nil {
		return c.complain(2, "%s", err)
	}
	number := func(l byte) int {
		n, _ := strconv.Atoi(f.val[l]) // nonsense counts as 0
		return max(n, 0)
	}
	if f.has('m') {
		g.max = number('m')
	}
	g.before, g.after = max(number('B'), number('C')), max(number('A'), number('C'))
	g.run()
	switch {
	case g.matched && (g.status == 0 || f.has('q')):
		return 0
	case g.status != 0:
		return g.status
	}
	return 1
}

// compile makes one expression of all patterns.
func (g *grep) compile(patterns []string) error {
	exprs := make([]string, len(patterns))
	for i, p := range patterns {
		var err error
		switch {
		case g.f.has('F') || base(g.c.name) == "fgrep":
			exprs[i] = regexp.QuoteMeta(p)
		case g.f.has('P'):
			exprs[i] = p
		case g.f.has('E') || base(g.c.name) == "egrep":
			exprs[i], err = extendedRegex(p)
		default:
			exprs[i], err = basicRegex(p)
		}
		if err != nil {
			return err
		}
	}
	expr := "(?:" + strings.Join(exprs, "|") + ")"
	if g.f.has('w') {
		expr = `\b` + expr + `\b`
	}
	if g.f.has('x') {
		expr = "^" + expr + "$"
	}
	if g.f.has('i') {
		expr = "(?i)" + expr
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return errors.New("invalid regular expression")
	}
	g.re = re
	g.re.Longest()
	return nil
}

func (g *grep) run() {
	recursive := g.f.has('r') || g.f.has('R')
	names := g.f.args
	if recursive && len(names) == 0 {
		names = []string{"."}
	}
	g.names = (recursive || len(names) > 1 || g.f.has('H')) && !g.f.has('h')
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, n := range names {
		i, err := g.c.stat(n)
		if n != "-" && err == nil && i.Mode.IsDir() {
			if !recursive {
				g.c.complain(2, "%s: Is a directory", n)
				g.status = 2
				continue
			}
			g.tree(n)
			continue
		}
		g.one(n)
	}
}

// tree searches a directory and all below it.
func (g *grep) tree(root string) {
	for todo := []string{root}; len(todo) > 0 && g.c.r.step(); {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		entries, err := g.c.r.view.ReadDir(g.c.r.abs(dir))
		if err != nil {
			g.c.complain(2, "%s: %s", dir, errText(err))
			g.status = 2
			continue
		}
		for _, e := range entries {
			p := strings.TrimSuffix(dir, "/") + "/" + e.Name
			if root == "." && len(g.f.args) == 0 {
				p = strings.TrimPrefix(p, "./")
			}
			switch {
			case e.Mode.IsDir():
				todo = append(todo, p)
			case e.Mode&fs.ModeSymlink != 0:
			case g.include != "" && !g.c.r.match(g.include, e.Name), g.exclude != "" && g.c.r.match(g.exclude, e.Name):
			default:
				g.one(p)
			}
		}
	}
}

// one searches one file.
func (g *grep) one(name string) {
	in, err := g.c.openIn(name)
	if err != nil {
		if !g.f.has('s') {
			g.c.complain(2, "%s: %s", name, errText(err))
		}
		g.status = 2
		return
	}
	defer in.Close()
	label := name
	if name == "-" {
		label = "(standard input)"
	}
	prefix := ""
	if g.names {
		prefix = label
	}
	w := g.c.buffered()
	defer w.Flush()
	hits, line, lastShown, left := 0, 0, 0, 0
	var kept []string
	show := func(n int, sep, text string) {
		if (g.before > 0 || g.after > 0) && lastShown > 0 && n > lastShown+1 {
			io.WriteString(w, "--\n")
		}
		lastShown = n
		p := ""
		if prefix != "" {
			p = prefix + sep
		}
		if g.f.has('n') {
			p += strconv.Itoa(n) + sep
		}
		io.WriteString(w, p+text+"\n")
	}
	quiet := g.f.has('q') || g.f.has('c') || g.f.has('l') || g.f.has('L')
	err = g.c.eachLine(in, func(l []byte) error {
		line++
		if g.re.Match(l) == g.f.has('v') {
			if left > 0 && !quiet {
				left--
				show(line, "-", string(l))
			} else if g.before > 0 {
				if kept = append(kept, string(l)); len(kept) > g.before {
					kept = kept[1:]
				}
			}
			return nil
		}
		if g.max >= 0 && hits >= g.max {
			return errStop
		}
		hits++
		g.matched = true
		if g.f.has('q') || g.f.has('l') {
			return errStop
		}
		if quiet {
			return nil
		}
		for i, k := range kept {
			show(line-len(kept)+i, "-", k)
		}
		kept, left = nil, g.after
		if !g.f.has('o') {
			show(line, ":", string(l))
			return nil
		}
		if !g.f.has('v') {
			for _, m := range g.re.FindAll(l, -1) {
				if len(m) > 0 {
					show(line, ":", string(m))
				}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		g.c.complain(2, "%s: %s", name, errText(err))
		g.status = 2
	}
	switch {
	case g.f.has('q'):
	case g.f.has('l') && hits > 0, g.f.has('L') && hits == 0:
		io.WriteString(w, label+"\n")
	case g.f.has('c'):
		if prefix != "" {
			prefix += ":"
		}
		fmt.Fprintf(w, "%s%d\n", prefix, hits)
	}
}

func toolBasename(c *call) int {
	f, ok := c.flags("as:", "multiple=a", "suffix=s")
	if !ok || len(f.args) == 0 {
		return c.complain(1, "missing operand")
	}
	names, suffix := f.args, f.val['s']
	if !f.has('a') && !f.has('s') {
		if len(names) > 1 {
			suffix = names[1]
		}
		names = names[:1]
	}
	for _, n := range names {
		if n != "" {
			n = path.Base(n)
		}
		if n != suffix {
			n = strings.TrimSuffix(n, suffix)
		}
		c.print(n + "\n")
	}
	return 0
}

func toolDirname(c *call) int {
	if len(c.args) == 0 {
		return c.complain(1, "missing operand")
	}
	for _, n := range c.args {
		c.print(path.Dir(strings.TrimRight(n, "/")+strings.Repeat("/", boolStatus(strings.Trim(n, "/") != ""))) + "\n")
	}
	return 0
}
