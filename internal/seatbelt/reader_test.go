package seatbelt

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// node is an expression of a profile: a list, or an atom with its text.
type node struct {
	list   []node
	atom   string
	quoted bool
	isList bool
}

func (n node) head() string {
	if n.isList && len(n.list) > 0 {
		return n.list[0].atom
	}
	return ""
}

// read reads a profile as Seatbelt's Scheme does. It fails if brackets or quotes are not closed.
func read(text string) (out []node, err error) {
	p := 0
	var list func() ([]node, error)
	list = func() ([]node, error) {
		var out []node
		for p < len(text) {
			switch c := text[p]; {
			case c == ' ' || c == '\n' || c == '\t':
				p++
			case c == ';':
				for p < len(text) && text[p] != '\n' {
					p++
				}
			case c == '(':
				p++
				inner, err := list()
				if err != nil {
					return nil, err
				}
				if p >= len(text) || text[p] != ')' {
					return nil, fmt.Errorf("a bracket is not closed")
				}
				p++
				out = append(out, node{list: inner, isList: true})
			case c == ')':
				return out, nil
			case c == '"':
				s, err := str(text, &p)
				if err != nil {
					return nil, err
				}
				out = append(out, node{atom: s, quoted: true})
			default:
				start := p
				for p < len(text) && !strings.ContainsRune(" \n\t();\"", rune(text[p])) {
					p++
				}
				out = append(out, node{atom: text[start:p]})
			}
		}
		return out, nil
	}
	out, err = list()
	if err == nil && p != len(text) {
		err = fmt.Errorf("a bracket too many at %d", p)
	}
	return out, err
}

// str reads a string. \n, \r, \t, \xHH and octal are characters; any other character after a
// backslash stands for itself.
func str(text string, p *int) (string, error) {
	var b strings.Builder
	for *p++; *p < len(text); *p++ {
		switch c := text[*p]; c {
		case '"':
			*p++
			if b.Len() > 1023 {
				return "", fmt.Errorf("a string of %d bytes", b.Len())
			}
			return b.String(), nil
		case '\\':
			*p++
			if *p >= len(text) {
				return "", fmt.Errorf("a string is not closed")
			}
			switch c := text[*p]; c {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 't':
				b.WriteByte('\t')
			case 'x', 'X', '0', '1', '2', '3', '4', '5', '6', '7':
				return "", fmt.Errorf("a number in a string: %q", text[*p:])
			default:
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("a string is not closed")
}

// statement is one rule.
type statement struct {
	allow      bool
	operations []string
	filters    []node
}

// profile is a profile that was read.
type profile struct {
	t     testing.TB
	text  string
	rules []statement
	regex map[string]*regexp.Regexp
}

func parse(t testing.TB, text string) *profile {
	t.Helper()
	nodes, err := read(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	p := &profile{t: t, text: text, regex: map[string]*regexp.Regexp{}}
	for i, n := range nodes {
		switch n.head() {
		case "version":
			if i != 0 {
				t.Fatal("version is not first")
			}
			continue
		case "allow", "deny":
		default:
			t.Fatalf("no rule: %v in\n%s", n, text)
		}
		s := statement{allow: n.head() == "allow"}
		for _, a := range n.list[1:] {
			if a.isList {
				s.filters = append(s.filters, a)
				p.check(a)
			} else if a.quoted || len(s.filters) > 0 {
				t.Fatalf("a word among filters: %v", n)
			} else {
				s.operations = append(s.operations, a.atom)
			}
		}
		if len(s.operations) == 0 {
			t.Fatalf("a rule about nothing: %v", n)
		}
		p.rules = append(p.rules, s)
	}
	return p
}

// check checks a filter, so that unknown filters and bad expressions are found even if no path
// reaches them.
func (p *profile) check(f node) {
	switch f.head() {
	case "regex", "ipc-posix-name-regex":
		if r, err := regexp.Compile("(?s)" + f.list[1].atom); err != nil {
			p.t.Errorf("%q: %v", f.list[1].atom, err)
		} else {
			p.regex[f.list[1].atom] = r
		}
		if !strings.HasPrefix(f.list[1].atom, "^") {
			p.t.Errorf("%q is not anchored", f.list[1].atom)
		}
	case "literal", "subpath":
		if !strings.HasPrefix(f.list[1].atom, "/") || !f.list[1].quoted {
			p.t.Errorf("%v names no absolute path", f)
		}
	case "require-all", "require-any", "require-not":
		if len(f.list) < 2 {
			p.t.Errorf("%v requires nothing", f)
		}
		for _, c := range f.list[1:] {
			p.check(c)
		}
	case "local", "remote":
		if f.list[1].atom == "unix-socket" && len(f.list) > 2 {
			p.check(f.list[2])
		}
	case "target", "sysctl-name", "sysctl-name-prefix", "global-name", "iokit-registry-entry-class", "ipc-posix-name", "extension", "socket-domain":
	default:
		p.t.Errorf("unknown filter %v", f)
	}
}

// matches reports whether a filter matches a path. No process has extensions.
func (p *profile) matches(f node, path string) bool {
	switch f.head() {
	case "literal":
		return path == f.list[1].atom
	case "subpath":
		return below(path, f.list[1].atom)
	case "regex":
		return p.regex[f.list[1].atom].MatchString(path)
	case "require-all":
		for _, c := range f.list[1:] {
			if !p.matches(c, path) {
				return false
			}
		}
		return true
	case "require-any":
		for _, c := range f.list[1:] {
			if p.matches(c, path) {
				return true
			}
		}
		return false
	case "require-not":
		return !p.matches(f.list[1], path)
	}
	return false
}

// allows returns the profile's decision about an operation on a path. It reads the profile in two
// ways, which must agree: the last rule that matches decides; or the last rule about exactly this
// operation decides, before rules about its family.
func (p *profile) allows(operation, path string) bool {
	p.t.Helper()
	last, exact, hasExact := false, false, false
	for _, r := range p.rules {
		family, very := false, false
		for _, o := range r.operations {
			very = very || o == operation
			family = family || o == "default" || strings.HasSuffix(o, "*") && strings.HasPrefix(operation, strings.TrimSuffix(o, "*"))
		}
		if !family && !very {
			continue
		}
		hit := len(r.filters) == 0
		for _, f := range r.filters {
			hit = hit || p.matches(f, path)
		}
		if !hit {
			continue
		}
		last = r.allow
		if very {
			exact, hasExact = r.allow, true
		}
	}
	if hasExact && exact != last {
		p.t.Errorf("%s of %q depends on how the profile is read: %v or %v", operation, path, last, exact)
	}
	return last
}

// has reports whether the profile contains a rule, whatever its spaces.
func (p *profile) has(rule string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return strings.Contains(squeeze(p.text), squeeze(rule))
}
