package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// origin is the snapshot that an instance is made from.
type origin struct {
	id        carrel.SnapshotID
	files     snapshot.Files
	info      driver.SnapshotInfo
	filesOnly bool
	later     time.Duration // see driver.RestoreOptions
	sameBoot  bool          // likewise
	verify    func(ctx context.Context) error
	users     *users
	once      *sync.Once // of this user's release
}

// users counts the users of an open snapshot.
type users struct {
	n     atomic.Int32
	close func()
}

// share adds another user, who must call release too. A nil origin, which means no snapshot, stays
// nil.
func (o *origin) share() *origin {
	if o == nil {
		return nil
	}
	o.users.n.Add(1)
	c := *o
	c.once = &sync.Once{}
	return &c
}

// release ends one use of the snapshot. It is idempotent.
func (o *origin) release() {
	o.once.Do(func() {
		if o.users.n.Add(-1) == 0 {
			o.users.close()
		}
	})
}

// check verifies the content, if there is any.
func (o *origin) check(ctx context.Context) error {
	if o == nil {
		return nil
	}
	return o.verify(ctx)
}

// blame returns what is wrong with the content, if that explains the error of a driver that used
// it, and else that error.
func (o *origin) blame(ctx context.Context, err error) error {
	if o == nil || err == nil || ctx.Err() != nil {
		return err
	}
	if damage := o.check(ctx); carrel.KindOf(damage) == carrel.Invalid ||
		errors.Is(damage, snapshot.ErrReplaced) {
		return damage
	}
	return err
}

// verifyBefore verifies the content before anything uses it. So a damaged copy that was replaced is
// as good as a whole one.
func (o *origin) verifyBefore(ctx context.Context) error {
	err := o.verify(ctx)
	if errors.Is(err, snapshot.ErrReplaced) {
		err = o.verify(ctx)
	}
	return err
}

// boots reports whether a sandbox made from it boots, instead of continuing from memory.
func (o *origin) boots() bool { return o == nil || o.filesOnly || !o.info.Memory }

// restorer returns the part of a driver that restores snapshots.
func restorer(drv driver.Driver) (driver.Restorer, error) {
	r, ok := driver.As[driver.Restorer](drv)
	if !ok {
		return nil, &carrel.Error{Kind: carrel.Unsupported, Err: fmt.Errorf("tier %s has no snapshots", drv.Info().Tier)}
	}
	return r, nil
}
