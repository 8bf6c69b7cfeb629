package interp

import (
	"path"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// prompt expands a prompt: its escapes, then variables and substitutions.
func (r *runner) prompt(ps string, forPS1 bool) string {
	s := r.promptEscapes(ps, forPS1)
	if r.opts.promptvars {
		s = r.expandPrompt(s)
	}
	if !forPS1 {
		return s
	}
	return strings.NewReplacer("\x01", "", "\x02", "").Replace(s)
}

// expandPrompt expands a text as inside double quotes.
func (r *runner) expandPrompt(s string) string {
	if !strings.ContainsAny(s, "$`\\") {
		return s
	}
	var w *syntax.Word
	var err error
	perr := onFreshStack(func() {
		g := &guarded{src: s, pcs: pcsPool.Get().(*[maxFrames]uintptr)}
		defer pcsPool.Put(g.pcs)
		if w, err = syntax.NewParser(syntax.Variant(syntax.LangBash)).Document(g); g.deep {
			w, err = nil, errTooDeep
		}
	})
	if perr != nil || err != nil || w == nil {
		return s
	}
	flow, status := r.flow, r.status
	if !r.enter() {
		return s
	}
	r.flow = flowNone
	text := joinPieces(r.pieces(nil, w.Parts, true, true))
	r.depth--
	if r.flow != flowExit || !r.exiting {
		r.flow = flow
	}
	r.status = status
	return text
}

// promptEscapes replaces the backslash escapes. It protects the values of \u, \w and the like from
// further expansion.
func (r *runner) promptEscapes(ps string, forPS1 bool) string {
	if strings.IndexByte(ps, '\\') < 0 {
		return ps
	}
	quote := func(s string) string {
		return strings.NewReplacer(`\`, `\\`, "$", `\$`, "`", "\\`").Replace(s)
	}
	if !r.opts.promptvars {
		quote = func(s string) string { return s }
	}
	now := r.m.now()
	var b strings.Builder
	for i := 0; i < len(ps); i++ {
		if ps[i] != '\\' || i+1 == len(ps) {
			b.WriteByte(ps[i])
			continue
		}
		i++
		switch c := ps[i]; c {
		case 'D':
			if rest := ps[i+1:]; strings.HasPrefix(rest, "{") {
				if format, _, ok := strings.Cut(rest[1:], "}"); ok {
					i += len(format) + 2
					if format == "" {
						format = "%X"
					}
					b.WriteString(quote(strftime(format, now)))
				}
			}
		case '\\':
			b.WriteByte('\\')
		default:
			if c >= '0' && c <= '7' {
				n := 0
				for n < 3 && i+n < len(ps) && ps[i+n] >= '0' && ps[i+n] <= '7' {
					n++
				}
				v, _ := strconv.ParseUint(ps[i:i+n], 8, 16) // it is octal
				b.WriteByte(byte(v))
				i += n - 1
				continue
			}
			if text, ok := r.promptField(c, now, forPS1, quote); ok {
				b.WriteString(text)
			} else {
				b.WriteString(quote(`\`) + string(c))
			}
		}
	}
	return b.String()
}

// promptField returns the value of the escape \c. ok is false when the escape has no meaning. quote
// protects values from further expansion; text written in the prompt itself is not protected.
func (r *runner) promptField(c byte, now time.Time, forPS1 bool, quote func(string) string) (text string, ok bool) {
	switch c {
	case 'a':
		return "\a", true
	case 'd':
		return now.Format("Mon Jan 02"), true
	case 'e':
		return "\x1b", true
	case 'h':
		host, _, _ := strings.Cut(r.m.Hostname(), ".")
		return quote(host), true
	case 'H':
		return quote(r.m.Hostname()), true
	case 'j':
		return strconv.Itoa(len(r.jobs)), true
	case 'l':
		if r.p.tree.tty != nil {
			return "0", true
		}
		return "tty", true
	case 'n':
		return "\n", true
	case 'r':
		return "\r", true
	case 's':
		return quote(strings.TrimPrefix(path.Base(r.name), "-")), true
	case 't', 'T', '@', 'A':
		layout := map[byte]string{'t': time.TimeOnly, 'T': "03:04:05", '@': "03:04 PM", 'A': "15:04"}[c]
		return now.Format(layout), true
	case 'u':
		return quote(r.m.UserName(r.cred().UID)), true
	case 'v':
		return "5.2", true
	case 'V':
		return "5.2.15", true
	case 'w', 'W':
		return quote(r.promptDir(c == 'W')), true
	case '!', '#':
		return strconv.Itoa(r.promptNumber(c, forPS1)), true
	case '$':
		if r.cred().UID == 0 {
			return "#", true
		}
		return quote("$"), true
	case '[', ']': // there for a line editor
		if r.interactive {
			return string([]byte{c - '[' + 1 - (c-'[')/2}), true
		}
		return "", true
	}
	return "", false
}

// promptNumber is the number of a command in the history ('!') or in this session ('#').
func (r *runner) promptNumber(c byte, forPS1 bool) int {
	if c == '!' {
		n := r.historyNumber()
		if n > 1 && !forPS1 {
			n--
		}
		return n
	}
	if !forPS1 && r.fromArg {
		return 0
	}
	return r.commands + 1
}

// promptDir is \w, or \W with last.
func (r *runner) promptDir(last bool) string {
	dir := r.str("PWD")
	if home := r.str("HOME"); home != "" && home != "/" && (dir == home || strings.HasPrefix(dir, home+"/")) {
		dir = "~" + dir[len(home):]
	}
	if last {
		if dir == "~" {
			return dir
		}
		return path.Base(dir)
	}
	if n, err := strconv.Atoi(r.str("PROMPT_DIRTRIM")); err == nil && n > 0 {
		head := ""
		rest := dir
		if strings.HasPrefix(dir, "~") {
			head, rest = "~", dir[1:]
		}
		parts := strings.Split(strings.Trim(rest, "/"), "/")
		if len(parts) > n {
			return head + map[bool]string{true: "/", false: ""}[head != ""] + ".../" + strings.Join(parts[len(parts)-n:], "/")
		}
	}
	return dir
}
