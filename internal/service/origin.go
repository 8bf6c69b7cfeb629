package service

import (
	"context"
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
