package jq

import (
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Budget limits the work and memory of a program.
type Budget struct {
	// Step pays for n steps, and reports whether to go on.
	Step func(n int) bool
	// Pay takes memory; a negative n gives it back. Used returns the memory held and the limit.
	Pay  func(n int64) error
	Used func() (used, total int64)
}

// ErrStop is the error of a program that was ended from outside, or by a limit that has been
// reported.
var ErrStop = errors.New("stopped")

// errDepth is the error of a program whose calls nest too deeply.
var errDepth = errors.New("recursion too deep")

const (
	stepBatch = 256
	callLimit = 50_000  // depth of calls
	callCost  = 4 << 10 // bytes of stack for one, about
	callBatch = 256
	bigValue  = 1 << 10 // least size in bytes of a value that is paid for by itself
	refCost   = 16
	keyCost   = 40

	// Memory besides the reference to a value and its parts.
	numberCost = 8
	textCost   = 16
	arrayCost  = 24
	objectCost = 72
)

// purse spends a budget.
type purse struct {
	Budget
	steps   int
	depth   int
	deepest int
	freed   *atomic.Int64 // bytes of garbage-collected values
	dead    bool          // stopped
}

func newPurse(b Budget) *purse { return &purse{Budget: b, freed: new(atomic.Int64)} }

// step pays for n steps.
func (p *purse) step(n int) error {
	if p.steps += n; p.steps >= stepBatch {
		n, p.steps = p.steps, 0
		if p.dead || p.Step != nil && !p.Step(n) {
			p.dead = true
			return ErrStop
		}
	}
	return nil
}

// spend is step for functions that can't return an error. When it returns true, they end early, and
// the next step fails.
func (p *purse) spend() bool {
	return p != nil && (p.dead || p.step(1) != nil)
}

// enter pays for one call. leave gives that back.
func (p *purse) enter() error {
	if p.depth++; p.depth > callLimit {
		p.depth--
		return errDepth
	}
	if p.depth > p.deepest {
		p.deepest += callBatch
		if err := p.pay(callBatch * callCost); err != nil {
			return err
		}
	}
	return p.step(1)
}

func (p *purse) leave() { p.depth-- }

func (p *purse) pay(n int64) error {
	if p.Pay == nil {
		return nil
	}
	n -= p.freed.Swap(0)
	if p.Used != nil && n > 0 {
		if used, total := p.Used(); total > 0 && used+n > total {
			runtime.GC() // some of the held memory may be garbage
			n -= p.freed.Swap(0)
		}
	}
	if p.Pay(n) != nil {
		p.dead = true
		return ErrStop
	}
	return nil
}

// hold pays for a value of n bytes until it is garbage. at is the start of its memory.
func hold[T any](p *purse, at *T, n int64) error {
	if p.Pay == nil || at == nil {
		return nil
	}
	if err := p.pay(n); err != nil {
		return err
	}
	freed := p.freed
	runtime.AddCleanup(at, func(n int64) { freed.Add(n) }, n)
	return nil
}

// str pays for a new string.
func (p *purse) str(s string) (string, error) {
	if len(s) < bigValue {
		return s, nil
	}
	if err := p.step(len(s) >> 9); err != nil {
		return "", err
	}
	return s, hold(p, unsafe.StringData(s), int64(len(s)))
}

// value pays for a new array or object, and for those of its parts that have not been paid for.
func (p *purse) value(v any) error {
	switch v := v.(type) {
	case string:
		_, err := p.str(v)
		return err
	case []any:
		if n := size(v, 1<<62); n >= bigValue {
			return hold(p, unsafe.SliceData(v), n)
		}
	case *Object:
		if n := size(v, 1<<62); n >= bigValue {
			return hold(p, v, n)
		}
	}
	return nil
}

// size returns the approximate size of a value without the parts that were paid for by themselves.
// It stops counting at limit.
func size(v any, limit int64) (n int64) {
	switch v := v.(type) {
	case []any:
		n = int64(len(v)) * refCost
		for i := 0; i < len(v) && n < limit; i++ {
			visits := partVisits
			n += small(v[i], &visits)
		}
	case *Object:
		n = int64(len(v.keys)) * keyCost
		for i := 0; i < len(v.keys) && n < limit; i++ {
			visits := partVisits
			n += int64(len(v.keys[i])) + small(v.vals[i], &visits)
		}
	}
	return n
}

// partVisits limits how much of a part is counted. Values share parts, so counting all of them
// could take for ever.
const partVisits = bigValue / refCost

// small returns the size of a part that is too small to be paid for by itself.
func small(v any, visits *int) (n int64) {
	switch v := v.(type) {
	case float64:
		n = numberCost
	case string:
		n = textCost + int64(len(v))
	case []any:
		n = arrayCost + int64(len(v))*refCost
		for i := 0; i < len(v) && n < bigValue && *visits > 0; i++ {
			*visits--
			n += small(v[i], visits)
		}
	case *Object:
		n = objectCost + int64(len(v.keys))*keyCost
		for i := 0; i < len(v.keys) && n < bigValue && *visits > 0; i++ {
			*visits--
			n += int64(len(v.keys[i])) + small(v.vals[i], visits)
		}
	}
	if n >= bigValue || *visits <= 0 {
		return 0
	}
	return n
}
