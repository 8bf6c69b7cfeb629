package seatbelt

import (
	"fmt"
	"path"
	"strings"

	"github.com/carrel-dev/carrel"
)

// maxString is what the reader of profiles takes in one string; it is also longer than macOS's paths can be.
const maxString = 1000

// quote writes a string of a profile. Its reader is a small Scheme: a backslash takes the character behind
// it as it is, but for some letters. Everything else stands for itself, bytes that are no text too.
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

// moved are the directories that macOS has elsewhere than their usual names say: the kernel judges where they are.
var moved = []string{"/tmp", "/var", "/etc"}

const dataVolume = "/System/Volumes/Data"

// real is a path as the kernel sees it. Links are resolved already, but for those that are the last element.
func (w *writer) real(p string) string {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
		w.fail(bad(p, "is not an absolute, clean path"))
		return "/"
	}
	// What the data volume holds is judged by its place in the whole tree.
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

// depth is how many elements a path has.
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
