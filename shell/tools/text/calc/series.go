package calc

import (
	"math/big"
	"math/bits"
)

// expErrorBits bounds the error of exp. The bound is relative to the value, and absolute for values
// below 1. Each squaring doubles the error of the series and adds one ulp.
func expErrorBits(precision, wholeBits uint) uint {
	return steepness(precision) + wholeBits + sumErrorBits(precision) + 2
}

// exp returns e^x. It sums the Taylor series of x / 2^n, and squares the result n times. x has
// wholeBits bits before its point.
func (f *fixedPoint) exp(x *big.Int, wholeBits uint) *big.Int {
	halvings := steepness(f.bits) + wholeBits
	x = halve(x, halvings)
	sum, term := f.one(), f.one()
	for k := uint64(1); term.Sign() != 0 && f.err == nil; k++ {
		term = f.part(f.mul(term, x), k)
		sum.Add(sum, term)
	}
	for range halvings {
		sum = f.mul(sum, sum)
	}
	return sum
}

// logErrorBits bounds the error of log: the error of the roots is two ulps, and each root doubles
// the error of the series.
func logErrorBits(precision uint) uint {
	return steepness(precision) + 1 + sumErrorBits(precision) + 2
}

// log returns ln x for x > 0. It splits x into m 2^k with m in [1/2,2], takes n square roots of m,
// and sums the series ln m = 2^(n+1) atanh((m-1)/(m+1)) for the result.
func (f *fixedPoint) log(x num) *big.Int {
	tens := pow10(x.scale)
	exponent := x.n.BitLen() - tens.BitLen()
	over, under := x.n, tens
	if exponent >= 0 {
		under = new(big.Int).Lsh(tens, uint(exponent))
	} else {
		over = new(big.Int).Lsh(x.n, uint(-exponent))
	}
	m := f.ratio(over, under)
	roots := steepness(f.bits)
	for range roots {
		m = f.sqrt(m)
	}
	z := f.ratio(new(big.Int).Sub(m, f.one()), new(big.Int).Add(m, f.one()))
	sum := f.oddSeries(z, false)
	sum.Lsh(sum, roots+1)

	guard := uint(bits.Len(uint(max(exponent, -exponent))))
	wide := &fixedPoint{bits: f.bits + guard, pay: f.pay, err: f.err}
	twos := wide.ln2()
	f.err = wide.err
	twos.Mul(twos, big.NewInt(int64(exponent)))
	return sum.Add(sum, halve(twos, guard))
}

// oddSeries returns the sum of z^(2k+1)/(2k+1), which is atanh z, or with alternating signs atan z.
// |z| is below 1/2.
func (f *fixedPoint) oddSeries(z *big.Int, alternating bool) *big.Int {
	square := f.mul(z, z)
	if alternating {
		square.Neg(square)
	}
	sum, power := new(big.Int).Set(z), z
	for k := uint64(3); power.Sign() != 0 && f.err == nil; k += 2 {
		power = f.mul(power, square)
		sum.Add(sum, f.part(power, k))
	}
	return sum
}

// sinCosErrorBits bounds the error of sinCos: doubling the angle multiplies the error by at most
// four.
func sinCosErrorBits(precision uint) uint {
	return 2*steepness(precision) + sumErrorBits(precision) + 3
}

// sinCos returns the sine and the cosine. It takes x modulo quarter turns, sums the Taylor series
// of the rest / 2^n, and doubles the angle n times.
func (f *fixedPoint) sinCos(x num) (sin, cos *big.Int) {
	rest, quarters := f.quarterTurns(x)
	halvings := steepness(f.bits)
	rest = halve(rest, halvings)
	sin, cos = new(big.Int), f.one()
	term := f.one()
	for k := uint64(1); term.Sign() != 0 && f.err == nil; k++ {
		term = f.part(f.mul(term, rest), k)
		into := cos
		if k%2 == 1 {
			into = sin
		}
		if k%4 < 2 {
			into.Add(into, term)
		} else {
			into.Sub(into, term)
		}
	}
	for range halvings {
		product, square := f.mul(sin, cos), f.mul(sin, sin)
		sin = product.Lsh(product, 1)
		cos = square.Sub(f.one(), square.Lsh(square, 1))
	}
	switch quarters {
	case 1:
		return cos, sin.Neg(sin)
	case 2:
		return sin.Neg(sin), cos.Neg(cos)
	case 3:
		return cos.Neg(cos), sin
	}
	return sin, cos
}

// quarterTurns splits x into quarter turns (modulo 4) and a rest of at most an eighth of a turn.
// The error of the rest is less than two ulps. For each bit of x before the point, it needs one
// more bit of pi.
func (f *fixedPoint) quarterTurns(x num) (rest *big.Int, quarters int64) {
	guard := uint(x.rescale(0).n.BitLen()) + 2
	wide := &fixedPoint{bits: f.bits + guard, pay: f.pay, err: f.err}
	value, quarter := wide.from(x), halve(wide.pi(), 1)
	f.err = wide.err
	if f.err != nil || !f.spend(value, quarter) {
		return new(big.Int), 0
	}
	turns := new(big.Int).Add(value, halve(quarter, 1))
	turns.Div(turns, quarter)
	rest = value.Sub(value, new(big.Int).Mul(turns, quarter))
	return halve(rest, guard), turns.And(turns, big.NewInt(3)).Int64()
}

// atanErrorBits bounds the error of atan: the error of the halved angles is at most eight ulps, and
// each doubling of the result doubles it.
func atanErrorBits(precision uint) uint {
	return steepness(precision) + sumErrorBits(precision) + 2
}

// atan returns the arctangent. For x > 1 it uses atan x = pi/2 - atan 1/x. It halves the angle n
// times with tan(a/2) = tan a / (1 + sqrt(1 + tan² a)), and sums the series.
func (f *fixedPoint) atan(x num) *big.Int {
	over, under := new(big.Int).Abs(x.n), pow10(x.scale)
	inverse := over.Cmp(under) > 0
	if inverse {
		over, under = under, over
	}
	z := f.ratio(over, under)
	halvings := steepness(f.bits)
	for range halvings {
		root := f.mul(z, z)
		root = f.sqrt(root.Add(root, f.one()))
		z = f.ratio(z, root.Add(root, f.one()))
	}
	z = f.oddSeries(z, true)
	z.Lsh(z, halvings)
	if inverse {
		z.Sub(halve(f.pi(), 1), z)
	}
	if x.n.Sign() < 0 {
		z.Neg(z)
	}
	return z
}

// besselErrorBits bounds the error of bessel. With h = |x|/2, no term is above e^2h, and the error
// of a term grows by at most e^3h in later terms. Both together are below 2^4|x|.
func besselErrorBits(precision uint, order, whole int) uint {
	return 4*uint(whole+1) + uint(bits.Len(uint(order))) + sumErrorBits(precision) + 2
}

// bessel returns J_n(|x|), the sum over k of (-1)^k h^(n+2k) / (k! (n+k)!) with h = |x|/2.
func (f *fixedPoint) bessel(order int, x num) *big.Int {
	h := f.ratio(new(big.Int).Abs(x.n), new(big.Int).Lsh(pow10(x.scale), 1))
	square := f.mul(h, h)
	term := f.one()
	for i := uint64(1); i <= uint64(order) && term.Sign() != 0 && f.err == nil; i++ {
		term = f.part(f.mul(term, h), i)
	}
	sum := new(big.Int).Set(term)
	for k := uint64(1); term.Sign() != 0 && f.err == nil; k++ {
		term = f.part(f.mul(term, square), k)
		term = f.part(term, uint64(order)+k)
		term.Neg(term)
		sum.Add(sum, term)
	}
	return sum
}
