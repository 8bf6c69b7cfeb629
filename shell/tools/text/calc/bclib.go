package calc

import (
	"errors"
	"math/big"
)

// libraryFunction is a function that -l adds. A program may replace it with its own.
type libraryFunction struct {
	params int
	value  func(m *machine, args []num) (num, error)
}

// mathLibrary has the functions of -l. Each returns its value truncated to m.scale digits.
//
// POSIX defines the functions by their mathematical names. They are computed natively here.
var mathLibrary = map[string]libraryFunction{
	"e": {1, func(m *machine, args []num) (num, error) { return m.exponential(args[0]) }},
	"l": {1, func(m *machine, args []num) (num, error) { return m.logarithm(args[0]) }},
	"s": {1, func(m *machine, args []num) (num, error) { return m.sine(args[0]) }},
	"c": {1, func(m *machine, args []num) (num, error) { return m.cosine(args[0]) }},
	"a": {1, func(m *machine, args []num) (num, error) { return m.arctangent(args[0]) }},
	"j": {2, func(m *machine, args []num) (num, error) { return m.bessel(args[0], args[1]) }},
}

var errParameters = errors.New("Parameter number mismatch")

// callLibrary calls a function of -l. ok is false if there is none with this name.
func (m *machine) callLibrary(n *node) (v num, ok bool, err error) {
	f, ok := mathLibrary[n.name]
	if !ok || !m.hasLibrary {
		return zero, false, nil
	}
	if len(n.kids) != f.params {
		return zero, true, errParameters
	}
	args := make([]num, len(n.kids))
	for i, k := range n.kids {
		if args[i], err = m.eval(k); err != nil {
			return zero, true, err
		}
	}
	v, err = f.value(m, args)
	return v, true, err
}

// slackBits is the extra precision of the first attempt, beyond the error bound. The chance that
// the digits stay undecided is about 2^-slackBits.
const slackBits = 24

// approximation is a value in fixed point. The true value differs by less than 2^errorBits units of
// the last place.
type approximation struct {
	value     *big.Int
	errorBits uint
}

// cutOff computes a function until its first m.scale digits are certain, and truncates the rest.
//
// errorBits returns the error of the function for a number of working bits. If the bounds of the
// approximation differ in a needed digit, cutOff tries again with twice the slack. This ends,
// because no function has a value with finitely many digits at the arguments that reach this code.
// These arguments are rational and not 0 (for logarithms: not 1), and e^x, ln x, sin x, cos x, atan
// x and J_n(x) are then transcendental.
func (m *machine) cutOff(errorBits func(bits uint) uint, compute func(f *fixedPoint) *big.Int) (num, error) {
	wanted := bitsOf(m.scale)
	for slack := uint(slackBits); ; slack *= 2 {
		bits := wanted + slack
		bits += errorBits(bits + errorBits(bits))
		if bits > bitsOf(maxDigits) {
			return zero, errTooLarge
		}
		memory := int(bits/8) * workingNumbers
		if err := m.purse.Pay(memory); err != nil {
			return zero, err
		}
		f := &fixedPoint{bits: bits, pay: m.pay}
		value := compute(f)
		err := f.err
		var digits num
		var certain bool
		if err == nil {
			digits, certain = f.digits(approximation{value, errorBits(bits)}, m.scale)
			err = f.err
		}
		if perr := m.purse.Pay(-memory); err == nil {
			err = perr
		}
		if certain || err != nil {
			return digits, err
		}
	}
}

// workingNumbers is about how many numbers a function needs at the same time.
const workingNumbers = 12

// exact returns a whole number with m.scale zeros after its point.
func (m *machine) exact(n int) num { return fromInt(n).rescale(m.scale) }

// exponential is e(x).
func (m *machine) exponential(x num) (num, error) {
	if x.n.Sign() == 0 {
		return m.exact(1), nil
	}
	whole, ok := x.int()
	if x.n.Sign() > 0 && (!ok || whole > maxDigits*2) {
		return zero, errTooLarge
	}
	growth := uint(0) // bits of e^x before the point; log2(e) is less than 3/2
	if x.n.Sign() > 0 {
		growth = uint(whole+1) * 3 / 2
	}
	wholeBits := uint(x.rescale(0).n.BitLen())
	return m.cutOff(func(bits uint) uint { return growth + expErrorBits(bits, wholeBits) },
		func(f *fixedPoint) *big.Int { return f.exp(f.from(x), wholeBits) })
}

// logarithm is l(x). bc has no infinity: for a number without a logarithm the result is 1-10^scale.
func (m *machine) logarithm(x num) (num, error) {
	if x.n.Sign() <= 0 {
		if err := m.pay(m.scale); err != nil {
			return zero, err
		}
		return one.sub(num{pow10(m.scale), 0}).rescale(m.scale), nil
	}
	if x.cmp(one) == 0 {
		return m.exact(0), nil
	}
	return m.cutOff(logErrorBits, func(f *fixedPoint) *big.Int { return f.log(x) })
}

func (m *machine) sine(x num) (num, error) {
	if x.n.Sign() == 0 {
		return m.exact(0), nil
	}
	return m.cutOff(sinCosErrorBits, func(f *fixedPoint) *big.Int {
		sin, _ := f.sinCos(x)
		return sin
	})
}

func (m *machine) cosine(x num) (num, error) {
	if x.n.Sign() == 0 {
		return m.exact(1), nil
	}
	return m.cutOff(sinCosErrorBits, func(f *fixedPoint) *big.Int {
		_, cos := f.sinCos(x)
		return cos
	})
}

func (m *machine) arctangent(x num) (num, error) {
	if x.n.Sign() == 0 {
		return m.exact(0), nil
	}
	return m.cutOff(atanErrorBits, func(f *fixedPoint) *big.Int { return f.atan(x) })
}

// bessel is j(n,x): the Bessel function of the first kind. Its order is the whole part of n.
func (m *machine) bessel(n, x num) (num, error) {
	order, ok := n.int()
	whole, small := x.int()
	if !ok || !small {
		return zero, errTooLarge
	}
	if x.n.Sign() == 0 {
		if order == 0 {
			return m.exact(1), nil
		}
		return m.exact(0), nil
	}
	// J_-n(x) and J_n(-x) both equal (-1)^n J_n(x).
	flip := order%2 != 0 && (order < 0) != (x.n.Sign() < 0)
	order, whole = max(order, -order), max(whole, -whole)
	v, err := m.cutOff(func(bits uint) uint { return besselErrorBits(bits, order, whole) },
		func(f *fixedPoint) *big.Int { return f.bessel(order, x) })
	if err != nil {
		return zero, err
	}
	if flip {
		v = v.neg()
	}
	return v, nil
}
