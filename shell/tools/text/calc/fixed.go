package calc

import (
	"math/big"
	"math/bits"
)

// fixedPoint computes with whole numbers n that mean n / 2^bits. In this package, an ulp is one
// unit of the last place.
//
// Work is paid for before it is done. After a refusal err is set, and all results are invalid.
type fixedPoint struct {
	bits uint
	pay  func(steps int) error
	err  error
}

// bitsOf returns the number of bits for a number of decimal digits. 10 is less than 2^(10/3).
func bitsOf(digits int) uint { return uint(digits)*10/3 + 1 }

// spend pays for one operation on each pair of words of a and b, and reports whether to go on.
func (f *fixedPoint) spend(a, b *big.Int) bool {
	if f.err == nil {
		f.err = f.pay((len(a.Bits()) + 1) * (len(b.Bits()) + 1) >> 5)
	}
	return f.err == nil
}

// spendPass pays for one pass over the words of a.
func (f *fixedPoint) spendPass(a *big.Int) bool {
	if f.err == nil {
		f.err = f.pay(len(a.Bits()))
	}
	return f.err == nil
}

// one is the number 1.
func (f *fixedPoint) one() *big.Int { return new(big.Int).Lsh(powersOfTen[0], f.bits) }

// halve divides a by 2^n and truncates toward zero.
func halve(a *big.Int, n uint) *big.Int {
	if a.Sign() >= 0 {
		return new(big.Int).Rsh(a, n)
	}
	z := new(big.Int).Neg(a)
	return z.Neg(z.Rsh(z, n))
}

// mul returns a*b. The error is less than an ulp.
func (f *fixedPoint) mul(a, b *big.Int) *big.Int {
	if !f.spend(a, b) {
		return new(big.Int)
	}
	return halve(new(big.Int).Mul(a, b), f.bits)
}

// ratio returns a/b for whole numbers. The error is less than an ulp.
func (f *fixedPoint) ratio(a, b *big.Int) *big.Int {
	a = new(big.Int).Lsh(a, f.bits)
	if !f.spend(a, b) {
		return new(big.Int)
	}
	return a.Quo(a, b)
}

// part returns a/n for a small n. The error is less than an ulp.
func (f *fixedPoint) part(a *big.Int, n uint64) *big.Int {
	if !f.spendPass(a) {
		return new(big.Int)
	}
	return new(big.Int).Quo(a, new(big.Int).SetUint64(n))
}

// sqrt returns the square root of a. The error is less than an ulp.
func (f *fixedPoint) sqrt(a *big.Int) *big.Int {
	for range 4 { // a root costs a few divisions
		if !f.spend(a, a) {
			return f.one()
		}
	}
	a = new(big.Int).Lsh(a, f.bits)
	return a.Sqrt(a)
}

// from converts a decimal number. The error is less than an ulp.
func (f *fixedPoint) from(x num) *big.Int { return f.ratio(x.n, pow10(x.scale)) }

// digits truncates an approximation to scale decimal digits. certain says whether the true value
// has the same digits.
func (f *fixedPoint) digits(a approximation, scale int) (n num, certain bool) {
	if !f.spend(a.value, pow10(scale)) {
		return zero, false
	}
	margin := new(big.Int).Lsh(powersOfTen[0], a.errorBits)
	cut := func(v *big.Int) *big.Int { return halve(v.Mul(v, pow10(scale)), f.bits) }
	low := cut(new(big.Int).Sub(a.value, margin))
	high := cut(margin.Add(a.value, margin))
	return num{low, scale}, low.Cmp(high) == 0
}

// sumErrorBits bounds the logarithm of a series' error in ulps, if the error of each term is at
// most four ulps. The series here have fewer terms than bits, because each term is at most half of
// the previous one.
func sumErrorBits(precision uint) uint { return uint(bits.Len(4*precision + 16)) }

// steepness is the number of times that functions halve their argument before they sum a series.
// Each halving costs one product afterwards and saves terms of the series. The best number grows
// with the square root of the bits.
func steepness(precision uint) uint {
	root := new(big.Int).SetUint64(uint64(precision))
	return uint(root.Sqrt(root).Uint64())/2 + 1
}

// inverseSeries returns the sum of 1/((2k+1) n^(2k+1)). With alternating signs this is atan(1/n),
// otherwise atanh(1/n). The error is less than 2^sumErrorBits.
func (f *fixedPoint) inverseSeries(n uint64, alternating bool) *big.Int {
	power := f.part(f.one(), n)
	sum := new(big.Int).Set(power)
	for k := uint64(3); power.Sign() != 0 && f.err == nil; k += 2 {
		power = f.part(power, n*n)
		term := f.part(power, k)
		if alternating && k%4 == 3 {
			term.Neg(term)
		}
		sum.Add(sum, term)
	}
	return sum
}

// combine adds multiples of series of 1/n. With its guard bits, the error of the result is less
// than an ulp.
func (f *fixedPoint) combine(alternating bool, parts ...[2]int64) *big.Int {
	guard := sumErrorBits(2*f.bits) + 8 // factors are below 2^6, and there are at most three
	wide := &fixedPoint{bits: f.bits + guard, pay: f.pay, err: f.err}
	sum := new(big.Int)
	for _, p := range parts {
		term := wide.inverseSeries(uint64(p[1]), alternating)
		sum.Add(sum, term.Mul(term, big.NewInt(p[0])))
	}
	f.err = wide.err
	return sum.Rsh(sum, guard)
}

// pi uses Machin's formula: pi/4 = 4 atan 1/5 - atan 1/239.
func (f *fixedPoint) pi() *big.Int {
	return f.combine(true, [2]int64{16, 5}, [2]int64{-4, 239})
}

// ln2 uses 2 = (8/6)² (18/16) and ln (1+z)/(1-z) = 2 atanh z, where z is 1/7 and 1/17.
func (f *fixedPoint) ln2() *big.Int {
	return f.combine(false, [2]int64{4, 7}, [2]int64{2, 17})
}
