package search

import (
	"io/fs"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// grepGlobs say which files of a tree are searched.
type grepGlobs struct {
	rules []globRule // in order; the last rule that matches counts
	dirs  []string
}

type globRule struct {
	pattern string
	include bool
}

// readGlobs reads --include, --exclude and similar options.
func (g *grep) readGlobs(f tool.Flags) bool {
	for _, fl := range f.All {
		switch fl.Letter {
		case optInclude, optExclude:
			g.globs.rules = append(g.globs.rules, globRule{fl.Value, fl.Letter == optInclude})
		case optExcludeDir:
			g.globs.dirs = append(g.globs.dirs, strings.TrimRight(fl.Value, "/"))
		case optExcludeFrom:
			in, err := g.OpenIn(fl.Value)
			if err != nil {
				g.Errorf(2, "%s: %s", fl.Value, tool.ErrText(err))
				return false
			}
			data, err := g.ReadAll(in)
			_ = in.Close() // it was read
			if err != nil {
				return false
			}
			for l := range strings.Lines(string(data)) {
				if l = strings.TrimRight(l, "\n"); l != "" {
					g.globs.rules = append(g.globs.rules, globRule{l, false})
				}
			}
		}
	}
	return true
}

// tailMatches reports whether a pattern matches a name, or the part after one of its slashes.
func tailMatches(pattern, name string) bool {
	for {
		if globMatch(pattern, name, false) {
			return true
		}
		i := strings.IndexByte(name, '/')
		if i < 0 {
			return false
		}
		name = name[i+1:]
	}
}

// skip reports whether a file is excluded.
func (gl *grepGlobs) skip(name string) bool {
	if len(gl.rules) == 0 {
		return false
	}
	out := false // the first rule decides about files that match no rule
	if gl.rules[0].include {
		out = true
	}
	for _, r := range gl.rules {
		if tailMatches(r.pattern, name) {
			out = !r.include
		}
	}
	return out
}

func (gl *grepGlobs) skipDir(name string, given bool) bool {
	for _, p := range gl.dirs {
		bare := strings.TrimRight(name, "/")
		if given && (globMatch(p, bare, false) || globMatch(p, strings.TrimPrefix(bare, "./"), false)) || !given && tailMatches(p, name) {
			return true
		}
	}
	return false
}

// files searches the files that the arguments name.
func (g *grep) files(args []string, f tool.Flags) {
	g.given = len(args) > 0
	g.opts.names = len(args) > 1 || g.opts.recursive
	if g.opts.recursive && len(args) == 1 && args[0] != "-" {
		if info, err := g.FS().Stat(g.Abs(args[0])); err == nil && !info.Mode.IsDir() {
			g.opts.names = false
		}
	}
	switch f.Last("Hh") {
	case 'H':
		g.opts.names = true
	case 'h':
		g.opts.names = false
	}
	if len(args) == 0 {
		args = []string{"-"}
		if g.opts.recursive {
			args[0] = "."
		}
	}
	for _, a := range args {
		if g.failed {
			return
		}
		if a == "-" {
			g.search(a, g.opts.label, g.In)
			continue
		}
		info, err := g.FS().Stat(g.Abs(a))
		switch {
		case err == nil && info.Mode.IsDir():
			switch {
			case g.opts.recursive:
				if g.given && g.globs.skipDir(a, true) {
					continue
				}
				g.tree(a)
			case g.dirs != "skip" && !g.opts.silent:
				g.flushed()
				g.Errorf(2, "%s: Is a directory", a)
				g.status = 2
			case g.dirs != "skip":
				g.status = 2
			}
		case err == nil && g.globs.skip(a):
		case err == nil && g.skipDevices && !info.Mode.IsRegular():
		default:
			g.file(a)
		}
	}
}

// tree searches a directory and everything below it.
func (g *grep) tree(root string) {
	type dir struct{ name string }
	todo := []dir{{root}}
	seen := map[string]bool{}
	for len(todo) > 0 && !g.failed {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		entries, err := g.FS().ReadDir(g.Abs(d.name))
		if err != nil {
			g.complain(d.name, err)
			continue
		}
		if !g.Step(10 + len(entries)) {
			g.failed = true
			return
		}
		var below []dir
		for _, e := range entries {
			name := strings.TrimSuffix(d.name, "/") + "/" + e.Name
			if d.name == "." && !g.given {
				name = e.Name
			}
			mode := e.Mode
			if mode&fs.ModeSymlink != 0 {
				if !g.opts.deref {
					continue
				}
				i, err := g.FS().Stat(g.Abs(name))
				if err != nil {
					g.complain(name, err)
					continue
				}
				mode = i.Mode
				if real, err := g.FS().EvalSymlinks(g.Abs(name)); err == nil && mode.IsDir() {
					if seen[real] || strings.HasPrefix(g.Abs(name)+"/", real+"/") {
						g.flushed()
						g.Errorf(2, "warning: %s: recursive directory loop", name)
						continue
					}
					seen[real] = true
				}
			}
			switch {
			case mode.IsDir():
				if !g.globs.skipDir(name, false) {
					below = append(below, dir{name})
				}
			case !mode.IsRegular() || g.globs.skip(name):
			default:
				g.file(name)
			}
			if g.failed {
				return
			}
		}
		for i := len(below) - 1; i >= 0; i-- {
			todo = append(todo, below[i])
		}
	}
}

// flushed flushes the output, so that messages come after it.
func (g *grep) flushed() {
	if g.w.Flush() != nil {
		g.failed = true
	}
}

func (g *grep) complain(name string, err error) {
	g.status = 2
	if g.Stopped(err) {
		g.failed = true
		return
	}
	if !g.opts.silent {
		g.flushed()
		g.Errorf(2, "%s: %s", name, tool.ErrText(err))
	}
}

// file searches a named file.
func (g *grep) file(name string) {
	f, err := g.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		g.complain(name, err)
		return
	}
	g.search(name, name, f)
	_ = f.Close() // it was read
}
