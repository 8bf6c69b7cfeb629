package gvisor

import (
	"math/rand/v2"
	"os"
	"sync"
)

// uidSet holds the host uids that are in use. A sentry that was taken over must not share its uid
// with another: the kernel lets a user's processes signal each other, and counts some resources per
// user.
type uidSet struct {
	fixed bool // all use the daemon's uid: we are not root

	mu   sync.Mutex
	used map[int]int // users by uid; more than one only when the range is too small
}

// take takes the uid want if it is free, else another one. A negative want means any.
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

// hold notes that a sandbox that we did not start uses a uid.
func (s *uidSet) hold(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[int]int{}
	}
	s.used[uid]++
}

// drop gives a uid back. No process may have it any more.
func (s *uidSet) drop(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[uid] > 1 {
		s.used[uid]--
	} else {
		delete(s.used, uid)
	}
}
