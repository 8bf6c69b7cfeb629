package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is a path pattern, by its segments. The segment "**" stands for any number of segments.
type pattern []string

const (
	maxPattern = 1024 // bytes
	manyParts  = "**"
)

// parsePattern checks a path pattern.
func parsePattern(s string) (pattern, error) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return nil, fmt.Errorf("%s does not begin with /", clip(s))
	case len(s) > maxPattern:
		return nil, fmt.Errorf("%s is longer than %d bytes", clip(s), maxPattern)
	case strings.Contains(s, "%"):
		return nil, fmt.Errorf("%s is encoded: paths are written as they are meant", clip(s))
	}
	if err := checkSegments(s); err != nil {
		return nil, fmt.Errorf("%s: %w", clip(s), err)
	}
	segments := strings.Split(s[1:], "/")
	for _, seg := range segments {
		if strings.Contains(seg, manyParts) && seg != manyParts {
			return nil, fmt.Errorf(`%s: "**" stands for whole segments: write /**/`, clip(s))
		}
	}
	return segments, nil
}

// errAmbiguous is the error for a path that servers may read in more than one way.
var errAmbiguous = errors.New("servers may read it in more than one way")

// cleanPath decodes the path of a request line for matching. It refuses a path that two servers may
// read differently, because no pattern could judge it.
func cleanPath(raw string) (string, error) {
	raw, _, _ = strings.Cut(raw, "?")
	if !strings.HasPrefix(raw, "/") {
		return "", errAmbiguous
	}
	path, err := decodePath(raw)
	if err != nil {
		return "", err
	}
	if checkSegments(path) != nil {
		return "", errAmbiguous
	}
	return path, nil
}

// decodePath removes percent-encoding, once. It refuses a path whose meaning changes with decoding:
// an encoded separator, or a character that is not part of a path.
func decodePath(raw string) (string, error) {
	if !strings.Contains(raw, "%") {
		return raw, nil
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			out = append(out, raw[i])
			continue
		}
		if i+2 >= len(raw) {
			return "", errAmbiguous
		}
		hi, lo := unhex(raw[i+1]), unhex(raw[i+2])
		if hi < 0 || lo < 0 {
			return "", errAmbiguous
		}
		c := byte(hi<<4 | lo)
		if c == '/' || c == '%' || c == '?' || c == '#' { // "%2f"; "%25…" may be decoded twice
			return "", errAmbiguous
		}
		out, i = append(out, c), i+2
	}
	return string(out), nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// checkSegments refuses segments that servers normalise in different ways.
func checkSegments(path string) error {
	if !utf8.ValidString(path) {
		return errors.New("is not UTF-8")
	}
	if i := strings.IndexFunc(path, func(c rune) bool { return c == ';' || c == '\\' || c == '#' || c == '?' || unicode.IsControl(c) }); i >= 0 {
		r, _ := utf8.DecodeRuneInString(path[i:])
		return fmt.Errorf("has the character %q", r)
	}
	segments := strings.Split(path[1:], "/")
	for i, seg := range segments {
		switch {
		case seg == "." || seg == "..":
			return errors.New("has a segment of dots alone")
		case seg == "" && i < len(segments)-1:
			return errors.New("has an empty segment")
		}
	}
	return nil
}

// matches reports whether a clean path matches.
func (p pattern) matches(path string) bool {
	segments := strings.Split(path[1:], "/")
	return glob(len(p), len(segments), func(i int) bool { return p[i] == manyParts },
		func(i, j int) bool { return matchSegment(p[i], segments[j]) })
}

// matchSegment matches one segment. "*" alone does not match an empty segment, so "/v1/*" does not
// match "/v1/".
func matchSegment(p, s string) bool {
	if p == "*" {
		return s != ""
	}
	return glob(len(p), len(s), func(i int) bool { return p[i] == '*' }, func(i, j int) bool { return p[i] == s[j] })
}

// glob matches n parts against a pattern of m parts. A star matches any number of parts. It goes
// back only to the last star, so it never needs more than m times n steps.
func glob(m, n int, star func(i int) bool, same func(i, j int) bool) bool {
	i, j, last, mark := 0, 0, -1, 0
	for j < n {
		switch {
		case i < m && star(i):
			last, mark = i, j
			i++
		case i < m && same(i, j):
			i, j = i+1, j+1
		case last >= 0:
			mark++
			i, j = last+1, mark
		default:
			return false
		}
	}
	for i < m && star(i) {
		i++
	}
	return i == m
}
