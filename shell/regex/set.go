package regex

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"
)

// set is a set of characters: pairs of first and last character, ascending and disjoint.
type set []rune

// setOf makes a set from pairs in any order.
func setOf(pairs ...rune) set {
	type pair struct{ lo, hi rune }
	var ps []pair
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] <= pairs[i+1] {
			ps = append(ps, pair{pairs[i], pairs[i+1]})
		}
	}
	slices.SortFunc(ps, func(a, b pair) int { return int(a.lo - b.lo) })
	var out set
	for _, p := range ps {
		if n := len(out); n > 0 && p.lo <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p.hi)
			continue
		}
		out = append(out, p.lo, p.hi)
	}
	return out
}

func (s set) plus(t set) set { return setOf(slices.Concat(s, t)...) }

// not returns all other characters.
func (s set) not() set {
	var out set
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if next < s[i] {
			out = append(out, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, next, unicode.MaxRune)
	}
	return out
}

func (s set) minus(t set) set { return s.not().plus(t).not() }

// single returns the character of a set that has only one.
func (s set) single() (rune, bool) {
	if len(s) == 2 && s[0] == s[1] {
		return s[0], true
	}
	return 0, false
}

// width returns the least and the greatest length in bytes of its characters.
func (s set) width() (lo, hi int) {
	if len(s) == 0 {
		return 0, 0
	}
	return runeLen(s[0]), runeLen(s[len(s)-1])
}

func runeLen(r rune) int {
	switch {
	case r < 0x80:
		return 1
	case r < 0x800:
		return 2
	case r < 0x10000:
		return 3
	}
	return 4
}

// folded returns the set together with the other cases of its characters.
func (s set) folded() set {
	out := slices.Clone(s)
	for i := 0; i < len(s); i += 2 {
		lo, hi := s[i], min(s[i+1], 0x1ffff) // no letters beyond have cases
		if hi-lo > 0x8000 {
			continue // it has both cases of all cased characters
		}
		for r := lo; r <= hi; r++ {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				out = append(out, f, f)
			}
		}
	}
	return setOf(out...)
}

func tableSet(tables ...*unicode.RangeTable) set {
	var out set
	for _, t := range tables {
		for _, r := range t.R16 {
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				if r.Stride == 1 {
					out = append(out, c, rune(r.Hi))
					break
				}
				out = append(out, c, c)
			}
		}
		for _, r := range t.R32 {
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				if r.Stride == 1 {
					out = append(out, c, rune(r.Hi))
					break
				}
				out = append(out, c, c)
			}
		}
	}
	return setOf(out...)
}

var (
	anySet    = set{0, unicode.MaxRune}
	digitSet  = set{'0', '9'}
	asciiWord = set{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}
	spaceSet  = set{'\t', '\r', ' ', ' '}
)

var classCache sync.Map // of string to set

// class returns a POSIX class of Unicode characters, or nil for an unknown name.
func class(name string) set {
	if s, ok := classCache.Load(name); ok {
		return s.(set)
	}
	f := classMakers[name]
	if f == nil {
		return nil
	}
	s := f()
	classCache.Store(name, s)
	return s
}

// classMakers make the classes at their first use, because the tables are large.
var classMakers = map[string]func() set{
	"alpha": func() set {
		return tableSet(unicode.L, unicode.Nl, unicode.Mn, unicode.Mc).plus(tableSet(unicode.Nd).minus(digitSet))
	},
	"digit": func() set { return digitSet },
	"alnum": func() set { return tableSet(unicode.L, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Nd) },
	"upper": func() set { return tableSet(unicode.Lu, unicode.Lt) },
	"lower": func() set { return tableSet(unicode.Ll) },
	"space": func() set {
		return tableSet(unicode.White_Space).minus(set{0x85, 0x85, 0xa0, 0xa0, 0x2007, 0x2007, 0x202f, 0x202f})
	},
	"blank": func() set {
		return tableSet(unicode.Zs).minus(set{0xa0, 0xa0, 0x2007, 0x2007, 0x202f, 0x202f}).plus(set{'\t', '\t'})
	},
	"cntrl": func() set { return set{0, 0x1f, 0x7f, 0x9f, 0x2028, 0x2029} },
	"punct": func() set { return setOf('!', '/', ':', '@', '[', '`', '{', '~').plus(tableSet(unicode.P, unicode.S)) },
	"print": func() set {
		return tableSet(unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Zs, unicode.Cf, unicode.Co)
	},
	"graph": func() set {
		return tableSet(unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Cf, unicode.Co)
	},
	"xdigit": func() set { return set{'0', '9', 'A', 'F', 'a', 'f'} },
	"word": func() set {
		return tableSet(unicode.L, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Nd).plus(set{'_', '_'})
	},
}

// asciiClasses are the classes of Perl's expressions.
var asciiClasses = map[string]set{
	"alpha": {'A', 'Z', 'a', 'z'}, "digit": digitSet, "alnum": {'0', '9', 'A', 'Z', 'a', 'z'}, "upper": {'A', 'Z'}, "lower": {'a', 'z'},
	"space": spaceSet, "blank": {'\t', '\t', ' ', ' '}, "cntrl": {0, 0x1f, 0x7f, 0x7f}, "punct": {'!', '/', ':', '@', '[', '`', '{', '~'},
	"print": {' ', '~'}, "graph": {'!', '~'}, "xdigit": {'0', '9', 'A', 'F', 'a', 'f'}, "word": asciiWord, "ascii": {0, 0x7f},
}

// isWord reports whether a character is part of words.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return r != utf8.RuneError && unicode.In(r, unicode.L, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Nd)
}
