package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Revive makes the client hold copies of the files that it puts and gets, and watch the keeper. If
// the keeper dies, for example because somebody killed it, the client calls start, which is usually
// [Start], and gives all files to the new keeper. Call Revive once, before the first request. told,
// unless nil, is called each time with the number of files that the new keeper has, and with the
// error, if any.
func (c *Client) Revive(start func(context.Context) error, told func(files int, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if told == nil {
		told = func(int, error) {}
	}
	c.start, c.told, c.copies = start, told, make(map[string]int)
	go c.watch()
}

const (
	reviveTime  = 20 * time.Second // for one attempt
	revivePause = time.Second      // between two that fail
	// dyingTries is how often a connection is tried again. A dying process closes its files one by
	// one. So it may still accept a connection, and hang up on it, after it hung up on another.
	dyingTries = 5
	dyingPause = 20 * time.Millisecond
)

// watch waits for the keeper's death, on a connection of its own.
func (c *Client) watch() {
	for {
		c.mu.Lock()
		known := c.keepers
		c.mu.Unlock()
		if conn, err := dial(c.alive, c.path); err == nil {
			stop := context.AfterFunc(c.alive, func() { _ = conn.Close() })
			_, _ = conn.Read(make([]byte, 1)) // the keeper sends nothing without a request
			stop()
			_ = conn.Close()
		}
		if !c.again(known) {
			return
		}
	}
}

// again restores a lost keeper, unless a request has done so. known is the number of keepers that
// the watcher has seen. It returns false when the client is closed.
func (c *Client) again(known int) bool {
	ctx, cancel := context.WithTimeout(c.alive, reviveTime)
	defer cancel()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	if c.keepers == known {
		c.lost = true
	}
	err := c.connect(ctx)
	c.mu.Unlock()
	if err == nil {
		return true
	}
	select {
	case <-c.alive.Done():
		return false
	case <-time.After(revivePause):
		return true
	}
}

// connect makes sure of a connection to a keeper that has all files. The caller holds mu.
func (c *Client) connect(ctx context.Context) error {
	if c.conn != nil && !c.lost {
		return nil
	}
	if c.start == nil {
		return c.dial(ctx)
	}
	err := c.renew(ctx)
	if !c.lost {
		return err // the same keeper over a new connection
	}
	for again := 0; err != nil && again < dyingTries && ctx.Err() == nil; again++ {
		time.Sleep(dyingPause)
		err = c.renew(ctx)
	}
	if err != nil {
		c.drop()
	}
	if c.lost = err != nil; !c.lost {
		c.keepers++
	}
	c.told(len(c.copies), err)
	return err
}

// renew dials the keeper, starts one if there is none, and gives it the missing files.
func (c *Client) renew(ctx context.Context) error {
	err := c.dial(ctx)
	if err != nil {
		c.lost = true
		if serr := c.start(ctx); serr != nil {
			return errors.Join(err, serr)
		}
		err = c.dial(ctx)
	}
	if err == nil && c.lost {
		err = c.putAll(ctx)
	}
	return err
}

// putAll gives a new keeper the files of the old one.
func (c *Client) putAll(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(c.copies)) {
		msg, fds, err := c.exchange(ctx, opPut, name, c.copies[name])
		if err == nil {
			_, _, err = msg.outcome("put", fds)
		}
		closeAll(fds)
		if err != nil {
			return err
		}
	}
	return nil
}

// hold keeps a copy of a kept file. fd −1 closes the copy.
func (c *Client) hold(name string, fd int) {
	if c.copies == nil {
		return
	}
	if old, ok := c.copies[name]; ok {
		delete(c.copies, name)
		_ = unix.Close(old)
	}
	if fd < 0 {
		return
	}
	// If no descriptor is free, the keeper has the file, but a new keeper would not get it.
	if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		c.copies[name] = own
	}
}
