package interp

import (
	"slices"
	"strings"
)

// maxNames is the most file names that one pattern may expand to.
const maxNames = 1 << 20

// fileNames appends the files that a pattern matches, or the text itself.
func (r *runner) fileNames(out []string, text, pat string) []string {
	if r.opts.noglob || !r.hasPattern(pat) {
		return append(out, text)
	}
	names := r.glob(pat)
	if len(names) > 0 {
		names = r.ignored(names)
	}
	switch {
	case len(names) > 0:
		return append(out, names...)
	case r.opts.failglob:
		r.errorf("no match: %s", text)
		r.discard()
		return out
	case r.opts.nullglob:
		return out
	}
	return append(out, text)
}

// hasPattern reports whether a pattern has a special character.
func (r *runner) hasPattern(pat string) bool {
	for i := 0; i < len(pat); i++ {
		switch c := pat[i]; c {
		case '\\':
			i++
		case '*', '?':
			return true
		case '[':
			if strings.IndexByte(pat[i+1:], ']') >= 0 {
				return true
			}
		case '+', '@', '!':
			if i+1 < len(pat) && pat[i+1] == '(' && r.opts.extglob {
				return true
			}
		}
	}
	return false
}

// ignored removes the names that GLOBIGNORE matches.
func (r *runner) ignored(names []string) []string {
	ignore, ok := r.get("GLOBIGNORE")
	if !ok || ignore == "" {
		return names
	}
	pats := splitIgnore(ignore)
	return slices.DeleteFunc(names, func(n string) bool {
		base := n[strings.LastIndexByte(n, '/')+1:]
		if base == "." || base == ".." {
			return true
		}
		for _, p := range pats {
			if r.matchPath(p, n) {
				return true
			}
		}
		return false
	})
}

// matchPath matches a path part by part: a pattern never matches a slash.
func (r *runner) matchPath(pat, name string) bool {
	pats, names := strings.Split(pat, "/"), strings.Split(name, "/")
	if len(pats) != len(names) {
		return false
	}
	for i, p := range pats {
		if !r.matchFold(p, names[i], false) {
			return false
		}
	}
	return true
}

// splitIgnore splits at colons outside of brackets.
func splitIgnore(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			if _, end, ok := parseBracket(s, i); ok {
				i = end - 1
			}
		case ':':
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
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
		lit, isLit := r.plainName(part)
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
				} else if base != "" {
					next = append(next, base+"/")
				}
			case part == "**" && r.opts.globstar:
				next = r.globTree(next, base, last)
			case isLit:
				if _, err := r.view.Lstat(r.abs(base + lit)); err == nil {
					next = append(next, base+lit+slash(last))
				}
			default:
				next = r.globDir(next, base, part, last)
			}
		}
		found = next
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// plainName returns a part of a pattern as a name, if no character in it is special.
func (r *runner) plainName(part string) (string, bool) {
	if r.hasPattern(part) {
		return "", false
	}
	if strings.IndexByte(part, '\\') < 0 {
		return part, true
	}
	b := make([]byte, 0, len(part))
	for i := 0; i < len(part); i++ {
		if part[i] == '\\' && i+1 < len(part) {
			i++
		}
		b = append(b, part[i])
	}
	return string(b), true
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
	hidden := strings.HasPrefix(part, ".") || strings.HasPrefix(part, `\.`) || strings.Contains(part, "(.") || strings.Contains(part, "|.") ||
		strings.Contains(part, `(\.`)
	dots := r.opts.dotglob
	if v := r.str("GLOBIGNORE"); v != "" {
		dots = true
	}
	if !r.opts.globskipdots && hidden && last {
		for _, name := range []string{".", ".."} {
			if r.matchFold(part, name, false) {
				out = append(out, base+name)
			}
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, ".") && !hidden && !dots || !r.matchFold(part, e.Name, r.opts.nocaseglob) {
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

// globTree matches **: the directory and everything below it.
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
