//go:build linux

package drivertest

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// Keeper keeps copies of files in this process, for drivers that are closed and opened again within
// one test. Its zero value is empty. Safe for concurrent use.
type Keeper struct {
	mu    sync.Mutex
	files map[string]*os.File
}

var _ hosted.FDKeeper = (*Keeper)(nil)

// Put implements hosted.FDKeeper.
func (k *Keeper) Put(_ context.Context, name string, f *os.File) error {
	c, err := copyFile(f)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files == nil {
		k.files = map[string]*os.File{}
	}
	k.files[name] = c
	return nil
}

// Get implements hosted.FDKeeper.
func (k *Keeper) Get(_ context.Context, name string) (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, ok := k.files[name]; ok {
		return copyFile(f)
	}
	return nil, &carrel.Error{Kind: carrel.NotFound}
}

// Delete implements hosted.FDKeeper.
func (k *Keeper) Delete(_ context.Context, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, ok := k.files[name]; ok {
		f.Close()
		delete(k.files, name)
	}
	return nil
}

// Len is the number of kept files.
func (k *Keeper) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.files)
}

// copyFile copies a descriptor. It does not use f.Fd, which would make the original blocking.
func copyFile(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := rc.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	if cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
