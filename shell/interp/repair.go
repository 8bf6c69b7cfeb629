package interp

import (
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// The parser parses arithmetic and subscripts when it parses a script. Bash at first only finds
// their end. It parses their text after its expansions, when the script reaches it. So in bash a
// script with $((1 $op 2)), a[b c]=1 or ${x!y} has no syntax error. repair finds the construct at
// which the parser failed, and replaces it with a name that contains its text. The text is parsed
// when the script reaches it.

// rawName begins such a name for arithmetic and subscripts. The text follows in hexadecimal.
const rawName = "__raw_text_"

// maxRepairs limits the repairs of one source, because each repair parses the source again.
const maxRepairs = 64

// rawText returns the text that a name contains.
func rawText(name string) (string, bool) {
	if !strings.HasPrefix(name, rawName) {
		return "", false
	}
	return unhex(name[len(rawName):]), true
}

// repaired parses src after it has put names in place of the constructs that bash accepts and the
// parser rejects. It returns false if src can't be parsed even so. An error together with true
// means that the text is incomplete.
func repaired(src string, failed error) ([]*syntax.Stmt, error, bool) {
	if len(src) > maxSource/16 {
		return nil, nil, false
	}
	first := failed
	for range maxRepairs {
		var pe syntax.ParseError
		var le syntax.LangError
		at, text := 0, ""
		switch {
		case errors.As(failed, &pe):
			at, text = int(pe.Pos.Offset()), pe.Text
		case errors.As(failed, &le):
			at, text = int(le.Pos.Offset()), le.Feature
			if strings.HasPrefix(text, "unsigned") {
				at += 3
			}
		default:
			return nil, nil, false
		}
		at = min(max(at, 0), len(src))
		next, ok := repairBy(src, at, text)
		if !ok {
			next, ok = repair(src, at)
		}
		if !ok {
			return nil, nil, false
		}
		src = next
		stmts, err := parseOnce(src)
		if err == nil || incomplete(err) && !incomplete(first) {
			return stmts, err, true
		}
		failed = err
	}
	return nil, nil, false
}

// repair replaces the innermost arithmetic, subscript or expansion around at.
func repair(src string, at int) (string, bool) {
	for i := min(at+2, len(src)-1); i >= 0 && at-i < 4096; i-- {
		rest := src[i:]
		switch {
		case strings.HasPrefix(rest, "(("):
			end := closing(src, i+2, '(', ')')
			if end >= 0 && i <= at && end+1 < len(src) && src[end+1] != ')' {
				return src[:i+1] + " " + src[i+1:], true // two subshells, not arithmetic
			}
			if end < 0 || end < at-2 || end+1 >= len(src) {
				continue
			}
			body := src[i+2 : end]
			if strings.HasPrefix(body, rawName) || i > at && strings.TrimSpace(body) != "" {
				continue
			}
			if strings.Contains(body, ";") && (i == 0 || src[i-1] != '$') {
				return loopRaw(src, i+2, end, at)
			}
			return src[:i+2] + encode(body) + src[end:], true
		case rest[0] == '[' && i > 0 && (isIdentStart(src[i-1]) || isDigit(src[i-1]) || strings.IndexByte(" \t\n(", src[i-1]) >= 0):
			end := closing(src, i+1, '[', ']')
			if element := isIdentStart(src[i-1]) || isDigit(src[i-1]); end >= 0 && !element && !strings.HasPrefix(src[end:], "]=") {
				continue
			}
			if end < 0 || i > at || end < at-1 || strings.HasPrefix(src[i+1:], rawName) || end == i+1 {
				continue
			}
			return src[:i+1] + encode(src[i+1:end]) + src[end:], true
		case strings.HasPrefix(rest, "${"):
			end := closing(src, i+2, '{', '}')
			if end < at || i > at || strings.HasPrefix(src[i+2:], badName) {
				continue
			}
			return src[:i+2] + badName + hex.EncodeToString([]byte(src[i:end+1])) + src[end:], true
		case strings.HasPrefix(rest, "let ") && (i == 0 || strings.IndexByte(" \t\n;&|(", src[i-1]) >= 0):
			return src[:i] + `\` + src[i:], true // an ordinary command with expressions as its words
		case (strings.HasPrefix(rest, "declare ") || strings.HasPrefix(rest, "local ") || strings.HasPrefix(rest, "export ") ||
			strings.HasPrefix(rest, "typeset ") || strings.HasPrefix(rest, "readonly ")) && (i == 0 || strings.IndexByte(" \t\n;&|(", src[i-1]) >= 0):
			return src[:i] + `\` + src[i:], true
		}
	}
	return "", false
}

// loopRaw replaces one of the three expressions of for ((;;)): the one that contains at.
func loopRaw(src string, from, to, at int) (string, bool) {
	for start := from; start <= to; {
		end := strings.IndexByte(src[start:to], ';')
		if end < 0 {
			end = to
		} else {
			end += start
		}
		if at <= end || end == to {
			if body := strings.TrimSpace(src[start:end]); body == "" || strings.HasPrefix(body, rawName) {
				return "", false
			}
			return src[:start] + encode(src[start:end]) + src[end:], true
		}
		start = end + 1
	}
	return "", false
}

// encode returns the name for a text, followed by the text's line ends.
func encode(body string) string {
	return rawName + hex.EncodeToString([]byte(body)) + strings.Repeat("\n", strings.Count(body, "\n"))
}

// closing finds the end of a construct that opened before i.
func closing(src string, i int, open, end byte) int {
	depth := 1
	for ; i < len(src); i++ {
		switch c := src[i]; c {
		case '\\':
			i++
		case '\'':
			if j := strings.IndexByte(src[i+1:], '\''); j >= 0 && open != '(' {
				i += j + 1
			}
		case open:
			depth++
		case end:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// expandRaw expands a text as inside double quotes, and removes the text's own quotes.
func (r *runner) expandRaw(s string) string {
	if !strings.ContainsAny(s, "$`\"\\") {
		return s
	}
	return joinPieces(r.pieces(nil, r.parsedWord(`"`+strings.ReplaceAll(s, `"`, "")+`"`), false, true))
}

// sliceParam matches an expansion whose offset or length may be missing.
var sliceParam = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z_0-9]*(?:\[[@*]\])?|[@*0-9]):([^:{}]*)(:[^:{}]*)?\}$`)

// looseParam parses an expansion that bash accepts and the parser rejects: ${##2}, ${a[@]::}, ${x:
// }. It returns nil for any other.
func (r *runner) looseParam(text string) *syntax.ParamExp {
	text = strings.NewReplacer(rawName+"40", "@", rawName+"2a", "*").Replace(text)
	count := strings.HasPrefix(text, "${##")
	if count {
		text = "${_" + text[len("${#"):]
	} else {
		m := sliceParam.FindStringSubmatch(text)
		if m == nil || m[2] == "" && m[3] == "" {
			return nil
		}
		for i, part := range []string{m[2], strings.TrimPrefix(m[3], ":")} {
			if strings.TrimSpace(part) == "" {
				m[i+2] = "0"
			} else {
				m[i+2] = part
			}
		}
		if !strings.HasPrefix(m[3], ":") && strings.Count(text, ":") == 1 {
			text = "${" + m[1] + ":" + m[2] + "}"
		} else {
			text = "${" + m[1] + ":" + m[2] + ":" + strings.TrimPrefix(m[3], ":") + "}"
		}
	}
	parts := r.parsedWord(text)
	if len(parts) != 1 {
		return nil
	}
	pe, ok := parts[0].(*syntax.ParamExp)
	if !ok || pe.Param == nil || strings.HasPrefix(pe.Param.Value, badName) {
		return nil
	}
	if count {
		pe.Param.Value = "#"
	}
	return pe
}

// oddByte is the first of the characters that replace bytes that are not UTF-8 during parsing.
const oddByte = 0x10fe00

// parseBytes parses a source that is not UTF-8.
func parseBytes(src string) ([]*syntax.Stmt, error) {
	var b strings.Builder
	for len(src) > 0 {
		c, n := utf8.DecodeRuneInString(src)
		if c == utf8.RuneError && n == 1 {
			c = oddByte + rune(src[0])
		}
		b.WriteRune(c)
		src = src[n:]
	}
	stmts, err := parse(b.String())
	for _, s := range stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Lit:
				n.Value = bytesBack(n.Value)
			case *syntax.SglQuoted:
				n.Value = bytesBack(n.Value)
			}
			return true
		})
	}
	return stmts, err
}

// bytesBack restores the bytes that parseBytes replaced in a text.
func bytesBack(s string) string {
	if !strings.Contains(s, "\xf4\x8f\xb8") && !strings.Contains(s, "\xf4\x8f\xb9") && !strings.Contains(s, "\xf4\x8f\xba") && !strings.Contains(s, "\xf4\x8f\xbb") {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if c >= oddByte && c < oddByte+256 {
			b.WriteByte(byte(c - oddByte))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}
