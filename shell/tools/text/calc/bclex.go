package calc

import (
	"fmt"
	"strings"
)

// bcToken is a token of bc: a number, a name, a string or an operator.
type bcToken struct {
	kind byte // '0' number, 'a' name, '"' string, 'o' operator, '\n', 0 end, '?' error
	text string
}

// bcLexer reads tokens.
type bcLexer struct {
	src  string
	pos  int
	line int
}

var bcOperators = []string{"++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "==", "<=", ">=", "!=", "&&", "||"}

func (l *bcLexer) next() bcToken {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case c == '\\' && l.pos+1 < len(l.src) && l.src[l.pos+1] == '\n':
			l.pos += 2
			l.line++
		case c == '#':
			for l.pos < len(l.src) && l.src[l.pos] != '\n' {
				l.pos++
			}
		case strings.HasPrefix(l.src[l.pos:], "/*"):
			end := strings.Index(l.src[l.pos+2:], "*/")
			if end < 0 {
				l.pos = len(l.src)
				return bcToken{'?', "EOF encountered in a comment."}
			}
			l.line += strings.Count(l.src[l.pos:l.pos+2+end], "\n")
			l.pos += end + 4
		default:
			return l.token(c)
		}
	}
	return bcToken{}
}

func (l *bcLexer) token(c byte) bcToken {
	start := l.pos
	switch {
	case c == '\n':
		l.pos++
		l.line++
		return bcToken{'\n', "\n"}
	case c == '"':
		end := strings.IndexByte(l.src[start+1:], '"')
		if end < 0 {
			l.pos = len(l.src)
			return bcToken{'?', "syntax error"}
		}
		l.pos = start + end + 2
		l.line += strings.Count(l.src[start:l.pos], "\n")
		return bcToken{'"', l.src[start+1 : l.pos-1]}
	case c >= '0' && c <= '9' || c >= 'A' && c <= 'F' || c == '.' && l.pos+1 < len(l.src) && (l.src[l.pos+1] >= '0' && l.src[l.pos+1] <= '9' || l.src[l.pos+1] >= 'A' && l.src[l.pos+1] <= 'F'):
		var b strings.Builder
		point := false
		for l.pos < len(l.src) {
			c := l.src[l.pos]
			if c == '\\' && l.pos+1 < len(l.src) && l.src[l.pos+1] == '\n' {
				l.pos += 2
				l.line++
				continue
			}
			if c == '.' && !point {
				point = true
			} else if (c < '0' || c > '9') && (c < 'A' || c > 'F') {
				break
			}
			b.WriteByte(c)
			l.pos++
		}
		return bcToken{'0', b.String()}
	case c >= 'a' && c <= 'z':
		for l.pos < len(l.src) && (l.src[l.pos] >= 'a' && l.src[l.pos] <= 'z' || l.src[l.pos] >= '0' && l.src[l.pos] <= '9' || l.src[l.pos] == '_') {
			l.pos++
		}
		return bcToken{'a', l.src[start:l.pos]}
	}
	for _, op := range bcOperators {
		if strings.HasPrefix(l.src[start:], op) {
			l.pos += len(op)
			return bcToken{'o', op}
		}
	}
	l.pos++
	if strings.IndexByte("+-*/%^()[]{}=<>!,;&.", c) < 0 {
		return bcToken{'?', fmt.Sprintf("illegal character: %c", c)}
	}
	return bcToken{'o', string(c)}
}
