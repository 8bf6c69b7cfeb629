package main

import (
	"cmp"
	"strings"
)

// compareVersions orders two Debian versions as deb-version(7) says.
func compareVersions(a, b string) int {
	ae, au, ar := splitVersion(a)
	be, bu, br := splitVersion(b)
	return cmp.Or(compareNumbers(ae, be), compareParts(au, bu), compareParts(ar, br))
}

// splitVersion splits a version into epoch, upstream version and revision.
func splitVersion(v string) (epoch, upstream, revision string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// compareParts compares upstream versions or revisions: runs of other characters and runs of digits
// take turns.
func compareParts(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a = cutRun(a, false)
		y, b = cutRun(b, false)
		if c := compareLetters(x, y); c != 0 {
			return c
		}
		x, a = cutRun(a, true)
		y, b = cutRun(b, true)
		if c := compareNumbers(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// cutRun cuts the longest run of digits, or of other characters, off the beginning of s.
func cutRun(s string, digits bool) (run, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9') == digits {
		i++
	}
	return s[:i], s[i:]
}

// compareNumbers compares runs of digits of any length; "" is 0.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// compareLetters compares runs without digits. A tilde sorts before the end, letters sort before
// other characters.
func compareLetters(a, b string) int {
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(weight(a, i), weight(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

func weight(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z':
		return int(s[i])
	}
	return int(s[i]) + 256
}
