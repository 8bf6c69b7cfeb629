package gvisor

import (
	"math/rand/v2"
	"os"
	"sync"
)

// uidSet are the host uids that are in use. A sentry that was taken over must not share its uid with another: the kernel lets a
// user's processes signal each other and counts some of what they use together.
type uidSet struct {
	fixed bool // all have the daemon's own: we are not root

	mu   sync.Mutex
	used map[int]int // by uid, how many; more than one only where the range could not do better
}

// take takes want, if nobody has it, else another; want < 0 is any.
func (s *uidSet) take(want int) int {
	if s.fixed {
		return os.Geteuid()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[int]int{}
	}
	for want < 0 || s.used[want] > 0 {
		want = firstUID + rand.IntN(uids)
	}
	s.used[want]++
	return want
}

// hold notes that somebody whom we did not start has a uid.
func (s *uidSet) hold(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[int]int{}
	}
	s.used[uid]++
}

// drop gives a uid back, when no process has it any more.
func (s *uidSet) drop(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[uid] > 1 {
		s.used[uid]--
	} else {
		delete(s.used, uid)
	}
}
