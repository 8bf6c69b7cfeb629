package gitdir

import "strings"

// Entry is one setting of a git configuration. Section and Key are in lower case, as git compares
// them.
type Entry struct {
	Section string
	Sub     string // the subsection, as it is written
	HasSub  bool
	Key     string
	Value   string
	Bare    bool // a key alone, which means true
}

// Name is the setting's name as "git config" writes it.
func (e Entry) Name() string {
	if e.HasSub {
		return e.Section + "." + e.Sub + "." + e.Key
	}
	return e.Section + "." + e.Key
}

// parser reads one configuration.
type parser struct {
	rest         string
	section, sub string
	hasSub       bool
	whole        bool
	out          []Entry
}

// Parse reads a configuration. Git refuses a file with an error in it. Parse leaves out the line
// with the error and returns whole as false.
func Parse(data []byte) (entries []Entry, whole bool) {
	p := &parser{rest: strings.TrimPrefix(string(data), "\xef\xbb\xbf"), whole: true}
	for p.rest != "" {
		switch c := p.rest[0]; {
		case c == '\n' || space(c):
			p.rest = p.rest[1:]
		case c == '#' || c == ';':
			p.line()
		case c == '[':
			if !p.header() {
				p.whole = false
				p.section = ""
				p.line()
			}
		case !p.entry():
			p.whole = false
		}
	}
	return p.out, p.whole
}

// space reports whether git treats a byte as a blank within a line.
func space(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }

// letter reports whether a byte may be in a section's or key's name.
func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// line skips the rest of the line.
func (p *parser) line() { _, p.rest, _ = strings.Cut(p.rest, "\n") }

// header reads [section], [section "sub"] or [section.sub].
func (p *parser) header() bool {
	i := 1
	for i < len(p.rest) && (letter(p.rest[i]) || p.rest[i] == '.') {
		i++
	}
	name := strings.ToLower(p.rest[1:i])
	if name == "" || i == len(p.rest) {
		return false
	}
	p.section, p.sub, p.hasSub = strings.Cut(name, ".")
	if p.rest[i] == ']' {
		p.rest = p.rest[i+1:]
		return true
	}
	for i < len(p.rest) && space(p.rest[i]) {
		i++
	}
	if i == len(p.rest) || p.rest[i] != '"' {
		return false
	}
	var sub strings.Builder
	if p.hasSub { // [a.b "c"] is a.b.c
		sub.WriteString(p.sub + ".")
	}
	for i++; i < len(p.rest) && p.rest[i] != '"'; i++ {
		if p.rest[i] == '\\' {
			i++
		}
		if i >= len(p.rest) || p.rest[i] == '\n' {
			return false
		}
		sub.WriteByte(p.rest[i])
	}
	if i+1 >= len(p.rest) || p.rest[i+1] != ']' {
		return false
	}
	p.sub, p.hasSub, p.rest = sub.String(), true, p.rest[i+2:]
	return true
}

// entry reads one setting.
func (p *parser) entry() bool {
	i := 0
	for i < len(p.rest) && letter(p.rest[i]) {
		i++
	}
	e := Entry{Section: p.section, Sub: p.sub, HasSub: p.hasSub, Key: strings.ToLower(p.rest[:i])}
	if i == 0 || p.section == "" {
		p.line()
		return false
	}
	for i < len(p.rest) && space(p.rest[i]) {
		i++
	}
	p.rest = p.rest[i:]
	switch {
	case p.rest == "" || p.rest[0] == '\n':
		e.Bare = true
	case p.rest[0] == '#' || p.rest[0] == ';':
		e.Bare = true
		p.line()
	case p.rest[0] != '=':
		p.line()
		return false
	default:
		p.rest = p.rest[1:]
		var ok bool
		if e.Value, ok = p.value(); !ok {
			return false
		}
	}
	p.out = append(p.out, e)
	return true
}

// value reads the text after "=" up to the end of the line. The value may continue on the next
// line.
func (p *parser) value() (string, bool) {
	var b strings.Builder
	quoted, keep := false, 0 // keep: length of b without blanks at its end
	for i := 0; ; i++ {
		if i == len(p.rest) || p.rest[i] == '\n' {
			p.rest = p.rest[i:]
			return b.String()[:keep], !quoted
		}
		switch c := p.rest[i]; {
		case !quoted && space(c):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
			continue
		case !quoted && (c == '#' || c == ';'):
			p.rest = p.rest[i:]
			p.line()
			return b.String()[:keep], true
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++
			if strings.HasPrefix(p.rest[i:], "\r\n") {
				i++
			}
			if i == len(p.rest) {
				p.rest = ""
				return "", false
			}
			switch p.rest[i] {
			case '\n':
				continue
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'b':
				b.WriteByte('\b')
			case '"', '\\':
				b.WriteByte(p.rest[i])
			default:
				p.rest = p.rest[i:]
				p.line()
				return "", false
			}
		default:
			b.WriteByte(c)
		}
		keep = b.Len()
	}
}

// Format writes settings as a configuration. Git reads the same settings back.
func Format(entries []Entry) []byte {
	var b strings.Builder
	header := ""
	for _, e := range entries {
		h := "[" + e.Section + "]\n"
		if e.HasSub {
			h = "[" + e.Section + ` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(e.Sub) + "\"]\n"
		}
		if h != header {
			b.WriteString(h)
			header = h
		}
		b.WriteString("\t" + e.Key)
		if !e.Bare {
			b.WriteString(" = " + quote(e.Value))
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// quote writes a value so that git reads all of it back.
func quote(v string) string {
	text := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(v)
	if text != v || strings.ContainsAny(v, "#;") || strings.TrimSpace(v) != v {
		return `"` + text + `"`
	}
	return text
}
