package store

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tryLock takes a lock on a file or directory if it is free. The lock ends with the open file, so a
// crash leaves none.
func tryLock(f *os.File, exclusive bool) bool {
	return flock(f, exclusive) == nil
}

func flock(f *os.File, exclusive bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockFile waits for a lock until ctx ends.
func lockFile(ctx context.Context, f *os.File, exclusive bool) error {
	return poll(ctx, func() (bool, error) {
		err := flock(f, exclusive)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
}

// poll calls done, less and less often, until it returns true or an error, or ctx ends. A blocking
// flock could not be cancelled.
func poll(ctx context.Context, done func() (bool, error)) error {
	const most = 200 * time.Millisecond
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, most) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
