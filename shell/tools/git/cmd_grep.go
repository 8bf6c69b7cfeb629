package git

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// cmdGrep is git grep.
func cmdGrep(g *git, r *repo) error {
	f, err := g.flags("nilcvwEFPGLhHqoe:A:B:C:rI", "line-number=n", "ignore-case=i", "files-with-matches=l", "name-only=l", "count=c", "invert-match=v", "word-regexp=w", "extended-regexp=E", "fixed-strings=F", "perl-regexp=P", "files-without-match=L", "cached=\x80", "untracked=\x81", "quiet=q", "only-matching=o", "no-color=\x82", "color=\x83::", "recursive=r", "heading=\x84", "break=\x84", "text=\x82")
	if err != nil {
		return err
	}
	args := f.Args
	patterns := f.Values('e')
	if len(patterns) == 0 {
		if len(args) == 0 {
			return fatalf("no pattern given")
		}
		patterns, args = args[:1], args[1:]
	}
	for i, p := range patterns {
		switch {
		case f.Has('F'):
			p = regexp.QuoteMeta(p)
		case !f.Has('E') && !f.Has('P'):
			p = strings.NewReplacer(`\|`, `|`, `\+`, `+`, `\?`, `?`, `\(`, `(`, `\)`, `)`, `\{`, `{`, `\}`, `}`, `|`, `\|`, `+`, `\+`, `?`, `\?`, `(`, `\(`, `)`, `\)`, `{`, `\{`, `}`, `\}`).Replace(p)
		}
		if f.Has('w') {
			p = `\b(?:` + p + `)\b`
		}
		patterns[i] = p
	}
	src := strings.Join(patterns, "|")
	if f.Has('i') {
		src = "(?i)" + src
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return fatalf("command line, '%s': invalid pattern", strings.Join(patterns, "|"))
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	from, read, prefix := x.snapshot(), r.onDisk, ""
	if len(args) > 0 {
		if _, there := r.lstatUser(args[0]); !there {
			if c, err := r.resolveCommit(args[0]); err == nil {
				if from, err = r.files(c.TreeHash); err != nil {
					return err
				}
				read, prefix, args = r.stored, args[0]+":", args[1:]
			}
		}
	}
	if f.Has(0x80) {
		read = r.stored
	}
	spec, err := r.pathspec(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		if here, _ := r.rel(r.dir); here != "" {
			spec.specs, spec.hit = []string{here}, []bool{false}
		}
	}
	found := false
	for _, n := range from.names() {
		if !spec.match(n) {
			continue
		}
		b, err := read(n, from[n])
		if err != nil {
			continue // gone from the disk
		}
		name := prefix + r.shown(n)
		if f.Has('h') {
			name = ""
		}
		hits := 0
		binary := isBinary(b)
		for i, l := range splitLines(b) {
			if i&63 == 0 && !r.Step(64+len(b)>>12) {
				return tool.ErrStop
			}
			l = bytes.TrimSuffix(l, []byte("\n"))
			if re.Match(l) == f.Has('v') {
				continue
			}
			hits++
			if f.Has('l') || f.Has('L') || f.Has('q') || f.Has('c') || binary {
				continue
			}
			head := ""
			if name != "" {
				head = name + ":"
			}
			if f.Has('n') {
				head += fmt.Sprintf("%d:", i+1)
			}
			if f.Has('o') {
				for _, m := range re.FindAll(l, -1) {
					g.printf("%s%s\n", head, m)
				}
				continue
			}
			g.printf("%s%s\n", head, l)
		}
		found = found || hits > 0
		switch {
		case f.Has('q'):
		case f.Has('l') && hits > 0, f.Has('L') && hits == 0:
			g.printf("%s\n", name)
		case f.Has('c') && hits > 0:
			g.printf("%s:%d\n", name, hits)
		case binary && hits > 0 && !f.Has('l') && !f.Has('L'):
			g.printf("Binary file %s matches\n", name)
		}
	}
	if !found {
		return exit(1)
	}
	return nil
}
