package sh

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

// expandPrompt expands a text as if it stood in double quotes.
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

// promptEscapes replaces the backslash escapes. What \u, \w and the like give is
// protected from further expansion.
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
		case 'a':
			b.WriteByte(7)
		case 'd':
			b.WriteString(now.Format("Mon Jan 02"))
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
		case 'e':
			b.WriteByte(27)
		case 'h':
			host, _, _ := strings.Cut(r.m.Hostname(), ".")
			b.WriteString(quote(host))
		case 'H':
			b.WriteString(quote(r.m.Hostname()))
		case 'j':
			b.WriteString(strconv.Itoa(len(r.jobs)))
		case 'l':
			name := "tty"
			if r.p.tree.tty != nil {
				name = "0"
			}
			b.WriteString(name)
		case 'n':
			b.WriteString("\n")
		case 'r':
			b.WriteString("\r")
		case 's':
			b.WriteString(quote(strings.TrimPrefix(path.Base(r.name), "-")))
		case 't', 'T', '@', 'A':
			layout := map[byte]string{'t': time.TimeOnly, 'T': "03:04:05", '@': "03:04 PM", 'A': "15:04"}[c]
			b.WriteString(now.Format(layout))
		case 'u':
			b.WriteString(quote(r.m.UserName(r.cred().UID)))
		case 'v':
			b.WriteString("5.2")
		case 'V':
			b.WriteString("5.2.15")
		case 'w', 'W':
			b.WriteString(quote(r.promptDir(c == 'W')))
		case '!':
			n := r.historyNumber()
			if n > 1 && !forPS1 {
				n--
			}
			b.WriteString(strconv.Itoa(n))
		case '#':
			n := r.commands + 1
			if !forPS1 && r.fromArg {
				n = 0
			}
			b.WriteString(strconv.Itoa(n))
		case '$':
			if r.cred().UID == 0 {
				b.WriteByte('#')
			} else {
				b.WriteString(quote("$"))
			}
		case '[', ']': // there for a line editor
			if r.interactive {
				b.WriteByte(c - '[' + 1 - (c-'[')/2)
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
			b.WriteString(quote(`\`) + string(c))
		}
	}
	return b.String()
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
