package service

import (
	"fmt"
	"slices"

	"github.com/carrel-dev/carrel"
)

// CheckRoll compares the roll with the state of each sandbox. No operation may run at the same
// time.
func (s *Service) CheckRoll() error {
	t, want := s.table, newRoll()
	for _, b := range t.snapshot() {
		b.mu.Lock()
		sb := b.rec.Sandbox
		now := face{position{sb.Started, b.id}, sb.Project, sb.State, sb.Tier, sb.Snapshot, b.rec.Paused}
		if !b.listed || b.face != now {
			b.mu.Unlock()
			return fmt.Errorf("%s is listed %v as %+v and is %+v", b.id, b.listed, b.face, now)
		}
		want.addLocked(b, now)
		b.mu.Unlock()
	}
	if a, b := len(t.roll.orders), len(want.orders); a != b {
		return fmt.Errorf("%d orders, want %d", a, b)
	}
	for k := range want.orders {
		if got, want := t.roll.all(k), want.all(k); !slices.Equal(got, want) {
			return fmt.Errorf("order %v has %d, want %d", k, len(got), len(want))
		}
	}
	for _, c := range [][2]any{{t.roll.counts, want.counts}, {t.roll.tally, want.tally}, {t.roll.heads, want.heads}, {t.roll.users, want.users}} {
		if a, b := fmt.Sprint(c[0]), fmt.Sprint(c[1]); a != b {
			return fmt.Errorf("%s, want %s", a, b)
		}
	}
	if n := t.roll.count(carrel.Paused) + len(t.awake()); n != len(t.boxes) {
		return fmt.Errorf("%d sandboxes, want %d", n, len(t.boxes))
	}
	return nil
}
