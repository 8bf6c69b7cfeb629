//go:build linux

package microvm

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A restored VMM maps the saved memory and copies the pages that it writes. QEMU 7.2 opens such a
// file only for writing, and a VMM that was taken over must not change the memory of other
// sandboxes. So the VMM gets a copy in memory that is sealed: nobody can write to it any more. All
// sandboxes of one snapshot share it.

// memories are the sealed copies that are in use.
type memories struct {
	mu    sync.Mutex
	known map[fileKey]*sealed
}

// sealed is one.
type sealed struct {
	key   fileKey
	users int           // guarded by memories.mu
	ready chan struct{} // closed when file or err is set
	file  *os.File
	err   error
}

// use returns the copy of a file. The caller calls leave.
func (m *memories) use(ctx context.Context, from *os.File, size int64) (*sealed, error) {
	key, err := keyOf(from)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	s, known := m.known[key]
	if !known {
		s = &sealed{key: key, ready: make(chan struct{})}
		if m.known == nil {
			m.known = map[fileKey]*sealed{}
		}
		m.known[key] = s
	}
	s.users++
	m.mu.Unlock()
	if !known {
		// Others may wait for it, so it does not end with this caller.
		s.file, s.err = seal(context.WithoutCancel(ctx), from, size)
		close(s.ready)
	}
	select {
	case <-s.ready:
		err = s.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		m.leave(s)
		return nil, err
	}
	return s, nil
}

// leave gives a copy back. VMMs hold their own descriptors.
func (m *memories) leave(s *sealed) {
	if s == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	delete(m.known, s.key)
	<-s.ready
	if s.file != nil {
		s.file.Close()
	}
}

// seal copies a file into memory that nobody can change.
func seal(ctx context.Context, from *os.File, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	err = copyData(ctx, f, from, size)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
