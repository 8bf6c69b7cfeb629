package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	// burst is how many seconds' amount of events a sandbox may have at once.
	burst = 5
	// dailyShare is the part (1/n) of the whole log that one sandbox can fill in a day, after it
	// has filled burstShare of one file.
	dailyShare = 4
	burstShare = 2
	// maxFolds is how many kinds of decisions are counted separately for one sandbox.
	maxFolds = 16
)

// share is one sandbox's share of the log, with the counts beyond it.
type share struct {
	allowed, refused, bytes bucket

	queued int // decisions of it that wait
	lost   int // allowed decisions that were dropped
	folds  map[foldKey]*fold
}

// foldKey says which decisions are counted together.
type foldKey struct {
	allowed        bool
	protocol, rule string
}

// fold counts equal decisions.
type fold struct {
	first          carrel.Decision
	n              int
	sent, received int64
}

func newShare(opts Options, now time.Time) *share {
	rate := float64(opts.Rate)
	whole := float64(opts.MaxFile) * float64(opts.MaxFiles)
	return &share{
		allowed: newBucket(rate, burst*rate, now),
		refused: newBucket(rate, burst*rate, now),
		bytes:   newBucket(whole/dailyShare/(24*60*60), opts.bytes, now),
	}
}

// take takes one more decision from the share. It reports false when the share is used up.
func (s *share) take(allowed bool, cost int, now time.Time) bool {
	events := &s.refused
	if allowed {
		events = &s.allowed
	}
	if !s.hasBytes(now) || events.level(now) < 1 {
		return false
	}
	events.have--
	s.bytes.have -= float64(cost)
	return true
}

// hasBytes reports whether the sandbox may fill more of the log.
func (s *share) hasBytes(now time.Time) bool { return s.bytes.level(now) > 0 }

// fold counts a decision.
func (s *share) fold(d carrel.Decision) {
	if s.folds == nil {
		s.folds = map[foldKey]*fold{}
	}
	key := foldKey{d.Allowed, d.Protocol, d.Rule}
	f := s.folds[key]
	if f == nil && len(s.folds) >= maxFolds {
		key = foldKey{allowed: d.Allowed}
		f = s.folds[key]
	}
	if f == nil {
		f = &fold{first: d}
		s.folds[key] = f
	}
	f.n += 1 + d.Repeats
	f.sent += d.Sent
	f.received += d.Received
}

// unfold returns the counted decisions and clears the counts.
func (s *share) unfold(now time.Time) []carrel.Decision {
	out := make([]carrel.Decision, 0, len(s.folds))
	for _, f := range s.folds {
		d := f.first
		if d.Repeats = f.n - 1; d.Repeats > 0 {
			d.Sent, d.Received = f.sent, f.received
			d.Reason = strings.TrimPrefix(fmt.Sprintf("%s; %d more like it", clip(d.Reason, maxText/2), d.Repeats), "; ")
		}
		d, cost := bound(d, now)
		s.bytes.have -= float64(cost)
		out = append(out, d)
	}
	s.folds = nil
	slices.SortFunc(out, func(a, b carrel.Decision) int { return strings.Compare(a.Rule, b.Rule) })
	return out
}

// idle reports whether the share is the same as a new one.
func (s *share) idle(now time.Time) bool {
	return s.queued == 0 && s.lost == 0 && len(s.folds) == 0 &&
		s.allowed.isFull(now) && s.refused.isFull(now) && s.bytes.isFull(now)
}

// bucket fills at a rate, up to a size.
type bucket struct {
	rate, size, have float64
	at               time.Time
}

func newBucket(rate, size float64, now time.Time) bucket { return bucket{rate, size, size, now} }

// level returns the present content of the bucket. A clock that goes back adds nothing.
func (b *bucket) level(now time.Time) float64 {
	if d := now.Sub(b.at); d > 0 {
		b.have = min(b.have+b.rate*d.Seconds(), b.size)
	}
	b.at = now
	return b.have
}

func (b *bucket) isFull(now time.Time) bool { return b.level(now) >= b.size }
