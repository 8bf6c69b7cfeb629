package interp

import (
	"encoding/hex"
	"strings"
)

// More repairs, chosen by the parser's error message.

// Names for constructs that only bash accepts. The text follows in hexadecimal.
const (
	badAssign = "__bad_assignment_" // an assignment before a command whose target is not a variable
	badList   = "__bad_list_"       // of a list, to an element
)

// Private characters that mark constructs without a form in the parser.
const (
	appendMark = "\uE1F0" // [k]+=v appends to an element's value
	emptyMark  = "\uE1F1" // an empty pattern group: @()
)

// repairBy repairs a source if the error's text says enough.
func repairBy(src string, at int, text string) (string, bool) {
	switch {
	case strings.HasPrefix(text, "inline variables cannot be arrays"):
		return inlineArray(src, at)
	case strings.HasPrefix(text, "arrays cannot be nested"):
		return elementList(src, at)
	case strings.HasPrefix(text, "`[x]` must be followed by"):
		if i := strings.Index(src[max(at-1, 0):], "]+="); i >= 0 {
			i += max(at-1, 0)
			return src[:i] + "]=" + appendMark + src[i+3:], true
		}
		if i := strings.LastIndex(src[:at], "["); i >= 0 {
			if j := strings.Index(src[i:], "]+="); j >= 0 {
				return src[:i+j] + "]=" + appendMark + src[i+j+3:], true
			}
		}
	case strings.HasSuffix(text, "cannot form a statement alone"):
		return src[:at] + "! :" + src[at+1:], strings.HasPrefix(src[at:], "!")
	case strings.HasPrefix(text, "cannot negate a command multiple times"):
		rest := strings.TrimLeft(strings.TrimPrefix(src[at:], "!"), " \t")
		if strings.HasPrefix(src[at:], "!") && strings.HasPrefix(rest, "!") {
			if rest = strings.TrimLeft(rest[1:], " \t"); rest == "" || strings.IndexByte("\n;&|)", rest[0]) >= 0 {
				rest = ": " + rest
			}
			return src[:at] + rest, true
		}
	case strings.HasPrefix(text, "invalid func name"):
		if end, plain := wordEnd(src, at); !plain && end > at {
			return src[:at] + badName + hex.EncodeToString([]byte(src[at:end])) + src[end:], true
		}
	case strings.HasPrefix(text, "multi-name functions"):
		if next, ok := bareFunction(src, at); ok {
			return next, true
		}
	case strings.Contains(text, "must be followed by names or assignments"):
		if end, _ := wordEnd(src, at); strings.HasPrefix(strings.TrimLeft(src[end:], " \t"), "()") {
			return src[:at] + "function " + src[at:], true
		}
	}
	if next, ok := emptyGroup(src, at); ok {
		return next, true
	}
	if strings.HasSuffix(text, "without closing quote `\"`") || strings.HasSuffix(text, "without closing quote `'`") ||
		strings.Contains(text, "without closing quote \"`\"") || strings.Contains(text, "`") && strings.Contains(src, "`") {
		return backquotes(src, at)
	}
	return "", false
}

// inlineArray repairs name=(…) and name[…]=… before a command. In bash the first assigns text, and
// the second is not an assignment.
func inlineArray(src string, at int) (string, bool) {
	i := at
	for i < len(src) && (isIdentStart(src[i]) || isDigit(src[i])) {
		i++
	}
	if i == at || i == len(src) {
		return "", false
	}
	if src[i] == '[' {
		end := closing(src, i+1, '[', ']')
		if end < 0 {
			return "", false
		}
		name := badAssign + hex.EncodeToString([]byte(src[at:end+1]))
		return src[:at] + name + src[end+1:], true
	}
	if src[i] == '+' {
		i++
	}
	if !strings.HasPrefix(src[i:], "=(") {
		return "", false
	}
	end := closing(src, i+2, '(', ')')
	if end < 0 {
		return "", false
	}
	return src[:i+1] + quoteAlways(src[i+1:end+1]) + src[end+1:], true
}

// elementList repairs name[…]=(…), which fails when the script reaches it.
func elementList(src string, at int) (string, bool) {
	open := strings.LastIndex(src[:min(at+2, len(src))], "=(") + 1
	if open < 1 {
		return "", false
	}
	start := strings.LastIndexAny(src[:open-1], " \t\n;&|(") + 1
	name := strings.TrimSuffix(src[start:open-1], "+")
	end := closing(src, open+1, '(', ')')
	if _, _, elem := cutSubscript(name); !elem || end < 0 {
		return "", false
	}
	return src[:start] + badList + hex.EncodeToString([]byte(name)) + "=" + src[end+1:], true
}

// bareFunction turns "function f for …" into "function f() for …". bash accepts a function without
// the parentheses, and the parser requires them.
func bareFunction(src string, at int) (string, bool) {
	i := strings.LastIndex(src[:min(at+9, len(src))], "function ")
	if i < 0 {
		return "", false
	}
	j := i + len("function ")
	for j < len(src) && src[j] == ' ' {
		j++
	}
	end, _ := wordEnd(src, j)
	if end == j || strings.HasPrefix(strings.TrimLeft(src[end:], " "), "(") {
		return "", false
	}
	return src[:end] + "()" + src[end:], true
}

// emptyGroup puts a mark into an empty pattern group.
func emptyGroup(src string, at int) (string, bool) {
	for i := min(at+2, len(src)-2); i > 0 && i >= at-2; i-- {
		if src[i] == '(' && strings.IndexByte("?*+@!", src[i-1]) >= 0 && src[i+1] == ')' {
			return src[:i+1] + emptyMark + src[i+1:], true
		}
	}
	return "", false
}

// backquotes turns `…` around at into $(eval '…'), so that an error in it is reported when it runs.
func backquotes(src string, at int) (string, bool) {
	open := -1
	quote := byte(0)
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '\\' && quote != '\'':
			i++
		case c == '\'' && quote == 0 && open < 0:
			quote = c
		case c == '\'' && quote == '\'' && open < 0:
			quote = 0
		case c == '"' && quote != '\'' && open < 0:
			quote ^= '"'
		case c == '`' && quote != '\'' && open < 0:
			open = i
		case c == '`' && quote != '\'':
			if at >= open && at <= i+1 {
				return src[:open] + "$(eval " + quoteAlways(unbackquote(src[open+1:i], quote == '"')) + ")" + src[i+1:], true
			}
			open = -1
		}
	}
	return "", false
}

// unbackquote removes the backslashes of a command between backquotes.
func unbackquote(s string, inDbl bool) string {
	special := "$`\\"
	if inDbl {
		special += `"`
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(special, s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
