package interp

import (
	"maps"
	"slices"
	"strings"
)

// aliasScan expands aliases in source text, word by word. It runs before parsing, because an alias
// may stand for any part of the grammar.
type aliasScan struct {
	aliases map[string]string
	out     strings.Builder
	docs    []heredocEnd // here-documents that begin on the next line
	tooLong bool
}

// heredocEnd is the delimiter of a here-document.
type heredocEnd struct {
	word string
	tabs bool
}

// expandAliases returns source text with its aliases expanded.
func (r *runner) expandAliases(src string) string {
	if !r.opts.expandAliases || len(r.aliases) == 0 {
		return src
	}
	a := &aliasScan{aliases: r.aliases}
	a.scan(src, true, nil)
	if a.tooLong {
		return src
	}
	return a.out.String()
}

// afterWords are words after which a command's name may follow.
var afterWords = map[string]bool{"if": true, "then": true, "else": true, "elif": true, "do": true, "while": true, "until": true, "{": true, "!": true, "time": true}

// scan copies src and expands its aliases. atCommand says whether a command's name may come next;
// the result says the same for the end of src. active are the aliases that are being expanded.
func (a *aliasScan) scan(src string, atCommand bool, active []string) bool {
	for i := 0; i < len(src); {
		if a.out.Len() > maxSource {
			a.tooLong = true
			return false
		}
		switch c := src[i]; {
		case strings.HasPrefix(src[i:], "\\\n"):
			a.out.WriteString("\\\n")
			i += 2
		case c == ' ' || c == '\t':
			a.out.WriteByte(c)
			i++
		case c == '\n':
			a.out.WriteByte(c)
			i++
			for _, d := range a.docs {
				i = a.heredoc(src, i, d)
			}
			a.docs, atCommand = nil, true
		case c == ';' || c == '&' || c == '|' || c == '(':
			a.out.WriteByte(c)
			i++
			atCommand = true
		case c == ')':
			a.out.WriteByte(c)
			i++
			atCommand = true
		case c == '<' || c == '>':
			i = a.redirect(src, i)
		case c == '#':
			end := strings.IndexByte(src[i:], '\n')
			if end < 0 {
				end = len(src) - i
			}
			a.out.WriteString(src[i : i+end])
			i += end
		default:
			end, plain := wordEnd(src, i)
			word := src[i:end]
			i = end
			value, isAlias := a.aliases[word]
			switch {
			case !plain && strings.Contains(word, "$("):
				a.substitutions(word, active)
				name, _, assigns := strings.Cut(word, "=")
				atCommand = atCommand && assigns && isName(strings.TrimSuffix(name, "+"))
			case !atCommand:
				a.out.WriteString(word)
			case plain && isAlias && !slices.Contains(active, word):
				atCommand = a.scan(value, true, append(slices.Clip(active), word))
				atCommand = strings.HasSuffix(value, " ") || strings.HasSuffix(value, "\t") || atCommand
			default:
				a.out.WriteString(word)
				name, _, assigns := strings.Cut(word, "=")
				atCommand = plain && afterWords[word] || assigns && isName(strings.TrimSuffix(name, "+"))
			}
		}
	}
	return atCommand
}

// substitutions copies a word and expands the aliases in its $(…).
func (a *aliasScan) substitutions(word string, active []string) {
	for word != "" {
		i := strings.Index(word, "$(")
		if i < 0 || strings.HasPrefix(word[i:], "$((") || strings.IndexByte(word[:i], '\'') >= 0 {
			break
		}
		end, _ := wordEnd(word[i:], 0)
		if end = closingParen(word[i:], end); end < 0 {
			break
		}
		a.out.WriteString(word[:i+2])
		a.scan(word[i+2:i+end], true, active)
		a.out.WriteByte(')')
		word = word[i+end+1:]
	}
	a.out.WriteString(word)
}

// closingParen returns where the $( at the start of s is closed, or -1 when it isn't closed before
// end.
func closingParen(s string, end int) int {
	depth := 0
	for i := 1; i < end; i++ {
		switch s[i] {
		case '\\':
			i++
		case '\'':
			if n := strings.IndexByte(s[i+1:end], '\''); n >= 0 {
				i += n + 1
			}
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// redirect copies a redirection's operator and word.
func (a *aliasScan) redirect(src string, i int) int {
	start := i
	for i < len(src) && strings.IndexByte("<>&|-", src[i]) >= 0 && i-start < 3 {
		i++
	}
	op := src[start:i]
	if op == ">|" || !strings.HasSuffix(op, "|") {
		// the whole operator
	} else {
		i--
		op = src[start:i]
	}
	for i < len(src) && (src[i] == ' ' || src[i] == '\t') {
		i++
	}
	end, _ := wordEnd(src, i)
	if op == "<<" || op == "<<-" {
		a.docs = append(a.docs, heredocEnd{strings.NewReplacer(`'`, "", `"`, "", `\`, "").Replace(src[i:end]), op == "<<-"})
	}
	a.out.WriteString(src[start:end])
	return end
}

// heredoc copies a here-document's lines.
func (a *aliasScan) heredoc(src string, i int, d heredocEnd) int {
	for i < len(src) {
		line, _, _ := strings.Cut(src[i:], "\n")
		n := min(len(line)+1, len(src)-i)
		a.out.WriteString(src[i : i+n])
		i += n
		if d.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if line == d.word {
			break
		}
	}
	return i
}

// wordEnd returns the end of the word at i, and whether the word has no quotes and no expansions.
// Text inside quotes and parentheses belongs to the word.
func wordEnd(src string, i int) (end int, plain bool) {
	plain = true
	var stack []byte // the closing characters of open quotes and parentheses
	for ; i < len(src); i++ {
		c := src[i]
		top := byte(0)
		if len(stack) > 0 {
			top = stack[len(stack)-1]
		}
		switch {
		case top == '\'':
			if c == '\'' {
				stack = stack[:len(stack)-1]
			}
		case c == '\\':
			plain = false
			i++
		case top != 0 && c == top:
			stack = stack[:len(stack)-1]
		case c == '\'' && top != '"':
			plain = false
			stack = append(stack, c)
		case c == '"' || c == '`':
			plain = false
			stack = append(stack, c)
		case c == '$' && i+1 < len(src) && (src[i+1] == '(' || src[i+1] == '{'):
			plain = false
			i++
			stack = append(stack, map[byte]byte{'(': ')', '{': '}'}[src[i]])
		case c == '(' && top == ')':
			stack = append(stack, ')')
		case c == '$':
			plain = false
		case top == 0 && strings.IndexByte(" \t\n;&|()<>", c) >= 0:
			return i, plain
		}
	}
	return min(i, len(src)), plain
}

func biAlias(c *call) int {
	r := c.r
	args := c.args
	for len(args) > 0 && (args[0] == "-p" || args[0] == "--") {
		args = args[1:]
	}
	if len(args) == 0 {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(r.aliases)) {
			b.WriteString(r.aliasLine(name))
		}
		return c.print(b.String())
	}
	status := 0
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		switch {
		case !ok || name == "":
			if _, known := r.aliases[a]; !known {
				status = c.fail(1, "%s: not found", a)
				continue
			}
			c.print(r.aliasLine(a))
		case strings.ContainsAny(name, " \t\n/$`=\\\"'<>|&;()"):
			status = c.fail(1, "`%s': invalid alias name", name)
		default:
			if r.aliases == nil {
				r.aliases = map[string]string{}
			}
			r.aliases[name] = value
			r.aliasGen++
			r.pay(len(a) + 64)
		}
	}
	return status
}

func (r *runner) aliasLine(name string) string {
	text := name + "=" + quoteAlways(r.aliases[name]) + "\n"
	if strings.HasPrefix(name, "-") {
		return "alias -- " + text
	}
	if r.opts.posix {
		return text
	}
	return "alias " + text
}

// quoteAlways puts a text in single quotes.
func quoteAlways(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func biUnalias(c *call) int {
	r := c.r
	if len(c.args) == 0 {
		r.writeErr("unalias: usage: unalias [-a] name [name ...]\n")
		return 2
	}
	if c.args[0] == "-a" {
		r.aliases = nil
		r.aliasGen++
		return 0
	}
	status := 0
	for _, a := range c.args {
		if a == "--" {
			continue
		}
		if _, ok := r.aliases[a]; !ok {
			status = c.fail(1, "%s: not found", a)
			continue
		}
		delete(r.aliases, a)
		r.aliasGen++
	}
	return status
}
