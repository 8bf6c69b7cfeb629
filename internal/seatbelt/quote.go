package seatbelt

import (
	"fmt"
	"path"
	"strings"

	"github.com/carrel-dev/carrel"
)

// maxString is the longest string that the reader of profiles accepts. macOS's paths are shorter.
const maxString = 1000

// quote writes a string of a profile. The profile's reader is a small Scheme: a character after a
// backslash stands for itself, except for some letters. All other bytes stand for themselves, even
// if they are not text.
func quote(s string) (string, error) {
	if len(s) > maxString {
		return `""`, bad(s[:60]+"…", "is longer than macOS's paths can be")
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case 0:
			return `""`, bad(s, "has a NUL in it")
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String(), nil
}

func bad(p, why string) error {
	return &carrel.Error{Op: "run", Kind: carrel.Invalid, Field: "path", Err: fmt.Errorf("%q %s", p, why)}
}

// moved are directories that macOS keeps in another place than their usual name says. The kernel
// judges the real place.
var moved = []string{"/tmp", "/var", "/etc"}

const dataVolume = "/System/Volumes/Data"

// real returns a path as the kernel sees it. Links are already resolved, except in the last
// element.
func (w *writer) real(p string) string {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
		w.fail(bad(p, "is not an absolute, clean path"))
		return "/"
	}
	// Files of the data volume are judged by their place in the whole tree.
	if rest, ok := strings.CutPrefix(p, dataVolume); ok && strings.HasPrefix(rest, "/") {
		p = rest
	}
	for _, m := range moved {
		if p == m || strings.HasPrefix(p, m+"/") {
			return "/private" + p
		}
	}
	return p
}

// depth returns the number of elements of a path.
func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

// below reports whether p is dir or in it.
func below(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
