package search

import "unicode/utf8"

// globMatch reports whether a name matches a shell pattern with * ? [...] and \. With path, * and ?
// don't match a slash, and ** between slashes matches any directories. Its time is at most
// proportional to the product of the lengths.
func globMatch(pattern, name string, path bool) bool {
	type state struct{ p, n int }
	star, deep := state{-1, 0}, state{-1, 0}
	p, n := 0, 0
	for {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			if path && len(pattern) > p+1 && pattern[p+1] == '*' && (p == 0 || pattern[p-1] == '/') && (len(pattern) == p+2 || pattern[p+2] == '/') {
				if p += 2; p < len(pattern) {
					p++ // ** and its slash also match nothing
				}
				deep, star = state{p, n}, state{-1, 0}
				if p == len(pattern) {
					return true
				}
				continue
			}
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			star = state{p, n}
			continue
		case p == len(pattern) && n == len(name):
			return true
		case p < len(pattern) && n < len(name):
			if np, nn, ok := globOne(pattern, name, p, n, path); ok {
				p, n = np, nn
				continue
			}
		}
		// Let the last star match one more character.
		if star.p >= 0 && star.n < len(name) && (!path || name[star.n] != '/') {
			_, size := utf8.DecodeRuneInString(name[star.n:])
			star.n += size
			p, n = star.p, star.n
			continue
		}
		if deep.p < 0 {
			return false
		}
		for deep.n < len(name) && name[deep.n] != '/' {
			deep.n++
		}
		if deep.n == len(name) {
			return false
		}
		deep.n++
		star = state{-1, 0}
		p, n = deep.p, deep.n
	}
}

// globOne matches one element of the pattern.
func globOne(pattern, name string, p, n int, path bool) (int, int, bool) {
	r, size := utf8.DecodeRuneInString(name[n:])
	switch c := pattern[p]; c {
	case '?':
		return p + 1, n + size, !path || r != '/'
	case '[':
		if np, ok, valid := globClass(pattern, p, r); valid {
			return np, n + size, ok && (!path || r != '/')
		}
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	want, psize := utf8.DecodeRuneInString(pattern[p:])
	return p + psize, n + size, want == r && psize == size
}

// globClass matches a bracket expression. valid is false when it has no end.
func globClass(pattern string, p int, r rune) (next int, ok, valid bool) {
	i := p + 1
	neg := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if neg {
		i++
	}
	for first := true; ; first = false {
		if i >= len(pattern) {
			return 0, false, false
		}
		if pattern[i] == ']' && !first {
			return i + 1, ok != neg, true
		}
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		lo, size := utf8.DecodeRuneInString(pattern[i:])
		i += size
		hi := lo
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			hi, size = utf8.DecodeRuneInString(pattern[i+1:])
			i += 1 + size
		}
		ok = ok || lo <= r && r <= hi
	}
}
