package calc

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// bcVar is a variable or an array element.
type bcVar struct{ v num }

type bcArray map[int]*bcVar

// machine is bc at work.
type machine struct {
	c      *tool.Call
	w      io.Writer
	purse  *usage.Purse
	vars   map[string]*bcVar
	arrays map[string]bcArray
	funcs  map[string]*function
	ibase  int
	obase  int
	scale  int
	last   num
	width  int
	depth  int
	nested int
	result num
	in     *bcLexer // what read() reads
	name   string

	hasLibrary bool // -l
}

// How a statement ends.
type flow byte

const (
	goOn flow = iota
	flowBreak
	flowContinue
	flowReturn
	flowQuit
)

var (
	errQuit = errors.New("quit")
	errDeep = errors.New("too many nested calls")
)

// pay pays steps for work on numbers.
func (m *machine) pay(n int) error {
	if !m.c.Step(1 + n) {
		return tool.ErrStop
	}
	return nil
}

func (m *machine) set(v *bcVar, n num) error {
	if err := m.purse.Pay(n.size() - v.v.size()); err != nil {
		return err
	}
	v.v = n
	return nil
}

func (m *machine) variable(name string) *bcVar {
	v := m.vars[name]
	if v == nil {
		v = &bcVar{zero}
		m.vars[name] = v
	}
	return v
}

// place finds the variable or element of a node, for reading and assignment. get and put also work
// for bc's special variables.
func (m *machine) place(n *node) (get func() num, put func(num) error, err error) {
	if n.op == "array" {
		i, err := m.eval(n.kids[0])
		if err != nil {
			return nil, nil, err
		}
		k, ok := i.int()
		if !ok || k < 0 || k > 1<<24 {
			return nil, nil, fmt.Errorf("Array %s subscript out of bounds.", n.name)
		}
		a := m.arrays[n.name]
		if a == nil {
			a = bcArray{}
			m.arrays[n.name] = a
		}
		v := a[k]
		if v == nil {
			v = &bcVar{zero}
			if err := m.purse.Pay(100); err != nil {
				return nil, nil, err
			}
			a[k] = v
		}
		return func() num { return v.v }, func(x num) error { return m.set(v, x) }, nil
	}
	own := func(p *int, least, most int) (func() num, func(num) error, error) {
		return func() num { return fromInt(*p) }, func(x num) error {
			k, ok := x.int()
			if !ok {
				k = most
			}
			*p = min(max(k, least), most)
			return nil
		}, nil
	}
	switch n.name {
	case "ibase":
		return own(&m.ibase, 2, 16)
	case "obase":
		return own(&m.obase, 2, 1<<30)
	case "scale":
		return own(&m.scale, 0, 100000)
	case "last":
		return func() num { return m.last }, func(x num) error { m.last = x; return nil }, nil
	}
	v := m.variable(n.name)
	return func() num { return v.v }, func(x num) error { return m.set(v, x) }, nil
}

func boolNum(b bool) num {
	if b {
		return one
	}
	return zero
}

// calculate applies an operator.
func (m *machine) calculate(op string, a, b num) (num, error) {
	work := (a.n.BitLen() + b.n.BitLen()) >> 6
	if op == "*" {
		work = a.n.BitLen() >> 6 * (b.n.BitLen() >> 6) >> 5
	}
	if op == "/" || op == "%" {
		work += (m.scale >> 4) * (m.scale >> 4) >> 4
	}
	if err := m.pay(work); err != nil {
		return zero, err
	}
	if a.digits()+b.digits() > maxDigits {
		return zero, errTooLarge
	}
	switch op {
	case "+":
		return a.add(b), nil
	case "-":
		return a.sub(b), nil
	case "*":
		return a.mul(b, m.scale), nil
	case "/":
		return a.div(b, m.scale)
	case "%":
		return a.mod(b, m.scale)
	case "^":
		k, _ := b.int() // pow refuses a number that is too large
		if err := m.pay(max(k, -k) * a.digits() >> 8); err != nil {
			return zero, err
		}
		return a.pow(b, m.scale)
	case "==":
		return boolNum(a.cmp(b) == 0), nil
	case "!=":
		return boolNum(a.cmp(b) != 0), nil
	case "<":
		return boolNum(a.cmp(b) < 0), nil
	case "<=":
		return boolNum(a.cmp(b) <= 0), nil
	case ">":
		return boolNum(a.cmp(b) > 0), nil
	}
	return boolNum(a.cmp(b) >= 0), nil
}

func (m *machine) eval(n *node) (num, error) {
	if m.nested++; m.nested > 50000 {
		m.nested = 0
		return zero, errDeep
	}
	defer func() { m.nested-- }()
	switch n.op {
	case "num":
		if err := m.pay(len(n.name) >> 4); err != nil {
			return zero, err
		}
		return parseNum(n.name, m.ibase), nil
	case "var", "array":
		get, _, err := m.place(n)
		if err != nil {
			return zero, err
		}
		return get(), nil
	case "paren":
		return m.eval(n.kids[0])
	case "neg":
		v, err := m.eval(n.kids[0])
		return v.negOr(), err
	case "!":
		v, err := m.eval(n.kids[0])
		if err != nil {
			return zero, err
		}
		return boolNum(!v.bool()), nil
	case "call":
		return m.call(n)
	case "assign":
		get, put, err := m.place(n.kids[0])
		if err != nil {
			return zero, err
		}
		v, err := m.eval(n.kids[1])
		if err != nil {
			return zero, err
		}
		if n.name != "" {
			if v, err = m.calculate(n.name, get(), v); err != nil {
				return zero, err
			}
		}
		if err := put(v); err != nil {
			return zero, err
		}
		return get(), nil
	case "pre++", "pre--", "post++", "post--":
		get, put, err := m.place(n.kids[0])
		if err != nil {
			return zero, err
		}
		old := get()
		v := old.add(one)
		if strings.HasSuffix(n.op, "--") {
			v = old.sub(one)
		}
		if err := put(v); err != nil {
			return zero, err
		}
		if strings.HasPrefix(n.op, "post") {
			return old, m.pay(0)
		}
		return get(), m.pay(0)
	}
	a, err := m.eval(n.kids[0])
	if err != nil {
		return zero, err
	}
	if n.op == "&&" && !a.bool() {
		return zero, nil
	}
	if n.op == "||" && a.bool() {
		return one, nil
	}
	b, err := m.eval(n.kids[1])
	if err != nil {
		return zero, err
	}
	if n.op == "&&" || n.op == "||" {
		return boolNum(b.bool()), nil
	}
	return m.calculate(n.op, a, b)
}

// negOr is neg, but also accepts the empty number after an error.
func (a num) negOr() num {
	if a.n == nil {
		return zero
	}
	return a.neg()
}

// call calls a function: a built-in one, or one that the program defines.
func (m *machine) call(n *node) (num, error) {
	f := m.funcs[n.name]
	switch n.name {
	case "length", "scale", "sqrt", "random", "read":
		if f != nil {
			break
		}
		if n.name == "read" {
			return m.readNumber()
		}
		if len(n.kids) != 1 {
			return zero, errParameters
		}
		if n.name == "length" && n.kids[0].array {
			return fromInt(len(m.arrays[n.kids[0].name])), nil
		}
		v, err := m.eval(n.kids[0])
		if err != nil {
			return zero, err
		}
		if err := m.pay(v.digits() >> 4); err != nil {
			return zero, err
		}
		switch n.name {
		case "length":
			return fromInt(v.length()), nil
		case "scale":
			return fromInt(v.scale), nil
		case "sqrt":
			if err := m.pay(m.scale * m.scale >> 12); err != nil {
				return zero, err
			}
			return v.sqrt(m.scale)
		}
		return zero, nil
	}
	if f == nil {
		if v, ok, err := m.callLibrary(n); ok {
			return v, err
		}
		return zero, fmt.Errorf("Function %s not defined.", n.name)
	}
	if len(n.kids) != len(f.params) {
		return zero, errParameters
	}
	args := make([]num, len(n.kids))
	arrays := make([]bcArray, len(n.kids))
	for i, k := range n.kids {
		if f.params[i].array {
			arrays[i] = bcArray{}
			for at, v := range m.arrays[k.name] {
				arrays[i][at] = &bcVar{v.v}
			}
			if err := m.purse.Pay(100 * len(arrays[i])); err != nil {
				return zero, err
			}
			continue
		}
		var err error
		if args[i], err = m.eval(k); err != nil {
			return zero, err
		}
	}
	if m.depth++; m.depth > 4000 {
		return zero, errDeep
	}
	defer func() { m.depth-- }()
	if err := m.pay(4 + len(f.autos)); err != nil {
		return zero, err
	}
	locals := append(append([]*node{}, f.params...), f.autos...)
	oldVars, oldArrays := make([]*bcVar, len(locals)), make([]bcArray, len(locals))
	for i, l := range locals {
		if l.array {
			oldArrays[i] = m.arrays[l.name]
			m.arrays[l.name] = nil
			if i < len(arrays) {
				m.arrays[l.name] = arrays[i]
			}
			continue
		}
		oldVars[i] = m.vars[l.name]
		v := &bcVar{zero}
		if i < len(args) {
			v.v = args[i]
		}
		m.vars[l.name] = v
	}
	m.result = zero
	_, err := m.exec(f.body)
	result := m.result
	m.result = zero
	for i, l := range locals {
		if l.array {
			m.arrays[l.name] = oldArrays[i]
		} else {
			m.vars[l.name] = oldVars[i]
		}
	}
	return result, err
}

// readNumber is read(): it reads a number from standard input.
func (m *machine) readNumber() (num, error) {
	if m.in == nil {
		return zero, nil
	}
	for {
		t := m.in.next()
		switch t.kind {
		case '0':
			return parseNum(t.text, m.ibase), nil
		case 'o':
			if t.text == "-" {
				if t = m.in.next(); t.kind == '0' {
					return parseNum(t.text, m.ibase).neg(), nil
				}
			}
		case 0:
			return zero, nil
		}
	}
}

// show prints a number and stores it as the last value.
func (m *machine) show(v num, end string) error {
	m.last = v
	if err := m.pay(v.digits() >> 3); err != nil {
		return err
	}
	if m.obase != 10 {
		if d := v.digits(); d > 20000 {
			return errTooLarge
		}
	}
	_, err := io.WriteString(m.w, wrap(v.text(m.obase), m.width)+end)
	return err
}

// exec runs a statement.
func (m *machine) exec(n *node) (flow, error) {
	if m.nested++; m.nested > 50000 {
		m.nested = 0
		return goOn, errDeep
	}
	defer func() { m.nested-- }()
	switch n.op {
	case "block":
		for _, k := range n.kids {
			if f, err := m.exec(k); f != goOn || err != nil {
				return f, err
			}
		}
	case "string":
		_, err := io.WriteString(m.w, n.name)
		return goOn, err
	case "expr":
		e := n.kids[0]
		if e.op == "call" {
			if f := m.funcs[e.name]; f != nil && f.void {
				_, err := m.eval(e)
				return goOn, err
			}
		}
		v, err := m.eval(e)
		if err != nil || e.void {
			return goOn, err
		}
		return goOn, m.show(v, "\n")
	case "print":
		for _, k := range n.kids {
			if k.op == "string" {
				if _, err := io.WriteString(m.w, printEscapes(k.name)); err != nil {
					return goOn, err
				}
				continue
			}
			v, err := m.eval(k)
			if err == nil {
				err = m.show(v, "")
			}
			if err != nil {
				return goOn, err
			}
		}
	case "if":
		v, err := m.eval(n.kids[0])
		if err != nil {
			return goOn, err
		}
		if v.bool() {
			return m.exec(n.kids[1])
		}
		if len(n.kids) > 2 {
			return m.exec(n.kids[2])
		}
	case "while":
		return m.loop(n.kids[0], nil, n.kids[1])
	case "for":
		if n.kids[0] != nil {
			if _, err := m.eval(n.kids[0]); err != nil {
				return goOn, err
			}
		}
		return m.loop(n.kids[1], n.kids[2], n.kids[3])
	case "break":
		return flowBreak, nil
	case "continue":
		return flowContinue, nil
	case "quit", "halt":
		return flowQuit, errQuit
	case "return":
		m.result = zero
		if len(n.kids) > 0 {
			v, err := m.eval(n.kids[0])
			if err != nil {
				return goOn, err
			}
			m.result = v
		}
		return flowReturn, nil
	case "limits":
		_, err := io.WriteString(m.w, "BC_BASE_MAX     = 1073741824\nBC_DIM_MAX      = 16777215\nBC_SCALE_MAX    = 100000\nBC_STRING_MAX   = 2147483647\n")
		return goOn, err
	}
	return goOn, nil
}

func (m *machine) loop(cond, next, body *node) (flow, error) {
	for {
		if err := m.pay(0); err != nil {
			return goOn, err
		}
		if cond != nil {
			v, err := m.eval(cond)
			if err != nil || !v.bool() {
				return goOn, err
			}
		}
		f, err := m.exec(body)
		switch {
		case err != nil || f == flowReturn || f == flowQuit:
			return f, err
		case f == flowBreak:
			return goOn, nil
		}
		if next != nil {
			if _, err := m.eval(next); err != nil {
				return goOn, err
			}
		}
	}
}

// printEscapes expands the escapes of print.
func printEscapes(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte(`abfnqrt\e`, s[i]); at >= 0 {
			b.WriteByte("\a\b\f\n\"\r\t\\\\"[at])
		}
	}
	return b.String()
}

// run parses and runs a program. The result is false after quit.
func (m *machine) run(src, name string) (bool, error) {
	lex := &bcLexer{src: src, line: 1}
	p := &bcParser{lex: lex, funcs: m.funcs}
	m.name = name
	if name == "(standard_in)" {
		m.in = lex
	}
	p.advance()
	for {
		for p.tok.kind == '\n' {
			p.advance()
		}
		if p.tok.kind == 0 {
			return true, nil
		}
		if err := m.pay(1); err != nil {
			return false, err
		}
		line := lex.line
		n := p.line()
		if p.err != nil {
			fmt.Fprintf(m.c.Err, "%s %d: %v\n", name, max(line, 1), p.err)
			p.err, p.depth = nil, 0
			for p.tok.kind != '\n' && p.tok.kind != 0 {
				p.advance()
			}
			continue
		}
		if n == nil {
			return true, nil
		}
		if hasQuit(n, 0) {
			// bc ends when it reads quit, wherever it stands. Commands before it on the same line
			// are not run.
			return false, nil
		}
		m.nested, m.depth = 0, 0
		if _, err := m.exec(n); err != nil {
			switch {
			case errors.Is(err, errQuit):
				return false, nil
			case errors.Is(err, tool.ErrStop) || m.c.Stopped(err):
				return false, err
			case m.c.Ctx.Err() != nil:
				return false, err
			}
			text := err.Error()
			fmt.Fprintf(m.c.Err, "Runtime error (func=(main), adr=0): %s\n", strings.ToUpper(text[:1])+text[1:])
		}
	}
}

func hasQuit(n *node, depth int) bool {
	if n == nil || depth > 400 {
		return false
	}
	if n.op == "quit" {
		return true
	}
	for _, k := range n.kids {
		if hasQuit(k, depth+1) {
			return true
		}
	}
	return false
}

func newMachine(c *tool.Call, w io.Writer) *machine {
	width := 70
	if n, err := strconv.Atoi(c.Getenv("BC_LINE_LENGTH")); err == nil && (n == 0 || n >= 3) {
		width = n
	}
	return &machine{c: c, w: w, purse: usage.NewPurse(c), vars: map[string]*bcVar{}, arrays: map[string]bcArray{}, funcs: map[string]*function{},
		ibase: 10, obase: 10, last: num{new(big.Int), 0}, width: width}
}

func bc(c *tool.Call) int {
	f, ok := c.Flags("hilqswv", "mathlib=l", "quiet=q", "standard=s", "warn=w", "interactive=i")
	if !ok {
		return 1
	}
	w := c.Buffered()
	m := newMachine(c, w)
	defer m.purse.Free()
	going := true
	var err error
	if f.Has('l') {
		m.hasLibrary, m.scale = true, 20
	}
	status := 0
	for _, name := range f.Args {
		in, err := usage.Open(c, name)
		if err != nil {
			fmt.Fprintf(c.Err, "File %s is unavailable.\n", name)
			return c.Flush(w, 1)
		}
		src, err := m.purse.ReadAll(in)
		_ = in.Close() // only read
		if err != nil {
			return c.Flush(w, 1)
		}
		if going, err = m.run(string(src), name); !going {
			if err != nil {
				status = 1
			}
			return c.Flush(w, status)
		}
	}
	src, err := m.purse.ReadAll(c.In)
	if err != nil {
		return c.Flush(w, 1)
	}
	if _, err = m.run(string(src), "(standard_in)"); err != nil {
		status = 1
	}
	return c.Flush(w, status)
}
