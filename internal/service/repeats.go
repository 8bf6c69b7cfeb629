package service

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// repeatsFor is how long a creation's key is remembered after the creation.
	repeatsFor = 24 * time.Hour
	// repeatsMost is the most keys that are remembered for one project. The oldest go first, so a
	// project can't fill the memory, nor push out the keys of another.
	repeatsMost = 10_000
)

// repeats lets a client send a creation again without making a second sandbox. A key and what was
// asked with it are also in the sandbox's record, so the next service knows the keys of the
// sandboxes that still live.
type repeats struct {
	mu   sync.Mutex
	keys map[string]*keyring // by project
}

// keyring holds one project's keys.
type keyring struct {
	firsts map[string]*keyed
	order  []*keyed // by age, the oldest first
}

// keyed is the creation that had a key first.
type keyed struct {
	key  string
	sum  [sha256.Size]byte
	at   time.Time
	done chan struct{} // closed when sb is set, or the creation has failed
	sb   carrel.Sandbox
	ok   bool
}

// sumOf is the fingerprint of what a creation asks for. A key stands for that alone.
func sumOf(opts carrel.CreateOptions) ([sha256.Size]byte, error) {
	opts.IdempotencyKey = ""
	raw, err := json.Marshal(opts)
	return sha256.Sum256(raw), err
}

// load learns the key of a sandbox that an earlier service made.
func (r *repeats) load(rec state.Record) {
	if rec.Key == "" {
		return
	}
	done := make(chan struct{})
	close(done)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring(rec.Sandbox.Project).put(&keyed{key: rec.Key, sum: rec.KeySum, at: rec.Sandbox.Started,
		done: done,
		sb:   rec.Sandbox, ok: true})
}

// ring returns a project's keys. r.mu is held.
func (r *repeats) ring(project string) *keyring {
	if r.keys == nil {
		r.keys = map[string]*keyring{}
	}
	if r.keys[project] == nil {
		r.keys[project] = &keyring{firsts: map[string]*keyed{}}
	}
	return r.keys[project]
}

// put adds a creation and forgets those that are too old or too many.
func (k *keyring) put(f *keyed) {
	k.firsts[f.key] = f
	k.order = append(k.order, f)
	for len(k.order) > repeatsMost || time.Since(k.order[0].at) > repeatsFor {
		old := k.order[0]
		k.order[0] = nil
		if k.order = k.order[1:]; k.firsts[old.key] == old {
			delete(k.firsts, old.key)
		}
		if len(k.order) == 0 {
			return
		}
	}
}

// forget drops a creation that failed: its key may be tried again.
func (r *repeats) forget(project string, f *keyed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.ring(project); k.firsts[f.key] == f {
		delete(k.firsts, f.key)
	}
}

// enter returns the creation that had the key first. mine says that this is the caller's own one.
func (r *repeats) enter(project, key string, sum [sha256.Size]byte) (f *keyed, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.ring(project)
	if f = k.firsts[key]; f != nil && time.Since(f.at) <= repeatsFor {
		return f, false
	}
	f = &keyed{key: key, sum: sum, at: time.Now(), done: make(chan struct{})}
	k.put(f)
	return f, true
}

// once makes a sandbox with make, unless a creation with the same key did so or does so now. If
// that one fails, the next in line tries.
func (r *repeats) once(ctx context.Context, opts carrel.CreateOptions,
	make func(sum [sha256.Size]byte) (carrel.Sandbox, error)) (carrel.Sandbox, error) {
	if err := carrel.CheckIdempotencyKey(opts.IdempotencyKey); err != nil {
		return carrel.Sandbox{}, err
	}
	project := carrel.CallerOf(ctx).Project
	byID, err := sumOf(opts) // in records of older programs
	sum := byID
	if asked, ok := carrel.AskedIn(ctx); ok && err == nil {
		opts.Template = asked
		sum, err = sumOf(opts)
	}
	if err != nil {
		return carrel.Sandbox{}, &carrel.Error{Op: opCreate, Kind: carrel.Invalid, Err: err}
	}
	for {
		f, mine := r.enter(project, opts.IdempotencyKey, sum)
		if mine {
			sb, err := make(sum)
			if f.sb, f.ok = sb, err == nil; err != nil {
				r.forget(project, f)
			}
			close(f.done)
			return sb, err
		}
		if f.sum != sum && f.sum != byID {
			return carrel.Sandbox{}, &carrel.Error{Op: opCreate, Kind: carrel.Conflict,
				Field: "idempotencyKey",
				Err:   carrel.ErrKeyReused, Hint: "use a new key for each creation"}
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return carrel.Sandbox{}, &carrel.Error{Op: opCreate, Kind: carrel.Unavailable,
				Err: context.Cause(ctx), Hint: "the first request with this key is still at work: ask again"}
		}
		if f.ok {
			return f.sb, nil
		}
	}
}
