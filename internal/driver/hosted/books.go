package hosted

import "sync"

// Books are a driver's instances that are not yet destroyed. The zero value is empty. Safe for
// concurrent use.
type Books[T comparable] struct {
	mu   sync.Mutex
	live map[T]struct{}
}

// Enter adds an instance.
func (b *Books[T]) Enter(in T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live == nil {
		b.live = map[T]struct{}{}
	}
	b.live[in] = struct{}{}
}

// Strike removes an instance, if it is there.
func (b *Books[T]) Strike(in T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, in)
}

// All returns the present instances, in no order.
func (b *Books[T]) All() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]T, 0, len(b.live))
	for in := range b.live {
		out = append(out, in)
	}
	return out
}
