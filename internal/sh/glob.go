package sh

import (
	"strings"
)

// maxNames is how many file names one pattern may expand to.
const maxNames = 1 << 20

// fileNames appends the files that a field's pattern matches, or the field itself.
func (r *runner) fileNames(out []string, f field) []string {
	if f.pat == "" || r.opts.noglob {
		return append(out, f.text)
	}
	names := r.glob(f.pat)
	switch {
	case len(names) > 0:
		return append(out, names...)
	case r.opts.nullglob:
		return out
	case r.opts.failglob:
		r.errorf("no match: %s", f.text)
		r.abort(1)
		return out
	}
	return append(out, f.text)
}

// glob returns the paths that a pattern matches, in order.
func (r *runner) glob(pat string) []string {
	found := []string{""}
	if strings.HasPrefix(pat, "/") {
		found = []string{"/"}
		pat = strings.TrimLeft(pat, "/")
	}
	parts := splitPattern(pat)
	for i, part := range parts {
		last := i == len(parts)-1
		var next []string
		for _, base := range found {
			if !r.step() || len(next) > maxNames {
				return nil
			}
			switch {
			case part == "":
				if last && base != "" { // a trailing slash: directories only
					if fi, err := r.view.Stat(r.abs(base)); err == nil && fi.Mode.IsDir() {
						next = append(next, base)
					}
				}
			case part == "**" && r.opts.globstar:
				next = r.globTree(next, base, last)
			case !strings.ContainsAny(part, magicChars):
				if _, err := r.view.Lstat(r.abs(base + part)); err == nil {
					next = append(next, base+part+slash(last))
				}
			default:
				next = r.globDir(next, base, part, last)
			}
		}
		found = next
	}
	return found
}

func slash(last bool) string {
	if last {
		return ""
	}
	return "/"
}

// splitPattern splits a pattern at slashes that are not escaped or in brackets.
func splitPattern(pat string) []string {
	var out []string
	start := 0
	for i := 0; i < len(pat); i++ {
		switch pat[i] {
		case '\\':
			i++
		case '/':
			out = append(out, pat[start:i])
			start = i + 1
		}
	}
	return append(out, pat[start:])
}

// globDir matches one name of a pattern in one directory.
func (r *runner) globDir(out []string, base, part string, last bool) []string {
	dir := base
	if dir == "" {
		dir = "."
	}
	entries, err := r.view.ReadDir(r.abs(dir))
	if err != nil {
		return out
	}
	hidden := strings.HasPrefix(part, ".") || strings.HasPrefix(part, `\.`)
	for _, e := range entries {
		if strings.HasPrefix(e.Name, ".") && !hidden && !r.opts.dotglob || !r.match(part, e.Name) {
			continue
		}
		if !last {
			if fi, err := r.view.Stat(e.Path); err != nil || !fi.Mode.IsDir() {
				continue
			}
		}
		out = append(out, base+e.Name+slash(last))
	}
	return out
}

// globTree matches **: the directory and all below it.
func (r *runner) globTree(out []string, base string, last bool) []string {
	if !last || base != "" {
		out = append(out, base)
	}
	for todo := []string{base}; len(todo) > 0; {
		dir := todo[0]
		todo = todo[1:]
		for _, p := range r.globDir(nil, dir, "*", true) {
			fi, err := r.view.Lstat(r.abs(p))
			isDir := err == nil && fi.Mode.IsDir()
			if last {
				out = append(out, p)
			} else if isDir {
				out = append(out, p+"/")
			}
			if isDir {
				todo = append(todo, p+"/")
			}
			if len(out) > maxNames || !r.step() {
				return nil
			}
		}
	}
	return out
}
