package interpreter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

const (
	// settleTime is how long an interrupted cell may take to its end. Then its kernel is killed.
	settleTime = 5 * time.Second
	// interruptFirst is how long a cell may go on that nobody waits for. Many end by themselves in
	// that time, and an interrupt in the moment when a cell ends could hit its kernel instead.
	interruptFirst = 100 * time.Millisecond
	// interruptAgain is when an interrupted cell is interrupted once more.
	interruptAgain = time.Second
	// maxWaiting is how many cells of one context may wait for their turn.
	maxWaiting = 256
)

var (
	errRemoved = errors.New("the context was removed")
	errBusy    = fmt.Errorf("%d cells of this context wait already", maxWaiting)
)

// Context is where cells keep their state.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`

	finder  Finder
	turn    chan struct{} // holds a token while a cell runs
	waiting chan struct{}
	ended   chan struct{} // closed when the context is removed

	mu      sync.Mutex
	kernel  kernel.Kernel // nil before the first cell and after a death
	removed bool
	used    bool // it ran a cell
}

func newContext(id, language, dir string, f Finder) *Context {
	return &Context{ID: id, Language: language, Dir: dir, finder: f, turn: make(chan struct{}, 1),
		waiting: make(chan struct{}, maxWaiting), ended: make(chan struct{})}
}

// acquire waits for the context's turn.
func (c *Context) acquire(ctx context.Context) error {
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	default:
		return errBusy
	}
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-c.ended:
		return errRemoved
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Context) release() { <-c.turn }

// ready returns the context's kernel and starts it if there is none. The caller has the turn. A
// client that leaves does not stop the start, because the next cell needs the kernel too.
func (c *Context) ready(ctx context.Context) (kernel.Kernel, error) {
	c.mu.Lock()
	k, removed := c.kernel, c.removed
	c.mu.Unlock()
	if k != nil {
		select {
		case <-k.Done(): // it died between two cells
		default:
			return k, nil
		}
		k.Close()
	}
	if removed {
		return nil, errRemoved
	}
	k, err := c.finder.Start(context.WithoutCancel(ctx),
		kernel.Options{Language: c.Language, Dir: c.Dir})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		k.Close()
		return nil, errRemoved
	}
	c.kernel = k
	return k, nil
}

// drop forgets a kernel that ended, and ends it if it has not.
func (c *Context) drop(k kernel.Kernel) {
	k.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kernel == k {
		c.kernel = nil
	}
}

// Run runs a cell when it is its turn. If ctx ends while the cell runs, Run returns, and the cell
// is interrupted before the next one gets its turn.
func (c *Context) Run(ctx context.Context, cell kernel.Cell, out kernel.Sink) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	k, err := c.ready(ctx)
	if err != nil {
		c.release()
		return err
	}
	c.mu.Lock()
	c.used = true
	c.mu.Unlock()
	err = k.Run(ctx, cell, out)
	switch {
	case err == nil:
		c.release()
	case errors.Is(err, kernel.ErrDied):
		reason := k.Reason()
		c.drop(k)
		c.release()
		return fmt.Errorf("%w: %s; the next cell starts with an empty state", kernel.ErrDied, reason)
	default:
		go func() {
			defer c.release()
			c.settle(k)
		}()
	}
	return err
}

// stretchTime bounds a cell of our own.
const stretchTime = 2 * time.Second

// stretch has a kernel that has run no cell yet do what it does for a cell. It leaves nothing behind
// in the kernel's state. It does not wait for a context at work.
func (c *Context) stretch(ctx context.Context) {
	select {
	case c.turn <- struct{}{}:
	default:
		return
	}
	c.mu.Lock()
	k, used := c.kernel, c.used
	c.mu.Unlock()
	s, ok := k.(kernel.Stretcher)
	if !ok || used {
		c.release()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stretchTime)
	defer cancel()
	if err := s.Stretch(ctx); err == nil {
		c.release()
		return
	}
	go func() { // as after a cell whose client left
		defer c.release()
		c.settle(k)
	}()
}

// settle brings the cell of a client that left to its end.
func (c *Context) settle(k kernel.Kernel) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	over := make(chan struct{})
	go func() {
		for wait := interruptFirst; ; wait = interruptAgain {
			select {
			case <-over:
				return
			case <-time.After(wait):
				k.Interrupt()
			}
		}
	}()
	err := k.Settle(ctx)
	close(over)
	if err != nil {
		c.drop(k)
	}
}

// Restart ends the kernel, and with it the cell that runs, and starts another one.
func (c *Context) Restart(ctx context.Context) error {
	c.mu.Lock()
	k := c.kernel
	c.kernel = nil
	c.mu.Unlock()
	if k != nil {
		k.Close()
	}
	return c.Start(ctx)
}

// Start starts the kernel if it does not run.
func (c *Context) Start(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	_, err := c.ready(ctx)
	return err
}

// Remove ends the context. It may be called once.
func (c *Context) Remove() {
	c.mu.Lock()
	k := c.kernel
	c.kernel, c.removed = nil, true
	c.mu.Unlock()
	close(c.ended)
	if k != nil {
		k.Close()
	}
}
