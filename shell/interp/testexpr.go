package interp

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// testClause runs [[ … ]].
func (r *runner) testClause(c *syntax.TestClause) {
	ok, err := r.cond(c.X, 0)
	switch {
	case r.flow != flowNone && err == nil:
	case err != nil:
		if ae, ok := err.(arithError); ok {
			r.errorf("%s", ae.text)
		}
		r.status = 2
	default:
		r.status = boolStatus(ok)
	}
}

// cond evaluates an expression of [[ … ]].
func (r *runner) cond(x syntax.TestExpr, depth int) (bool, error) {
	if depth > maxArith {
		return false, arithError{"expression too deep"}
	}
	switch x := x.(type) {
	case *syntax.Word:
		if g, ok := negatedGroup(x); ok && !r.opts.extglob {
			return joinPieces(r.pieces(nil, r.parsedWord(g), false, true)) == "", nil
		}
		return r.text(x) != "", nil
	case *syntax.ParenTest:
		return r.cond(x.X, depth+1)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			ok, err := r.cond(x.X, depth+1)
			return !ok, err
		}
		w, ok := x.X.(*syntax.Word)
		if !ok {
			return false, arithError{"unexpected operand of " + x.Op.String()}
		}
		return r.unaryTest(x.Op.String(), r.text(w))
	case *syntax.BinaryTest:
		return r.condBinary(x, depth)
	}
	return false, arithError{"unsupported test"}
}

func (r *runner) condBinary(x *syntax.BinaryTest, depth int) (bool, error) {
	if x.Op == syntax.AndTest || x.Op == syntax.OrTest {
		a, err := r.cond(x.X, depth+1)
		if err != nil || a == (x.Op == syntax.OrTest) {
			return a, err
		}
		return r.cond(x.Y, depth+1)
	}
	xw, okX := x.X.(*syntax.Word)
	yw, okY := x.Y.(*syntax.Word)
	if !okX || !okY {
		return false, arithError{"unexpected operand of " + x.Op.String()}
	}
	left := r.text(xw)
	switch x.Op {
	case syntax.TsMatch, syntax.TsMatchShort:
		return r.matchExt(r.pattern(yw), left, r.opts.nocasematch, true), nil
	case syntax.TsNoMatch:
		return !r.matchExt(r.pattern(yw), left, r.opts.nocasematch, true), nil
	case syntax.TsReMatch:
		return r.regexMatch(left, yw)
	case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
		a, ok := r.evalText("[[", left)
		if !ok {
			return false, nil
		}
		b, ok := r.evalText("[[", r.text(yw))
		return ok && compareInts(x.Op.String(), a, b), nil
	}
	return r.binaryTest(left, x.Op.String(), r.text(yw))
}

// isSet evaluates -v.
func (r *runner) isSet(s string) bool {
	base, sub, isElem := cutSubscript(s)
	if !isElem {
		if s != "" && strings.Trim(s, "0123456789") == "" {
			return r.paramValue(s, nil).set
		}
		if !isName(s) {
			return false
		}
		if r.isElementRef(s) {
			return false
		}
		_, ok := r.get(s)
		return ok
	}
	v := r.lookup(base)
	switch {
	case v == nil:
		return false
	case sub == "@" || sub == "*":
		if v.assoc != nil {
			_, ok := v.assoc.get(sub)
			return ok || len(v.assoc.m) > 0
		}
		return len(v.list()) > 0
	case v.assoc != nil:
		sub = r.expandSubscript(sub)
	}
	_, ok := r.elementOf(base, v, sub)
	return ok
}

// regexMatch evaluates =~ and sets BASH_REMATCH. Quoted characters match themselves.
func (r *runner) regexMatch(s string, w *syntax.Word) (bool, error) {
	var b strings.Builder
	for _, p := range r.pieces(nil, w.Parts, false, true) {
		switch p.kind {
		case quoted:
			if inBrackets(b.String()) {
				b.WriteString(p.s)
				continue
			}
			for i := range len(p.s) {
				if strings.IndexByte(`\.+*?()|[]{}^$`, p.s[i]) >= 0 {
					b.WriteByte('\\')
				}
				b.WriteByte(p.s[i])
			}
		case boundary:
			b.WriteByte(' ')
		default:
			b.WriteString(p.s)
		}
	}
	if r.flow != flowNone {
		return false, nil
	}
	re := r.compile(b.String(), r.opts.nocasematch)
	if re == nil {
		return false, silentError{}
	}
	at := re.FindSubmatchIndex([]byte(s), 0)
	if err := re.Err(); err != nil {
		if r.flow == flowNone {
			r.errorf("[[: %s: %v", b.String(), err)
		}
		return false, silentError{}
	}
	m := make([]string, len(at)/2)
	for i := range m {
		if at[2*i] >= 0 {
			m[i] = s[at[2*i]:at[2*i+1]]
		}
	}
	r.drop(0, "BASH_REMATCH")
	r.place(0, "BASH_REMATCH", &variable{set: true, arr: newArray(m)})
	return at != nil, nil
}

// unaryTest evaluates tests with one operand, such as -f x.
func (r *runner) unaryTest(op, s string) (bool, error) {
	switch op {
	case "-z":
		return s == "", nil
	case "-n":
		return s != "", nil
	case "-v":
		return r.isSet(s), nil
	case "-R":
		v := r.lookupRaw(s)
		return v != nil && v.nameref && v.set, nil
	case "-o":
		p := r.opts.named(s)
		return p != nil && *p, nil
	case "-t":
		n, err := strconv.Atoi(s)
		return err == nil && r.ttyOf(n) != nil, nil
	case "-r":
		return s != "" && r.view.Access(r.abs(s), vfs.MayRead) == nil, nil
	case "-w":
		return s != "" && r.view.Access(r.abs(s), vfs.MayWrite) == nil, nil
	case "-x":
		return s != "" && r.view.Access(r.abs(s), vfs.MayExec) == nil, nil
	}
	return r.fileTest(op, s)
}

// fileTest evaluates the tests of a file's kind and mode.
func (r *runner) fileTest(op, s string) (bool, error) {
	stat := r.view.Stat
	if op == "-L" || op == "-h" {
		stat = r.view.Lstat
	}
	var i vfs.Info
	err := fs.ErrNotExist
	if s != "" {
		i, err = stat(r.abs(s))
	}
	exists := err == nil
	switch op {
	case "-e", "-a":
		return exists, nil
	case "-f":
		return exists && i.Mode.IsRegular(), nil
	case "-d":
		return exists && i.Mode.IsDir(), nil
	case "-L", "-h":
		return exists && i.Mode&fs.ModeSymlink != 0, nil
	case "-s":
		return exists && i.Size > 0, nil
	case "-c":
		return exists && i.Mode&fs.ModeCharDevice != 0, nil
	case "-p":
		return exists && i.Mode&fs.ModeNamedPipe != 0, nil
	case "-S":
		return exists && i.Mode&fs.ModeSocket != 0, nil
	case "-b":
		return exists && i.Mode&fs.ModeDevice != 0 && i.Mode&fs.ModeCharDevice == 0, nil
	case "-u":
		return exists && i.Mode&fs.ModeSetuid != 0, nil
	case "-g":
		return exists && i.Mode&fs.ModeSetgid != 0, nil
	case "-k":
		return exists && i.Mode&fs.ModeSticky != 0, nil
	case "-O":
		return exists && i.UID == r.cred().UID, nil
	case "-G":
		return exists && i.GID == r.cred().GID, nil
	case "-N":
		return exists && !i.Accessed.After(i.Modified), nil
	}
	return false, arithError{op + ": unary operator expected"}
}

func compareInts(op string, a, b int64) bool {
	switch op {
	case "-eq":
		return a == b
	case "-ne":
		return a != b
	case "-lt":
		return a < b
	case "-le":
		return a <= b
	case "-gt":
		return a > b
	}
	return a >= b
}

// binaryTest evaluates the operators that [ and [[ share.
func (r *runner) binaryTest(a, op, b string) (bool, error) {
	switch op {
	case "=", "==":
		return a == b, nil
	case "!=":
		return a != b, nil
	case "<":
		return a < b, nil
	case ">":
		return a > b, nil
	case "-eq", "-ne", "-lt", "-le", "-gt", "-ge":
		x, err := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
		if err != nil {
			return false, arithError{a + ": integer expression expected"}
		}
		y, err := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
		if err != nil {
			return false, arithError{b + ": integer expression expected"}
		}
		return compareInts(op, x, y), nil
	case "-nt", "-ot", "-ef":
		x, errX := r.view.Stat(r.abs(a))
		y, errY := r.view.Stat(r.abs(b))
		switch op {
		case "-nt":
			return errX == nil && (errY != nil || x.Modified.After(y.Modified)), nil
		case "-ot":
			return errY == nil && (errX != nil || x.Modified.Before(y.Modified)), nil
		}
		return errX == nil && errY == nil && x.Ino == y.Ino && x.Dev == y.Dev, nil
	}
	return false, arithError{op + ": binary operator expected"}
}

// bracketTest evaluates test and [ from their words.
type bracketTest struct {
	r    *runner
	args []string
	pos  int
}

func isUnaryTest(s string) bool {
	return len(s) == 2 && s[0] == '-' && strings.IndexByte("abcdefghknoprstuvwxzLNORSG", s[1]) >= 0
}

func isBinaryTest(s string) bool {
	switch s {
	case "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef":
		return true
	}
	return false
}

// run evaluates all words. As in POSIX, it first looks at the number of words.
func (t *bracketTest) run() (bool, error) {
	a := t.args
	not := false
	for n := len(a); (n == 2 || n == 3 && !isBinaryTest(a[1]) && !isJoin(a[1]) || n == 4) && a[0] == "!"; n = len(a) {
		not, a = !not, a[1:]
	}
	if len(a) == 4 && a[0] == "(" && a[3] == ")" {
		a = a[1:3]
	}
	t.args = a
	ok, err := t.few()
	return ok != not && err == nil, err
}

// isJoin reports whether a word joins two tests.
func isJoin(s string) bool { return s == "-a" || s == "-o" }

// few evaluates up to three words by POSIX's rules, and more by the grammar.
func (t *bracketTest) few() (bool, error) {
	a := t.args
	switch {
	case len(a) == 0:
		return false, nil
	case len(a) == 1:
		return a[0] != "", nil
	case len(a) == 3 && isBinaryTest(a[1]):
		return t.r.binaryTest(a[0], a[1], a[2])
	case len(a) == 3 && a[1] == "-a":
		return a[0] != "" && a[2] != "", nil
	case len(a) == 3 && a[1] == "-o":
		return a[0] != "" || a[2] != "", nil
	case len(a) == 3 && a[0] == "(" && a[2] == ")":
		return a[1] != "", nil
	}
	ok, err := t.or(0)
	if err == nil && t.pos < len(a) {
		if len(a) == 2 {
			return false, arithError{a[0] + ": unary operator expected"}
		}
		return false, arithError{"too many arguments"}
	}
	return ok, err
}

func (t *bracketTest) peek() string {
	if t.pos < len(t.args) {
		return t.args[t.pos]
	}
	return ""
}

func (t *bracketTest) or(depth int) (bool, error) {
	a, err := t.and(depth)
	for err == nil && t.peek() == "-o" {
		t.pos++
		var b bool
		b, err = t.and(depth)
		a = a || b
	}
	return a, err
}

func (t *bracketTest) and(depth int) (bool, error) {
	a, err := t.not(depth)
	for err == nil && t.peek() == "-a" {
		t.pos++
		var b bool
		b, err = t.not(depth)
		a = a && b
	}
	return a, err
}

func (t *bracketTest) not(depth int) (bool, error) {
	if depth > maxArith {
		return false, arithError{"expression too deep"}
	}
	left := len(t.args) - t.pos
	s := t.peek()
	switch {
	case left == 0:
		return false, arithError{"argument expected"}
	case s == "!" && left > 1:
		t.pos++
		ok, err := t.not(depth + 1)
		return !ok, err
	case s == "(" && left > 1:
		t.pos++
		ok, err := t.or(depth + 1)
		if err == nil && t.peek() != ")" {
			return false, arithError{"`)' expected"}
		}
		t.pos++
		return ok, err
	case left > 2 && isBinaryTest(t.args[t.pos+1]):
		t.pos += 3
		return t.r.binaryTest(s, t.args[t.pos-2], t.args[t.pos-1])
	case isUnaryTest(s) && left > 1:
		t.pos += 2
		return t.r.unaryTest(s, t.args[t.pos-1])
	}
	t.pos++
	return s != "", nil
}

// negatedGroup reports whether a word is !(…). Without extglob that is the negation of the
// expression in the parentheses.
func negatedGroup(w *syntax.Word) (string, bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	g, ok := w.Parts[0].(*syntax.ExtGlob)
	if !ok || g.Op != syntax.GlobExcept {
		return "", false
	}
	return strings.TrimSpace(g.Pattern.Value), true
}
