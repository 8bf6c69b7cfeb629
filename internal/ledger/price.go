package ledger

import (
	"math"
	"math/big"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Rates are the prices of one tier, in millionths of the currency.
type Rates struct {
	VCPUHour        carrel.Micro // alive
	MemoryGiBHour   carrel.Micro // alive
	CPUHour         carrel.Micro // active
	MemoryUsedHour  carrel.Micro // active, GiB in use
	EgressGB        carrel.Micro // 10⁹ bytes
	SnapshotGBMonth carrel.Micro // 10⁹ bytes for 730 hours
}

// Prices is a price list.
type Prices struct {
	Currency string
	Default  Rates
	Tiers    map[carrel.Tier]Rates // instead of Default
	// Pool says that the pool's own sandboxes are priced, too.
	Pool bool
}

// rates returns the rates for one kind of piece.
func (p *Prices) rates(k rateKey) Rates {
	if k.kind == carrel.UsagePool && !p.Pool {
		return Rates{}
	}
	if r, ok := p.Tiers[k.tier]; ok {
		return r
	}
	return p.Default
}

// bill is an exact sum of money, in millionths. It is rounded only when it is shown, so that the sum
// of any parts is the whole.
type bill struct{ sum big.Rat }

// The denominators of rates: how many of a piece's units a rate is for.
var (
	perVCPUHour = big.NewInt(1000 * 3600 * 1000)   // milli-CPU × ms
	perGiBHour  = big.NewInt(1024 * 3600 * 1000)   // MiB × ms
	perCPUHour  = big.NewInt(3600 * 1000 * 1000)   // µs
	perGB       = big.NewInt(1000 * 1000 * 1000)   // bytes
	mib         = big.NewInt(1 << 20)              // bytes
	monthMS     = big.NewInt(730 * 3600 * 1000)    // ms
	perGBMonth  = new(big.Int).Mul(perGB, monthMS) // bytes × ms
)

// add adds the price of figures.
func (b *bill) add(p *Prices, k rateKey, u state.Usage) {
	if p == nil {
		return
	}
	r := p.rates(k)
	stored := new(big.Int).Mul(big.NewInt(u.BytesAlive), mib)
	for _, x := range []struct {
		rate carrel.Micro
		n    *big.Int
		per  *big.Int
	}{
		{r.VCPUHour, big.NewInt(u.CPUAlive), perVCPUHour},
		{r.MemoryGiBHour, big.NewInt(u.MemAlive), perGiBHour},
		{r.CPUHour, big.NewInt(u.CPUMicros), perCPUHour},
		{r.MemoryUsedHour, big.NewInt(u.MemUsed), perGiBHour},
		{r.EgressGB, big.NewInt(u.BytesOut), perGB},
		{r.SnapshotGBMonth, stored, perGBMonth},
	} {
		if x.rate == 0 || x.n.Sign() == 0 {
			continue
		}
		n := new(big.Int).Mul(x.n, big.NewInt(int64(x.rate)))
		b.sum.Add(&b.sum, new(big.Rat).SetFrac(n, x.per))
	}
}

// addBill adds another bill.
func (b *bill) addBill(other bill) { b.sum.Add(&b.sum, &other.sum) }

// micros rounds a bill to millionths, halves up; nil without prices. A sum that is too large stays
// at the largest number.
func (b *bill) micros(p *Prices) *carrel.Micro {
	if p == nil {
		return nil
	}
	n := new(big.Int).Lsh(b.sum.Num(), 1)
	n.Add(n, b.sum.Denom())
	n.Div(n, new(big.Int).Lsh(b.sum.Denom(), 1))
	out := carrel.Micro(math.MaxInt64)
	if n.IsInt64() {
		out = carrel.Micro(n.Int64())
	}
	return &out
}
