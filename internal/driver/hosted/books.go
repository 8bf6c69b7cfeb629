package hosted

import "sync"

// Books are the instances of a driver that are not destroyed. The zero value is empty. Safe for concurrent use.
type Books[T comparable] struct {
	mu   sync.Mutex
	live map[T]struct{}
}

// Enter adds one.
func (b *Books[T]) Enter(in T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live == nil {
		b.live = map[T]struct{}{}
	}
	b.live[in] = struct{}{}
}

// Strike removes one; it may not be there.
func (b *Books[T]) Strike(in T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, in)
}

// All returns those that are there now, in no order.
func (b *Books[T]) All() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]T, 0, len(b.live))
	for in := range b.live {
		out = append(out, in)
	}
	return out
}
