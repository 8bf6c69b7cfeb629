package syntax

// token is the kind of a lexical element.
type token int

const (
	tokEOF token = iota
	tokNewline
	tokNumber
	tokString
	tokRegex  // /re/, only made by lexer.regex
	tokStrong // @/re/
	tokName
	tokFuncName // a name with ( right behind it
	tokBuiltin

	tokLBrace
	tokRBrace
	tokLParen
	tokRParen
	tokLBracket
	tokRBracket
	tokSemicolon
	tokComma
	tokPlus
	tokMinus
	tokStar
	tokSlash
	tokPercent
	tokCaret
	tokNot
	tokGreater
	tokLess
	tokGreaterEqual
	tokLessEqual
	tokEqual
	tokNotEqual
	tokMatch
	tokNoMatch
	tokAnd
	tokOr
	tokQuestion
	tokColon
	tokDollar
	tokPipe
	tokPipeBoth
	tokAppend
	tokIncr
	tokDecr
	tokAt
	tokAssign
	tokAddAssign
	tokSubAssign
	tokMulAssign
	tokDivAssign
	tokModAssign
	tokPowAssign

	tokBegin
	tokEnd
	tokBeginFile
	tokEndFile
	tokFunction
	tokIf
	tokElse
	tokWhile
	tokFor
	tokDo
	tokBreak
	tokContinue
	tokNext
	tokNextFile
	tokExit
	tokReturn
	tokDelete
	tokIn
	tokGetline
	tokPrint
	tokPrintf
	tokSwitch
	tokCase
	tokDefault
)

// keywords are the reserved words.
var keywords = map[string]token{
	"BEGIN": tokBegin, "END": tokEnd, "BEGINFILE": tokBeginFile, "ENDFILE": tokEndFile,
	"function": tokFunction, "func": tokFunction,
	"if": tokIf, "else": tokElse, "while": tokWhile, "for": tokFor, "do": tokDo,
	"break": tokBreak, "continue": tokContinue, "next": tokNext, "nextfile": tokNextFile,
	"exit": tokExit, "return": tokReturn, "delete": tokDelete, "in": tokIn,
	"getline": tokGetline, "print": tokPrint, "printf": tokPrintf,
	"switch": tokSwitch, "case": tokCase, "default": tokDefault,
}

// operators are the tokens of punctuation, by their texts. The lexer uses the longest text that
// matches.
var operators = map[string]token{
	"{": tokLBrace, "}": tokRBrace, "(": tokLParen, ")": tokRParen, "[": tokLBracket,
	"]": tokRBracket, ";": tokSemicolon, ",": tokComma, "+": tokPlus, "-": tokMinus,
	"*": tokStar, "/": tokSlash, "%": tokPercent, "^": tokCaret, "**": tokCaret, "!": tokNot,
	">": tokGreater, "<": tokLess, ">=": tokGreaterEqual, "<=": tokLessEqual, "==": tokEqual,
	"!=": tokNotEqual, "~": tokMatch, "!~": tokNoMatch, "&&": tokAnd, "||": tokOr,
	"?": tokQuestion, ":": tokColon, "$": tokDollar, "|": tokPipe, "|&": tokPipeBoth,
	">>": tokAppend, "++": tokIncr, "--": tokDecr, "@": tokAt, "=": tokAssign,
	"+=": tokAddAssign, "-=": tokSubAssign, "*=": tokMulAssign, "/=": tokDivAssign,
	"%=": tokModAssign, "^=": tokPowAssign, "**=": tokPowAssign,
}

// Builtin is a built-in function of the language.
type Builtin struct {
	Name     string
	Min, Max int  // number of arguments; Max is -1 without a bound
	Bare     bool // may stand without parentheses
}

const unbounded = -1

// builtins are the built-in functions by name.
var builtins = map[string]*Builtin{}

func init() {
	for _, b := range []Builtin{
		{"length", 0, 1, true}, {"substr", 2, 3, false}, {"index", 2, 2, false},
		{"split", 2, 4, false}, {"patsplit", 2, 4, false}, {"sub", 2, 3, false},
		{"gsub", 2, 3, false}, {"gensub", 3, 4, false}, {"match", 2, 3, false},
		{"sprintf", 1, unbounded, false}, {"tolower", 1, 1, false}, {"toupper", 1, 1, false},
		{"sin", 1, 1, false}, {"cos", 1, 1, false}, {"atan2", 2, 2, false}, {"exp", 1, 1, false},
		{"log", 1, 1, false}, {"sqrt", 1, 1, false}, {"int", 1, 1, false}, {"rand", 0, 0, false},
		{"srand", 0, 1, false}, {"system", 1, 1, false}, {"close", 1, 2, false},
		{"fflush", 0, 1, false}, {"systime", 0, 0, false}, {"strftime", 0, 3, false},
		{"mktime", 1, 2, false}, {"strtonum", 1, 1, false}, {"and", 0, unbounded, false},
		{"or", 0, unbounded, false}, {"xor", 0, unbounded, false}, {"compl", 1, 1, false},
		{"lshift", 2, 2, false}, {"rshift", 2, 2, false}, {"asort", 1, 3, false},
		{"asorti", 1, 3, false}, {"typeof", 1, 2, false}, {"isarray", 1, 1, false},
		{"mkbool", 1, 1, false}, {"dcgettext", 1, 3, false}, {"dcngettext", 1, 5, false},
		{"bindtextdomain", 1, 2, false},
	} {
		builtins[b.Name] = &b
	}
}

// IsBuiltin reports whether a name is that of a built-in function.
func IsBuiltin(name string) bool { return builtins[name] != nil }

// IsKeyword reports whether a name is a reserved word.
func IsKeyword(name string) bool { return keywords[name] != 0 }

// NewBuiltin makes a call of a built-in function. It returns nil if the function does not accept
// this number of arguments.
func NewBuiltin(name string, args []Expr, pos Pos) *CallBuiltin {
	b := builtins[name]
	if b == nil || len(args) < b.Min || b.Max != unbounded && len(args) > b.Max {
		return nil
	}
	return &CallBuiltin{Builtin: b, Args: args, Pos: pos}
}
