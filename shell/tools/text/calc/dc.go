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

// dcValue is a number or a string.
type dcValue struct {
	n     num
	s     string
	isStr bool
}

// dcRegister is a register: a stack and an array. The top of the stack is the register's value.
type dcRegister struct {
	stack []dcValue
	array map[int]dcValue
}

// dcMachine is dc at work.
type dcMachine struct {
	c       *tool.Call
	w       io.Writer
	purse   *usage.Purse
	stack   []dcValue
	regs    map[byte]*dcRegister
	scale   int
	ibase   int
	obase   int
	width   int
	quit    int // levels of execution to leave
	in      *strings.Reader
	inReady bool
}

var errEmpty = errors.New("stack empty")

func (d *dcMachine) push(v dcValue) error {
	size := len(v.s) + 64
	if !v.isStr {
		size += v.n.size()
	}
	if err := d.purse.Pay(size); err != nil {
		return err
	}
	d.stack = append(d.stack, v)
	return nil
}

func (d *dcMachine) pop() (dcValue, error) {
	if len(d.stack) == 0 {
		return dcValue{}, errEmpty
	}
	v := d.stack[len(d.stack)-1]
	d.stack = d.stack[:len(d.stack)-1]
	size := len(v.s) + 64
	if !v.isStr {
		size += v.n.size()
	}
	_ = d.purse.Pay(-size) // giving back can't fail
	return v, nil
}

func (d *dcMachine) popNum() (num, error) {
	v, err := d.pop()
	if err == nil && v.isStr {
		_ = d.push(v) // it was there
		return zero, errors.New("non-numeric value")
	}
	return v.n, err
}

// pop2 pops two numbers. If there are fewer, it pops none.
func (d *dcMachine) pop2() (a, b num, err error) {
	if len(d.stack) < 2 {
		return zero, zero, errEmpty
	}
	if d.stack[len(d.stack)-1].isStr || d.stack[len(d.stack)-2].isStr {
		return zero, zero, errors.New("non-numeric value")
	}
	b, _ = d.popNum() // both are there
	a, err = d.popNum()
	return a, b, err
}

func (d *dcMachine) reg(name byte) *dcRegister {
	r := d.regs[name]
	if r == nil {
		r = &dcRegister{array: map[int]dcValue{}}
		d.regs[name] = r
	}
	return r
}

func (d *dcMachine) print(v dcValue, end string) error {
	text := v.s
	if !v.isStr {
		if !d.c.Step(1 + v.n.digits()>>3) {
			return tool.ErrStop
		}
		if d.obase != 10 && v.n.digits() > 20000 {
			return errTooLarge
		}
		text = wrap(v.n.text(d.obase), d.width+1)
	}
	_, err := io.WriteString(d.w, text+end)
	return err
}

func (d *dcMachine) complain(err error) {
	fmt.Fprintf(d.c.Err, "%s: %v\n", d.c.Base(), err)
}

// run executes a text at a level of nesting. An error ends the program. A mistake of a single
// command only gives a message.
func (d *dcMachine) run(s string, level int) error {
	if level > 2000 {
		return errors.New("too many nested macros")
	}
	for i := 0; i < len(s); {
		if !d.c.Step(1) {
			return tool.ErrStop
		}
		used, call, err := d.command(s[i:])
		if errors.Is(err, tool.ErrStop) || err != nil && d.c.Stopped(err) {
			return err
		}
		if err != nil && strings.HasSuffix(err.Error(), "unimplemented") {
			fmt.Fprintln(d.w, err) // to standard output, as in dc
		} else if err != nil {
			d.complain(err)
		}
		i += max(used, 1)
		if call != nil {
			// The last command of a macro replaces the macro, so loops don't nest.
			if strings.TrimSpace(s[i:]) == "" && level > 0 {
				s, i = *call, 0
				continue
			}
			if err := d.run(*call, level+1); err != nil {
				return err
			}
		}
		if d.quit > 0 {
			d.quit--
			return nil
		}
	}
	return nil
}

// command executes the first command of s. call is a macro to run next.
func (d *dcMachine) command(s string) (used int, call *string, err error) {
	ch := s[0]
	switch {
	case ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r':
		return 1, nil, nil
	case ch >= '0' && ch <= '9' || ch >= 'A' && ch <= 'F' || ch == '_' || ch == '.':
		i := 0
		if ch == '_' {
			i++
		}
		start, point := i, false
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] >= 'A' && s[i] <= 'F' || s[i] == '.' && !point) {
			point = point || s[i] == '.'
			i++
		}
		n := parseNum(s[start:i], d.ibase)
		if ch == '_' {
			n = n.neg()
		}
		return i, nil, d.push(dcValue{n: n})
	case ch == '[':
		depth, i := 0, 0
		for ; i < len(s); i++ {
			if s[i] == '\\' && i+1 < len(s) {
				i++
				continue
			}
			if s[i] == '[' {
				depth++
			} else if s[i] == ']' {
				if depth--; depth == 0 {
					break
				}
			}
		}
		return i + 1, nil, d.push(dcValue{s: s[1:min(i, len(s))], isStr: true})
	case ch == '#':
		if end := strings.IndexByte(s, '\n'); end >= 0 {
			return end + 1, nil, nil
		}
		return len(s), nil, nil
	case strings.IndexByte("slSL:;", ch) >= 0:
		if len(s) < 2 {
			return 1, nil, errors.New("unexpected end of text")
		}
		return 2, nil, d.register(ch, s[1])
	case ch == '!' || ch == '<' || ch == '>' || ch == '=':
		return d.conditional(s)
	case strings.IndexByte("+-*/%~^|v", ch) >= 0:
		return 1, nil, d.arithmetic(ch)
	}
	call, err = d.other(ch)
	return 1, call, err
}

// conditional is >r, !<r and the like: it runs the macro in r when the comparison holds.
func (d *dcMachine) conditional(s string) (int, *string, error) {
	i, not := 0, false
	if s[0] == '!' {
		not = true
		i++
	}
	if i+1 >= len(s) || strings.IndexByte("<>=", s[i]) < 0 {
		if end := strings.IndexByte(s, '\n'); end >= 0 {
			return end + 1, nil, errors.New("there are no commands of the system to run")
		}
		return len(s), nil, errors.New("there are no commands of the system to run")
	}
	a, b, err := d.pop2()
	if err != nil {
		return i + 2, nil, err
	}
	// The top of the stack is the left operand.
	c := b.cmp(a)
	holds := map[byte]bool{'<': c < 0, '>': c > 0, '=': c == 0}[s[i]]
	if holds == not {
		return i + 2, nil, nil
	}
	r := d.reg(s[i+1])
	if len(r.stack) == 0 {
		return i + 2, nil, fmt.Errorf("register '%c' (%04o) is empty", s[i+1], s[i+1])
	}
	v := r.stack[len(r.stack)-1]
	if !v.isStr {
		return i + 2, nil, d.push(v)
	}
	return i + 2, &v.s, nil
}

func (d *dcMachine) register(op, name byte) error {
	r := d.reg(name)
	switch op {
	case 's', 'S':
		v, err := d.pop()
		if err != nil {
			return err
		}
		if op == 's' && len(r.stack) > 0 {
			r.stack[len(r.stack)-1] = v
			return nil
		}
		if err := d.purse.Pay(len(v.s) + 64); err != nil {
			return err
		}
		r.stack = append(r.stack, v)
		return nil
	case 'l':
		if len(r.stack) == 0 {
			return fmt.Errorf("register '%c' (%04o) is empty", name, name)
		}
		return d.push(r.stack[len(r.stack)-1])
	case 'L':
		if len(r.stack) == 0 {
			return fmt.Errorf("stack register '%c' (%04o) is empty", name, name)
		}
		v := r.stack[len(r.stack)-1]
		r.stack = r.stack[:len(r.stack)-1]
		return d.push(v)
	}
	n, err := d.popNum()
	if err != nil {
		return err
	}
	i, ok := n.int()
	if !ok || i < 0 {
		return errors.New("array index must be a nonnegative integer")
	}
	if op == ';' {
		v, ok := r.array[i]
		if !ok {
			v = dcValue{n: zero}
		}
		return d.push(v)
	}
	v, err := d.pop()
	if err != nil {
		return err
	}
	if err := d.purse.Pay(len(v.s) + 100); err != nil {
		return err
	}
	r.array[i] = v
	return nil
}

func (d *dcMachine) arithmetic(op byte) error {
	if op == 'v' {
		a, err := d.popNum()
		if err != nil {
			return err
		}
		r, err := a.sqrt(d.scale)
		if err != nil {
			_ = d.push(dcValue{n: a}) // it was there
			return err
		}
		return d.push(dcValue{n: r})
	}
	if op == '|' {
		if len(d.stack) < 3 {
			return errEmpty
		}
		m, err := d.popNum()
		if err != nil {
			return err
		}
		a, e, err := d.pop2()
		if err != nil {
			return err
		}
		mod, exp := m.rescale(0).n, e.rescale(0).n
		if mod.Sign() == 0 {
			return errors.New("remainder by zero")
		}
		if exp.Sign() < 0 {
			return errors.New("exponent must not be negative")
		}
		if !d.c.Step(1 + exp.BitLen()*(mod.BitLen()>>6+1)*(mod.BitLen()>>6+1)>>2) {
			return tool.ErrStop
		}
		base := new(big.Int).Rem(a.rescale(0).n, mod)
		r := new(big.Int).Exp(new(big.Int).Abs(base), exp, new(big.Int).Abs(mod))
		if base.Sign() < 0 && exp.Bit(0) == 1 {
			r.Neg(r)
		}
		return d.push(dcValue{n: num{r, 0}})
	}
	a, b, err := d.pop2()
	if err != nil {
		return err
	}
	back := func(err error) error {
		_ = d.push(dcValue{n: a}) // they were there
		_ = d.push(dcValue{n: b})
		return err
	}
	if a.digits()+b.digits() > maxDigits {
		return back(errTooLarge)
	}
	if !d.c.Step(1 + a.n.BitLen()>>6*(b.n.BitLen()>>6+1)>>5) {
		return tool.ErrStop
	}
	var r num
	switch op {
	case '+':
		r = a.add(b)
	case '-':
		r = a.sub(b)
	case '*':
		r = a.mul(b, d.scale)
	case '/':
		r, err = a.div(b, d.scale)
	case '%':
		if r, err = a.mod(b, d.scale); err != nil {
			err = errors.New("remainder by zero")
		}
	case '^':
		k, _ := b.int() // pow refuses a number that is too large
		if !d.c.Step(1 + max(k, -k)*a.digits()>>8) {
			return tool.ErrStop
		}
		r, err = a.pow(b, d.scale)
	default:
		q, derr := a.div(b, d.scale)
		if derr != nil {
			return back(derr)
		}
		m, merr := a.mod(b, d.scale)
		if merr != nil {
			return back(merr)
		}
		return errors.Join(d.push(dcValue{n: q}), d.push(dcValue{n: m}))
	}
	if err != nil {
		return back(err)
	}
	return d.push(dcValue{n: r})
}

// other executes the commands of one letter.
func (d *dcMachine) other(ch byte) (call *string, err error) {
	top := func() (dcValue, error) {
		if len(d.stack) == 0 {
			return dcValue{}, errEmpty
		}
		return d.stack[len(d.stack)-1], nil
	}
	number := func(set func(n int) error) error {
		n, err := d.popNum()
		if err != nil {
			return err
		}
		i, ok := n.int()
		if !ok {
			i = -1
		}
		return set(i)
	}
	switch ch {
	case 'p':
		v, err := top()
		if err != nil {
			return nil, err
		}
		return nil, d.print(v, "\n")
	case 'n':
		v, err := d.pop()
		if err != nil {
			return nil, err
		}
		return nil, d.print(v, "")
	case 'P':
		v, err := d.pop()
		if err != nil {
			return nil, err
		}
		if v.isStr {
			return nil, d.print(v, "")
		}
		_, err = d.w.Write(new(big.Int).Abs(v.n.rescale(0).n).Bytes())
		return nil, err
	case 'f':
		for i := len(d.stack) - 1; i >= 0; i-- {
			if err := d.print(d.stack[i], "\n"); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case 'c':
		d.stack = nil
		return nil, nil
	case 'd':
		v, err := top()
		if err != nil {
			return nil, err
		}
		return nil, d.push(v)
	case 'r':
		n := len(d.stack)
		if n < 2 {
			return nil, errEmpty
		}
		d.stack[n-1], d.stack[n-2] = d.stack[n-2], d.stack[n-1]
		return nil, nil
	case 'R':
		return nil, number(d.rotate)
	case 'z':
		return nil, d.push(dcValue{n: fromInt(len(d.stack))})
	case 'Z', 'X':
		v, err := d.pop()
		if err != nil {
			return nil, err
		}
		n := 0
		switch {
		case v.isStr && ch == 'Z':
			n = len(v.s)
		case v.isStr:
		case ch == 'Z':
			n = v.n.length()
		default:
			n = v.n.scale
		}
		return nil, d.push(dcValue{n: fromInt(n)})
	case 'k':
		return nil, number(func(n int) error {
			if n < 0 || n > 100000 {
				return errors.New("scale must be a nonnegative integer")
			}
			d.scale = n
			return nil
		})
	case 'i':
		return nil, number(func(n int) error {
			if n < 2 || n > 16 {
				return errors.New("input base must be a number between 2 and 16 (inclusive)")
			}
			d.ibase = n
			return nil
		})
	case 'o':
		return nil, number(func(n int) error {
			if n < 2 {
				return errors.New("output base must be a number greater than 1")
			}
			d.obase = n
			return nil
		})
	case 'K':
		return nil, d.push(dcValue{n: fromInt(d.scale)})
	case 'I':
		return nil, d.push(dcValue{n: fromInt(d.ibase)})
	case 'O':
		return nil, d.push(dcValue{n: fromInt(d.obase)})
	case 'x':
		v, err := d.pop()
		if err != nil {
			return nil, err
		}
		if !v.isStr {
			return nil, d.push(v)
		}
		return &v.s, nil
	case 'a':
		v, err := d.pop()
		if err != nil {
			return nil, err
		}
		s := v.s[:min(len(v.s), 1)]
		if !v.isStr {
			s = string([]byte{byte(new(big.Int).And(v.n.rescale(0).n, big.NewInt(255)).Int64())})
		}
		return nil, d.push(dcValue{s: s, isStr: true})
	case 'q':
		d.quit = 2
		return nil, nil
	case 'Q':
		return nil, number(func(n int) error {
			if n < 1 {
				return errors.New("Q command requires a number >= 1")
			}
			d.quit = n
			return nil
		})
	case '?':
		line := d.readLine()
		return &line, nil
	}
	if ch < ' ' || ch >= 0x7f {
		return nil, fmt.Errorf("'\\%03o' (%#o) unimplemented", ch, ch)
	}
	return nil, fmt.Errorf("'%c' (%04o) unimplemented", ch, ch)
}

// rotate rotates the top n values.
func (d *dcMachine) rotate(n int) error {
	k := min(max(n, -n), len(d.stack))
	if k < 2 {
		return nil
	}
	part := d.stack[len(d.stack)-k:]
	if n > 0 {
		first := part[0]
		copy(part, part[1:])
		part[k-1] = first
		return nil
	}
	last := part[k-1]
	copy(part[1:], part[:k-1])
	part[0] = last
	return nil
}

// readLine is ?: it reads a line from standard input.
func (d *dcMachine) readLine() string {
	if !d.inReady {
		data, err := d.purse.ReadAll(d.c.In)
		if err != nil {
			return ""
		}
		d.in, d.inReady = strings.NewReader(string(data)), true
	}
	var b strings.Builder
	for {
		c, err := d.in.ReadByte()
		if err != nil || c == '\n' {
			return b.String()
		}
		b.WriteByte(c)
	}
}

func dc(c *tool.Call) int {
	f, ok := c.Flags("e:f:hVi", "expression=e", "file=f", "interactive=i")
	if !ok {
		return 1
	}
	w := c.Buffered()
	width := 70
	if n, err := strconv.Atoi(c.Getenv("DC_LINE_LENGTH")); err == nil && (n == 0 || n > 2) {
		width = n
	}
	d := &dcMachine{c: c, w: w, purse: usage.NewPurse(c), regs: map[byte]*dcRegister{}, ibase: 10, obase: 10, width: width}
	defer d.purse.Free()
	file := func(name string) (string, error) {
		in, err := usage.Open(c, name)
		if err != nil {
			return "", err
		}
		data, err := d.purse.ReadAll(in)
		_ = in.Close() // only read
		return string(data), err
	}
	var texts []string
	for _, o := range f.All {
		switch o.Letter {
		case 'e':
			texts = append(texts, o.Value)
		case 'f':
			s, err := file(o.Value)
			if err != nil {
				return c.Errorf(1, "%s: %s", o.Value, tool.ErrText(err))
			}
			texts = append(texts, s)
		}
	}
	status := 0
	for _, name := range f.Args {
		s, err := file(name)
		if err != nil {
			status = c.Errorf(1, "Could not open file %s", name)
			continue
		}
		texts = append(texts, s)
	}
	if len(texts) == 0 && status == 0 {
		s, err := file("-")
		if err != nil {
			return 1
		}
		d.in, d.inReady = strings.NewReader(""), true
		texts = append(texts, s)
	}
	for _, s := range texts {
		if err := d.run(s, 0); err != nil {
			if !c.Stopped(err) {
				d.complain(err)
			}
			status = 1
			break
		}
		if d.quit > 0 {
			break
		}
	}
	return c.Flush(w, status)
}
