package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/carrel-dev/carrel/shell/tool"
)

// change is one path that is different.
type change struct {
	kind     byte // A, D, M, T, R, U
	old, new string
	from, to entry
	score    int // of a rename, in percent
}

// side returns the contents of one version of the files.
type side func(name string, e entry) ([]byte, error)

func (r *repo) stored(_ string, e entry) ([]byte, error) {
	if e.mode == filemode.Submodule {
		return []byte("Subproject commit " + e.hash.String() + "\n"), nil
	}
	return r.blob(e.hash)
}

// onDisk reads files of the work tree.
func (r *repo) onDisk(name string, e entry) ([]byte, error) {
	i, ok := r.lstat(name)
	if !ok {
		return r.stored(name, e)
	}
	return r.content(name, i)
}

// changes compares two snapshots.
func changes(a, b snapshot) []change {
	var out []change
	for name, x := range a {
		y, ok := b[name]
		switch {
		case !ok:
			out = append(out, change{kind: 'D', old: name, new: name, from: x})
		case x != y:
			c := change{kind: 'M', old: name, new: name, from: x, to: y}
			if (x.mode == filemode.Symlink) != (y.mode == filemode.Symlink) || (x.mode == filemode.Submodule) != (y.mode == filemode.Submodule) {
				c.kind = 'T'
			}
			out = append(out, c)
		}
	}
	for name, y := range b {
		if _, ok := a[name]; !ok {
			out = append(out, change{kind: 'A', old: name, new: name, to: y})
		}
	}
	sortChanges(out)
	return out
}

func sortChanges(cs []change) {
	slices.SortFunc(cs, func(a, b change) int { return strings.Compare(a.new, b.new) })
}

// diffOptions say how differences are shown.
type diffOptions struct {
	patch, stat, numstat, shortstat, nameOnly, nameStatus, summary, raw, quiet bool
	context                                                                    int
	noRename, zero, color, wordless                                            bool
	ignoreSpace                                                                bool
	paths                                                                      []string
	filter                                                                     string
	noPrefix                                                                   bool
}

// other reports whether a format other than a patch was requested.
func (o *diffOptions) other() bool {
	return o.stat || o.numstat || o.shortstat || o.nameOnly || o.nameStatus || o.summary || o.raw || o.quiet
}

// diffShort are the options of all commands that show differences. take reads them.
const diffShort = "pusU:wbMz"

var diffLong = []string{"patch=p", "no-patch=s", "stat=\xa0::", "numstat=\xa1", "shortstat=\xa2", "name-only=\xa3", "name-status=\xa4", "summary=\xa5", "raw=\xa6",
	"unified=U", "no-renames=\xa7", "find-renames=M", "ignore-all-space=w", "ignore-space-change=b", "quiet=\xa8", "exit-code=\xa9", "color=\xaa::", "no-color=\xab",
	"diff-filter=\xac:", "no-prefix=\xad", "patch-with-stat=\xae", "no-ext-diff=\xab", "minimal=\xab", "patience=\xab", "histogram=\xab", "diff-algorithm=\xaf:",
	"word-diff=\xb0::", "full-index=\xab", "text=\xab", "binary=\xab", "no-textconv=\xab", "relative=\xb1::", "R=\xb2", "ignore-blank-lines=\xab", "check=\xab"}

func (o *diffOptions) take(f tool.Flag) error {
	switch f.Letter {
	case 'p', 'u':
		o.patch = true
	case 's':
		*o = diffOptions{context: o.context, quiet: false, wordless: true, paths: o.paths}
	case 0xa0:
		o.stat = true
	case 0xa1:
		o.numstat = true
	case 0xa2:
		o.shortstat = true
	case 0xa3:
		o.nameOnly = true
	case 0xa4:
		o.nameStatus = true
	case 0xa5:
		o.summary = true
	case 0xa6:
		o.raw = true
	case 0xa7:
		o.noRename = true
	case 0xa8:
		o.quiet = true
	case 0xac:
		o.filter = f.Value
	case 0xad:
		o.noPrefix = true
	case 0xae:
		o.patch, o.stat = true, true
	case 'z':
		o.zero = true
	case 'w', 'b':
		o.ignoreSpace = true
	case 0xaa:
		o.color = f.Value == "always"
	case 'U':
		n := 0
		for _, c := range f.Value {
			if c < '0' || c > '9' || n > 1e6 {
				return fatalf("--unified expects a number")
			}
			n = 10*n + int(c-'0')
		}
		o.context, o.patch = n, true
	case 0xb0:
		return fatalf("word differences are not available here")
	}
	return nil
}

// show writes the differences.
func (r *repo) show(cs []change, old, new side, o *diffOptions) error {
	if !o.noRename {
		var err error
		if cs, err = r.renames(cs, old, new); err != nil {
			return err
		}
	}
	if o.filter != "" {
		cs = slices.DeleteFunc(cs, func(c change) bool { return strings.IndexByte(o.filter, c.kind) < 0 })
	}
	end := "\n"
	if o.zero {
		end = "\x00"
	}
	if o.raw {
		for _, c := range cs {
			name := quotePath(c.new)
			if c.kind == 'R' {
				name = quotePath(c.old) + "\t" + name
			}
			r.printf(":%06o %06o %s %s %s\t%s\n", uint32(c.from.mode), uint32(c.to.mode), abbreviate(c.from.hash), abbreviate(c.to.hash), c.letter(), name)
		}
	}
	for _, c := range cs {
		switch {
		case o.nameStatus && c.kind == 'R':
			r.printf("%s\t%s\t%s%s", c.letter(), quotePath(c.old), quotePath(c.new), end)
		case o.nameStatus:
			r.printf("%s\t%s%s", c.letter(), quotePath(c.new), end)
		case o.nameOnly:
			r.printf("%s%s", quotePath(c.new), end)
		}
	}
	if o.stat || o.numstat || o.shortstat {
		if err := r.stat(cs, old, new, o); err != nil {
			return err
		}
	}
	if o.summary {
		r.summary(cs)
	}
	if !o.patch {
		return nil
	}
	if o.stat || o.numstat || o.shortstat || o.raw {
		r.printf("\n")
	}
	for _, c := range cs {
		if err := r.patch(c, old, new, o); err != nil {
			return err
		}
	}
	return nil
}

func (c change) letter() string {
	if c.kind == 'R' {
		return fmt.Sprintf("R%03d", c.score)
	}
	return string(rune(c.kind))
}

func abbreviate(h plumbing.Hash) string { return h.String()[:7] }

// contents reads both versions of a change.
func (c change) contents(old, new side) (a, b []byte, err error) {
	if c.kind != 'A' {
		if a, err = old(c.old, c.from); err != nil {
			return nil, nil, err
		}
	}
	if c.kind != 'D' {
		b, err = new(c.new, c.to)
	}
	return a, b, err
}
