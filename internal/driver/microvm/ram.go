//go:build linux

package microvm

import (
	"context"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A restored VMM maps the saved memory and copies the pages that it writes. QEMU 7.2 opens such a
// file only for writing, and a VMM that was taken over must not change the memory of other
// sandboxes. So the VMM gets a copy in memory that is sealed: nobody can write to it any more. All
// sandboxes of one snapshot share it.

// memories are the sealed copies that are in use, and at most one that was: to make a copy takes a good
// part of a restore, and creations one after the other restore the same snapshot.
type memories struct {
	mu    sync.Mutex
	known map[fileKey]*sealed
	last  *sealed     // without users
	drop  *time.Timer // drops last
}

// How long a copy without users is kept, and how large it may be, in bytes.
const (
	keptTime = time.Minute
	maxKept  = 512 << 20
)

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
	if m.last == s { // it has one again
		m.drop.Stop()
		m.last = nil
	}
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
	<-s.ready
	if s.file == nil || heldBytes(s.file) > maxKept {
		m.forget(s)
		return
	}
	m.forgetLast()
	m.last = s
	m.drop = time.AfterFunc(keptTime, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.last == s && s.users == 0 {
			m.forgetLast()
		}
	})
}

// close drops the copy without users.
func (m *memories) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLast()
}

// forgetLast drops the copy without users. m.mu is held.
func (m *memories) forgetLast() {
	if m.last != nil {
		m.drop.Stop()
		m.forget(m.last)
		m.last = nil
	}
}

// forget drops a copy. m.mu is held.
func (m *memories) forget(s *sealed) {
	delete(m.known, s.key)
	if s.file != nil {
		s.file.Close()
	}
}

// heldBytes is how much memory a copy takes.
func heldBytes(f *os.File) int64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return math.MaxInt64
	}
	return st.Blocks * 512
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
