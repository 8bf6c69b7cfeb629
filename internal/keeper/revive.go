package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Revive has the client hold copies of what it puts and gets, watch the keeper, and when that one dies (somebody may have killed it) call
// start, usually [Start] once more, and give all of it to the new one. It is called once, before the first request. Told, unless nil, learns
// each time how many files the new keeper has, and what went wrong.
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
	// A process that dies closes its files one by one: it may take a connection, and hang up, after it hung up on another.
	dyingTries = 5
	dyingPause = 20 * time.Millisecond
)

// watch waits on a connection of its own for the keeper's death.
func (c *Client) watch() {
	for {
		c.mu.Lock()
		known := c.keepers
		c.mu.Unlock()
		if conn, err := dial(c.alive, c.path); err == nil {
			stop := context.AfterFunc(c.alive, func() { _ = conn.Close() })
			_, _ = conn.Read(make([]byte, 1)) // it says nothing that was not asked for
			stop()
			_ = conn.Close()
		}
		if !c.again(known) {
			return
		}
	}
}

// again makes good that the keeper was lost after so many of them, unless a request has. It returns false once the client is closed.
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

// connect makes sure of a connection to a keeper that has all that it should. It is called with mu held.
func (c *Client) connect(ctx context.Context) error {
	if c.conn != nil && !c.lost {
		return nil
	}
	if c.start == nil {
		return c.dial(ctx)
	}
	err := c.renew(ctx)
	if !c.lost {
		return err // the same keeper, another connection
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

// renew dials the keeper, one that it starts if there is none, and gives it all that it lacks.
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

// putAll gives a new keeper what the old one had.
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

// hold remembers a copy of a file that is kept; -1 forgets it.
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
	// Without a descriptor left it is kept, but would not be again.
	if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		c.copies[name] = own
	}
}
