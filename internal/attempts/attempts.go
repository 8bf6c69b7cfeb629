// Package attempts bounds how often somebody tries something.
package attempts

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxAttempts bounds the names and networks whose attempts are counted separately.
const maxAttempts = 8192

// Counter bounds how often somebody tries: a number at once, and then one in a time. Once too many
// are counted, new ones share a count. So nobody escapes by using many names. It is safe for
// concurrent use.
type Counter struct {
	burst int
	every time.Duration

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time // when those were forgotten that have all attempts back
}

// sweepEvery bounds how often all are looked at, so that a crowd costs little.
const sweepEvery = time.Second

// New returns a Counter that allows burst attempts at once, and then one each time.
func New(burst int, every time.Duration) *Counter {
	return &Counter{burst: burst, every: every, of: map[string]*rate.Limiter{}}
}

// Take counts an attempt. If it is one too many, it returns how long to wait.
func (a *Counter) Take(who string) time.Duration { return a.TakeAt(who, time.Now()) }

// TakeAt is Take at a time that the caller tells.
func (a *Counter) TakeAt(who string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.of[who]
	if l == nil && len(a.of) >= maxAttempts {
		if now.Sub(a.swept).Abs() >= sweepEvery {
			a.swept = now
			maps.DeleteFunc(a.of, func(_ string, other *rate.Limiter) bool {
				return other.TokensAt(now) >= float64(a.burst)
			})
		}
		if len(a.of) >= maxAttempts {
			who = ""
			l = a.of[who]
		}
	}
	if l == nil {
		l = rate.NewLimiter(rate.Every(a.every), a.burst)
		a.of[who] = l
	}
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// Forget gives a name all attempts back, after a success.
func (a *Counter) Forget(who string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, who)
}

// Network returns what of an address is counted: an IPv4 address, or the half of an IPv6 address
// that one customer gets.
func Network(from string) string {
	addr, err := netip.ParseAddr(from)
	if err != nil {
		ap, err := netip.ParseAddrPort(from)
		if err != nil {
			return from
		}
		addr = ap.Addr()
	}
	addr = addr.Unmap()
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}
