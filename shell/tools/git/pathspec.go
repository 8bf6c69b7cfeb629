package git

import (
	"path"
	"strings"
)

// pathspec selects paths: names, directories and patterns.
type pathspec struct {
	r     *repo
	specs []string
	hit   []bool
}

func (p *pathspec) all() bool { return len(p.specs) == 0 }

// match reports whether a path is selected. Without any spec all paths are.
func (p *pathspec) match(name string) bool {
	ok := len(p.specs) == 0
	for i, s := range p.specs {
		if s == "" || s == name || strings.HasPrefix(name, s+"/") || strings.ContainsAny(s, "*?[") && wild(s, name) {
			p.hit[i] = true
			ok = true
		}
	}
	return ok
}

// below reports whether a spec names a file in a directory.
func (p *pathspec) below(dir string) bool {
	for i, s := range p.specs {
		if strings.HasPrefix(s, dir) {
			p.hit[i] = true
			return true
		}
	}
	return false
}

// missed returns a spec that selected nothing.
func (p *pathspec) missed(args []string) (string, bool) {
	for i, h := range p.hit {
		if !h && p.specs[i] != "" {
			return args[i], true
		}
	}
	return "", false
}

// wild matches a pattern whose stars also match slashes.
func wild(pattern, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		if i < len(pattern) {
			switch c := pattern[i]; {
			case c == '*':
				star, mark = i, j
				i++
				continue
			case c == '?':
				i++
				j++
				continue
			case c == '[':
				if end := strings.IndexByte(pattern[i+1:], ']'); end > 0 {
					if ok, err := path.Match(pattern[i:i+end+2], s[j:j+1]); err == nil && ok {
						i += end + 2
						j++
						continue
					}
				}
			default:
				if c == '\\' && i+1 < len(pattern) {
					i++
				}
				if pattern[i] == s[j] {
					i++
					j++
					continue
				}
			}
		}
		if star < 0 {
			return false
		}
		mark++
		i, j = star+1, mark
	}
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i == len(pattern)
}
