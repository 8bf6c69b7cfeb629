package certs

import (
	"context"
	"sync"

	"github.com/caddyserver/certmagic"
)

// storage keeps certificates in files. Its locks live only in this process. Only one daemon at a
// time uses the data directory, so a killed daemon leaves no lock behind.
type storage struct {
	*certmagic.FileStorage

	mu    sync.Mutex
	locks map[string]chan struct{} // held locks; closed on release
}

var _ certmagic.Storage = (*storage)(nil)

func newStorage(dir string) *storage {
	return &storage{FileStorage: &certmagic.FileStorage{Path: dir}, locks: map[string]chan struct{}{}}
}

// Lock implements certmagic.Locker.
func (s *storage) Lock(ctx context.Context, name string) error {
	for {
		s.mu.Lock()
		held, taken := s.locks[name]
		if !taken {
			s.locks[name] = make(chan struct{})
		}
		s.mu.Unlock()
		if !taken {
			return nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Unlock implements certmagic.Locker.
func (s *storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.locks[name]; ok {
		delete(s.locks, name)
		close(held)
	}
	return nil
}
