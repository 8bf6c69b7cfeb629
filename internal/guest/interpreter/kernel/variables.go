package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
)

// variables writes code that gives each cell its environment, in a language whose kernel is not
// ours. It keeps count of what it set, so that the variables of one cell are gone in the next.
type variables struct {
	set      func(name, value string) string
	unset    func(name string) string
	inherits bool // whether the language shows the environment that its process began with

	began map[string]string // that environment
	now   map[string]string // what was set last
}

// variablesOf returns the variables of a kernel's language, or nil if we know no code for it. Java
// can't change its environment, so there they are system properties, as in E2B's interpreter.
func variablesOf(language string) *variables {
	switch strings.ToLower(language) {
	case "r":
		return &variables{inherits: true,
			set: func(name, value string) string {
				return fmt.Sprintf("do.call(Sys.setenv, setNames(list(%s), %s))\n", quoteR(value), quoteR(name))
			},
			unset: func(name string) string { return fmt.Sprintf("Sys.unsetenv(%s)\n", quoteR(name)) }}
	case "java":
		return &variables{
			set: func(name, value string) string {
				return fmt.Sprintf("System.setProperty(%s, %s);\n", quoteJava(name), quoteJava(value))
			},
			unset: func(name string) string {
				return fmt.Sprintf("System.clearProperty(%s);\n", quoteJava(name))
			}}
	}
	return nil
}

// start notes the environment that the kernel's process begins with, as "NAME=value".
func (v *variables) start(environ []string) {
	if !v.inherits {
		return
	}
	v.began = map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		v.began[name] = value
	}
}

// change returns the code that makes the environment that of a cell, or "" if it is that already.
func (v *variables) change(c Cell) string {
	want := maps.Clone(c.Base)
	if want == nil {
		want = map[string]string{}
	}
	maps.Copy(want, c.Env)
	delete(want, "") // no program can have it
	var code strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v.now)) {
		if _, ok := want[name]; ok {
			continue
		}
		if value, ok := v.began[name]; ok {
			code.WriteString(v.set(name, value))
		} else {
			code.WriteString(v.unset(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if value, ok := v.now[name]; !ok || value != want[name] {
			code.WriteString(v.set(name, want[name]))
		}
	}
	v.now = want
	return code.String()
}

// quoteR quotes a string for R, which refuses a string that has both \x and \u.
func quoteR(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r >= 0x7f:
			fmt.Fprintf(&b, "\\U%08x", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// quoteJava quotes a string for Java. Java reads \u before it looks for the end of a string, so
// only characters that mean nothing to it are written in that way.
func quoteJava(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, u := range utf16.Encode([]rune(s)) {
		switch {
		case u == '"' || u == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(u))
		case u < ' ' || u == 0x7f:
			fmt.Fprintf(&b, "\\%03o", u)
		case u < 0x7f:
			b.WriteByte(byte(u))
		default:
			fmt.Fprintf(&b, "\\u%04x", u)
		}
	}
	b.WriteByte('"')
	return b.String()
}
