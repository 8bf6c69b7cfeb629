package gvisor

import (
	"sync"
	"testing"
)

// TestUIDsAreOnesOwn lets many callers take uids at once. All of them want the same one.
func TestUIDsAreOnesOwn(t *testing.T) {
	s := &uidSet{}
	s.drop(firstUID) // nobody holds it
	s.hold(firstUID)
	var mu sync.Mutex
	have := map[int]bool{firstUID: true}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for i := range 20 {
				want := firstUID
				if i%2 == 0 {
					want = -1
				}
				uid := s.take(want)
				mu.Lock()
				if have[uid] || uid < firstUID || uid >= firstUID+uids {
					t.Errorf("uid %d", uid)
				}
				have[uid] = true
				mu.Unlock()
				if i%3 == 0 {
					mu.Lock()
					delete(have, uid)
					s.drop(uid)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for uid := range have {
		s.drop(uid)
	}
	if n := len(s.used); n != 0 {
		t.Errorf("%d are held by nobody", n)
	}
	if got := s.take(firstUID); got != firstUID {
		t.Errorf("one that is free again: %d", got)
	}
}

// TestBlankOfAnotherKindIsNotTaken asks for a blank with a number of processors that no waiting
// blank has.
func TestBlankOfAnotherKindIsNotTaken(t *testing.T) {
	p := &blanks{want: 2, all: map[*blank]struct{}{}}
	p.all[&blank{cpus: 2, ready: true}] = struct{}{}
	p.all[&blank{cpus: 4}] = struct{}{}
	if b := p.take(4); b != nil {
		t.Errorf("one with %d processors that is ready: %v", b.cpus, b.ready)
	}
	if b := p.take(2); b == nil || !b.taken || len(p.all) != 1 {
		t.Errorf("%+v of %d", b, len(p.all))
	}
	if b := p.take(2); b != nil {
		t.Error("it was taken twice")
	}
	if p.stats.Taken != 1 || p.stats.Missed != 2 {
		t.Errorf("%+v", p.stats)
	}
}
