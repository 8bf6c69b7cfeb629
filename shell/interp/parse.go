package interp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Limits of the source.
const (
	maxSource = 8 << 20
	// maxFrames is the most nested Go calls of the parser. One level of nesting takes up to about
	// ten calls, so this allows some 300 levels of the worst kind.
	maxFrames = 3000
	// chunk is the size of a read by the parser. The parser can't nest deeper than this between two
	// checks of its stack.
	chunk = 256
)

var (
	errTooDeep = errors.New("nesting too deep")
	errTooLong = fmt.Errorf("script longer than %d bytes", maxSource)
)

// guarded feeds the parser in chunks, and stops it when it has recursed too deep. The parser reads
// on its own goroutine. So the depth of the stack at a read is the depth of nesting at that place,
// however the lexer splits the text.
type guarded struct {
	src  string
	pcs  *[maxFrames]uintptr
	deep bool
}

// pcsPool holds the frame buffers, which are too large to make for every parse.
var pcsPool = sync.Pool{New: func() any { return new([maxFrames]uintptr) }}

func (g *guarded) Read(b []byte) (int, error) {
	if g.src == "" {
		return 0, io.EOF
	}
	if runtime.Callers(0, g.pcs[:]) == maxFrames {
		g.deep = true
		return 0, errTooDeep
	}
	n := copy(b[:min(len(b), chunk)], g.src)
	g.src = g.src[n:]
	return n, nil
}

// parse parses a script. If there is a syntax error, it also returns the statements on the complete
// lines before, because bash runs those first.
func parse(src string) ([]*syntax.Stmt, error) {
	if len(src) > maxSource {
		return nil, errTooLong
	}
	if !utf8.ValidString(src) {
		return parseBytes(src)
	}
	if splitOperator(src) {
		src = rewritten(src)
	}
	stmts, err := parseOnce(src)
	if err == nil || errors.Is(err, errTooDeep) {
		return stmts, err
	}
	if hereTrouble(err) {
		src = rewritten(src)
		if stmts, err = parseOnce(src); err == nil || hereTrouble(err) {
			return stmts, err
		}
	}
	if better, again, ok := repaired(src, err); ok {
		return better, again
	}
	if !incomplete(err) && inCondition(src, err) {
		err = condError{err}
	}
	return stmts, err
}

// condError is a syntax error inside [[ ]].
type condError struct{ error }

func (e condError) Unwrap() error { return e.error }

// inCondition reports whether an error is inside [[ ]].
func inCondition(src string, err error) bool {
	var pe syntax.ParseError
	if !errors.As(err, &pe) {
		return false
	}
	at := min(int(pe.Pos.Offset()), len(src))
	begin := strings.LastIndex(src[:min(at+3, len(src))], "[[ ")
	if begin < 0 {
		return false
	}
	inside := src[begin:max(at, begin)]
	return !strings.Contains(inside, "]]") || strings.HasPrefix(pe.Text, "not a valid test operator") && strings.HasSuffix(strings.TrimSpace(inside), "]]")
}

// incomplete reports whether more text could complete a source with this syntax error.
func incomplete(err error) bool {
	var pe syntax.ParseError
	return errors.As(err, &pe) && (pe.Incomplete || strings.HasPrefix(pe.Text, unclosedHeredoc))
}

// hereTrouble reports whether an error is about a here-document. Its delimiter may be one that the
// rewriter replaced.
func hereTrouble(err error) bool {
	var pe syntax.ParseError
	return errors.As(err, &pe) && (strings.HasPrefix(pe.Text, unclosedHeredoc) || strings.HasPrefix(pe.Text, "expansions not allowed in heredoc"))
}

// hereWord returns the original of a rewritten delimiter.
func hereWord(word string) string {
	if text, ok := strings.CutPrefix(word, herePrefix); ok {
		return unhex(text)
	}
	return word
}

const unclosedHeredoc = "unclosed here-document `"

// parseRest parses a failed source again when no more text will come. Here-documents then end with
// the text.
func (r *runner) parseRest(src string, stmts []*syntax.Stmt, err error) ([]*syntax.Stmt, error) {
	text := src
	for range 8 {
		var pe syntax.ParseError
		if !errors.As(err, &pe) || !strings.HasPrefix(pe.Text, unclosedHeredoc) {
			break
		}
		end := hereWord(strings.TrimSuffix(pe.Text[len(unclosedHeredoc):], "`"))
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		r.writeErr(fmt.Sprintf("%s: line %d: warning: here-document at line %d delimited by end-of-file (wanted `%s')\n",
			r.name, int(r.lineBase)+strings.Count(text, "\n"), uint(r.lineBase)+pe.Pos.Line(), end))
		text += end + "\n"
		stmts, err = parse(text)
	}
	return stmts, err
}

// parseOnce is parse without repairs. A text that is too short to nest deeper than one check of the
// stack allows is parsed on the caller's stack.
func parseOnce(src string) (stmts []*syntax.Stmt, err error) {
	if len(src) <= chunk {
		defer func() {
			if v := recover(); v != nil {
				stmts, err = nil, fmt.Errorf("the parser failed: %v", v)
			}
		}()
		return parseShort(src)
	}
	if perr := onFreshStack(func() { stmts, err = parseHere(src) }); perr != nil {
		return nil, perr
	}
	return stmts, err
}

func parseShort(src string) ([]*syntax.Stmt, error) {
	return collect(strings.NewReader(src))
}

// onFreshStack runs fn on a new stack. The depth of that stack is the depth of fn, however deep the
// script's own calls are.
//
// A panic of the parser must not end the daemon. It becomes a syntax error.
func onFreshStack(fn func()) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the parser failed: %v", v)
			}
		}()
		fn()
	}()
	<-done
	return err
}

func parseHere(src string) ([]*syntax.Stmt, error) {
	g := &guarded{src: src, pcs: pcsPool.Get().(*[maxFrames]uintptr)}
	defer pcsPool.Put(g.pcs)
	out, err := collect(g)
	if g.deep {
		return nil, errTooDeep
	}
	return out, err
}

func collect(in io.Reader) ([]*syntax.Stmt, error) {
	var out []*syntax.Stmt
	var failed error
	// The sequence may continue after an error, so the loop must not end at the first one.
	for s, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(in) {
		switch {
		case failed != nil:
		case err != nil:
			failed = err
		default:
			out = append(out, s)
		}
	}
	if failed != nil {
		return beforeLine(out, errorLine(failed)), failed
	}
	return out, nil
}

// errorLine returns the line of a parse error, 0 when it has none.
func errorLine(err error) uint {
	var pe syntax.ParseError
	if errors.As(err, &pe) {
		return pe.Pos.Line()
	}
	var le syntax.LangError
	if errors.As(err, &le) {
		return le.Pos.Line()
	}
	return 0
}

// beforeLine keeps the statements that end before a line.
func beforeLine(stmts []*syntax.Stmt, line uint) []*syntax.Stmt {
	for i, s := range stmts {
		if s.End().Line() >= line {
			return stmts[:i]
		}
	}
	return stmts
}

// parseMessage formats a parse error in bash's words, as far as possible.
func parseMessage(err error) string {
	text := err.Error()
	var pe syntax.ParseError
	if errors.As(err, &pe) {
		text = pe.Text
	}
	if strings.Contains(text, "reached EOF") || strings.Contains(text, "without matching") || strings.Contains(text, "must end with") || strings.Contains(text, "must be followed by") && syntax.IsIncomplete(err) {
		return fmt.Sprintf("line %d: syntax error: unexpected end of file: %s", errorLine(err), text)
	}
	return fmt.Sprintf("line %d: syntax error: %s", errorLine(err), text)
}
