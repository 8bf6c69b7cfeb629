package calc

import (
	"errors"
	"math/big"
	"strings"
)

// num is a decimal number n / 10^scale. It is immutable.
type num struct {
	n     *big.Int
	scale int
}

var (
	zero = num{new(big.Int), 0}
	one  = num{big.NewInt(1), 0}
	ten  = big.NewInt(10)
)

// maxDigits is the longest number. A longer result is an error.
const maxDigits = 2 << 20

var (
	errDivide   = errors.New("divide by zero")
	errSqrt     = errors.New("square root of negative number")
	errTooLarge = errors.New("number is too large")
)

var powersOfTen = func() (t [64]*big.Int) {
	t[0] = big.NewInt(1)
	for i := 1; i < len(t); i++ {
		t[i] = new(big.Int).Mul(t[i-1], ten)
	}
	return t
}()

func pow10(n int) *big.Int {
	if n < len(powersOfTen) {
		return powersOfTen[n]
	}
	return new(big.Int).Exp(ten, big.NewInt(int64(n)), nil)
}

func fromInt(n int) num { return num{big.NewInt(int64(n)), 0} }

// rescale truncates or extends the fraction.
func (a num) rescale(scale int) num {
	switch {
	case scale > a.scale:
		return num{new(big.Int).Mul(a.n, pow10(scale-a.scale)), scale}
	case scale < a.scale:
		return num{new(big.Int).Quo(a.n, pow10(a.scale-scale)), scale}
	}
	return a
}

func align(a, b num) (num, num) {
	s := max(a.scale, b.scale)
	return a.rescale(s), b.rescale(s)
}

func (a num) add(b num) num {
	a, b = align(a, b)
	return num{new(big.Int).Add(a.n, b.n), a.scale}
}

func (a num) sub(b num) num {
	a, b = align(a, b)
	return num{new(big.Int).Sub(a.n, b.n), a.scale}
}

func (a num) neg() num { return num{new(big.Int).Neg(a.n), a.scale} }

func (a num) cmp(b num) int {
	a, b = align(a, b)
	return a.n.Cmp(b.n)
}

func (a num) mul(b num, scale int) num {
	full := num{new(big.Int).Mul(a.n, b.n), a.scale + b.scale}
	return full.rescale(min(full.scale, max(scale, a.scale, b.scale)))
}

func (a num) div(b num, scale int) (num, error) {
	if b.n.Sign() == 0 {
		return zero, errDivide
	}
	// a/10^sa / (b/10^sb), to scale digits, is a*10^(scale+sb-sa) / b.
	shift := scale + b.scale - a.scale
	x, y := a.n, b.n
	if shift >= 0 {
		x = new(big.Int).Mul(x, pow10(shift))
	} else {
		y = new(big.Int).Mul(y, pow10(-shift))
	}
	return num{new(big.Int).Quo(x, y), scale}, nil
}

func (a num) mod(b num, scale int) (num, error) {
	q, err := a.div(b, scale)
	if err != nil {
		return zero, err
	}
	r := max(a.scale, b.scale+scale)
	p := num{new(big.Int).Mul(q.n, b.n), q.scale + b.scale}
	return a.sub(p).rescale(r), nil
}

func (a num) pow(b num, scale int) (num, error) {
	e := b.rescale(0).n
	if !e.IsInt64() {
		return zero, errors.New("exponent too large in raise")
	}
	n := e.Int64()
	neg := n < 0
	if neg {
		n = -n
	}
	if n == 0 {
		return one, nil
	}
	if int64(a.digits())*n > maxDigits && a.n.CmpAbs(powersOfTen[0]) > 0 {
		return zero, errTooLarge
	}
	if int64(a.scale)*n > maxDigits {
		return zero, errTooLarge
	}
	full := num{new(big.Int).Exp(a.n, big.NewInt(n), nil), a.scale * int(n)}
	if !neg {
		return full.rescale(min(full.scale, max(scale, a.scale))), nil
	}
	return one.div(full, scale)
}

func (a num) sqrt(scale int) (num, error) {
	if a.n.Sign() < 0 {
		return zero, errSqrt
	}
	s := max(scale, a.scale)
	if a.n.Sign() == 0 {
		return num{new(big.Int), s}, nil
	}
	if one := a.rescale(0); a.scale == 0 && one.n.Cmp(powersOfTen[0]) == 0 {
		return num{new(big.Int).Set(pow10(s)), s}, nil
	}
	return num{new(big.Int).Sqrt(a.rescale(2 * s).n), s}, nil
}

// digits returns the approximate number of digits.
func (a num) digits() int { return a.n.BitLen()*30103/100000 + 1 }

// size returns the memory of a number.
func (a num) size() int { return a.n.BitLen()/8 + 64 }

// length returns the result of bc's length(): the number of significant digits, but at least the
// number of digits of the fraction.
func (a num) length() int {
	s := new(big.Int).Abs(a.n).String()
	if s == "0" {
		return max(1, a.scale)
	}
	return max(len(s), a.scale)
}

func (a num) bool() bool { return a.n.Sign() != 0 }

// int returns the whole part if it is small.
func (a num) int() (int, bool) {
	i := a.rescale(0).n
	if !i.IsInt64() || i.Int64() > 1<<31 || i.Int64() < -1<<31 {
		return 0, false
	}
	return int(i.Int64()), true
}

// parseNum reads digits of a base, with a point. In a number of several digits, a digit above the
// base counts as the base's highest digit. A single digit keeps its value.
func parseNum(s string, base int) num {
	whole, frac, _ := strings.Cut(s, ".")
	value := func(c byte) int64 {
		if c <= '9' {
			return int64(c - '0')
		}
		return int64(c-'A') + 10
	}
	if len(whole)+len(frac) == 1 {
		if len(whole) == 1 {
			return num{big.NewInt(value(whole[0])), 0}
		}
	}
	if base == 10 {
		clip := func(r rune) rune {
			if r > '9' {
				return '9'
			}
			return r
		}
		n, ok := new(big.Int).SetString("0"+strings.Map(clip, whole+frac), 10)
		if !ok {
			return zero
		}
		return num{n, len(frac)}
	}
	b := big.NewInt(int64(base))
	read := func(s string) *big.Int {
		n := new(big.Int)
		for i := range len(s) {
			n.Mul(n, b)
			n.Add(n, big.NewInt(min(value(s[i]), int64(base)-1)))
		}
		return n
	}
	n := num{read(whole), 0}
	if frac == "" {
		return n
	}
	div := num{new(big.Int).Exp(b, big.NewInt(int64(len(frac))), nil), 0}
	f, err := num{read(frac), 0}.div(div, len(frac))
	if err != nil {
		return n
	}
	return n.add(f)
}

const digitChars = "0123456789ABCDEF"

// text formats a number in a base as bc does, without a zero before the point.
func (a num) text(base int) string {
	if a.n.Sign() == 0 {
		return "0"
	}
	sign := ""
	abs := num{new(big.Int).Abs(a.n), a.scale}
	if a.n.Sign() < 0 {
		sign = "-"
	}
	if base == 10 {
		s := abs.n.String()
		if a.scale == 0 {
			return sign + s
		}
		if len(s) <= a.scale {
			s = strings.Repeat("0", a.scale-len(s)) + s
			return sign + "." + s
		}
		return sign + s[:len(s)-a.scale] + "." + s[len(s)-a.scale:]
	}
	whole := abs.rescale(0)
	var b strings.Builder
	b.WriteString(sign)
	big1 := big.NewInt(int64(base))
	wide := len(num{big.NewInt(int64(base - 1)), 0}.n.String())
	put := func(d int, first bool) {
		if base <= 16 {
			b.WriteByte(digitChars[d])
			return
		}
		if !first {
			b.WriteByte(' ')
		}
		s := big.NewInt(int64(d)).String()
		b.WriteString(strings.Repeat("0", wide-len(s)) + s)
	}
	if whole.n.Sign() != 0 {
		if base <= 16 {
			b.WriteString(strings.ToUpper(whole.n.Text(base)))
		} else {
			var digits []int
			for n := new(big.Int).Set(whole.n); n.Sign() > 0; {
				var r big.Int
				n.QuoRem(n, big1, &r)
				digits = append(digits, int(r.Int64()))
			}
			for i := len(digits) - 1; i >= 0; i-- {
				b.WriteByte(' ')
				put(digits[i], true)
			}
		}
	}
	if a.scale > 0 {
		b.WriteByte('.')
		f := abs.sub(whole)
		t := big.NewInt(1)
		limit := pow10(a.scale)
		for first := true; t.Cmp(limit) < 0; first = false {
			f = num{new(big.Int).Mul(f.n, big1), f.scale}
			d := f.rescale(0)
			put(int(d.n.Int64()), first)
			f = f.sub(d)
			t.Mul(t, big1)
		}
	}
	return b.String()
}

// wrap breaks a long number into lines. Each line except the last ends with a backslash.
func wrap(s string, width int) string {
	width -= 2
	if width < 1 || len(s) <= width {
		return s
	}
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + "\\\n")
		s = s[width:]
	}
	b.WriteString(s)
	return b.String()
}
