package store

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// An import writes as much as its archive holds, which nobody knows before. While it writes, this
// much room of the disk is left alone: a sandbox that is created beside it must not find the disk
// full for the moment until the import has failed.
const (
	roomKept  = 64 << 20
	roomShare = 16 // and at most 1/n of the disk
	roomEvery = 20 * time.Millisecond
)

// keepRoom returns a context that ends when the disk of dir has too little room left. The caller
// calls stop, which waits.
func keepRoom(ctx context.Context, dir string) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(roomEvery)
		defer tick.Stop()
		for {
			if err := checkRoom(dir); err != nil {
				cancel(err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// checkRoom refuses a disk that has too little room left.
func checkRoom(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil // the write itself will say what is wrong
	}
	free, kept := int64(st.Bavail)*st.Bsize, min(roomKept, int64(st.Blocks)*st.Bsize/roomShare)
	if free >= kept {
		return nil
	}
	return &carrel.Error{Kind: carrel.Exhausted, Field: "disk",
		Err: fmt.Errorf("the disk of %s has %d MB left, and %d MB are kept free", dir, free>>20,
			kept>>20),
		Hint: "free some disk space under the data directory, or delete templates and snapshots"}
}

// roomError returns the cause if the disk had too little room, and else err.
func roomError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && carrel.KindOf(cause) == carrel.Exhausted {
		return cause
	}
	return err
}
