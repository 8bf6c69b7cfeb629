//go:build linux

package hosted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// UndoTime bounds the removal of one sandbox, and whatever else is undone when the context that asked for it has ended.
const UndoTime = 10 * time.Second

// ErrClosed is what a sandbox answers after its driver was closed.
var ErrClosed = errors.New("the driver is closed")

// Life is the life of one sandbox. A driver's Instance embeds it; it implements Dial, Wait and Destroy of [driver.Instance].
type Life struct {
	Params

	ended chan struct{} // closed when the process is gone and exit is set
	exit  driver.Exit   // valid after ended
	left  chan struct{} // closed when the watch is over, perhaps before the end

	once    sync.Once     // the one Destroy that works
	gone    chan struct{} // closed when that one is through
	goneErr error         // its result, valid after gone

	mu     sync.Mutex
	killed bool        // we asked for the end
	over   bool        // the link, present or future, is to be closed
	link   driver.Link // nil until it is connected
}

// Params are what a driver knows of a sandbox that was started or found again.
type Params struct {
	ID  carrel.ID
	PID int
	// Pidfd is of the first process, which takes all others with it. It must not block. Life closes it.
	Pidfd *os.File
	Log   *slog.Logger

	// Guard, unless nil, watches over the process until the function that it returns is called.
	Guard func() (stop func())
	// Kill ends the process, at once.
	Kill func()
	// Reason says why it ended; killed is that it was asked for, status is the process's if it was our child.
	Reason func(killed bool, status string) driver.Exit
	// Remove removes every trace of the ended one.
	Remove func(context.Context) error
	// Forget takes it out of the driver's books, when Remove was called.
	Forget func()
}

// Begin starts the watch over a process. It is called once, before anything else but [Life.SetLink] and [Life.CloseLink].
func (l *Life) Begin(p Params) {
	l.Params = p
	l.ended, l.left, l.gone = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go l.watch()
}

// watch waits for the end and records why; after [Life.Release] it just returns.
func (l *Life) watch() {
	defer close(l.left)
	stop := func() {}
	if l.Guard != nil {
		stop = l.Guard()
	}
	over := proc.Wait(l.Pidfd)
	stop()
	if !over {
		return
	}
	status := proc.Reap(l.Pidfd, l.PID)
	l.mu.Lock()
	killed := l.killed
	l.mu.Unlock()
	l.exit = l.Reason(killed, status)
	close(l.ended)
	_ = l.CloseLink()
	if !killed {
		l.Log.Warn("sandbox ended", "sandbox", l.ID, "reason", l.exit.Reason, "message", l.exit.Message)
	}
}

// Ended is closed when the process is gone; from then on [Life.Exit] says why.
func (l *Life) Ended() <-chan struct{} { return l.ended }

// Left is closed when nobody watches any more: the process is gone, or was let go.
func (l *Life) Left() <-chan struct{} { return l.left }

// Exit is why it ended. Valid after Ended.
func (l *Life) Exit() driver.Exit { return l.exit }

// Dial implements driver.Instance.
func (l *Life) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	select {
	case <-l.ended:
		return nil, &carrel.Error{Op: "dial sandbox", Kind: carrel.Unavailable, ID: l.ID, Err: errors.New(l.exit.Message)}
	default:
	}
	l.mu.Lock()
	link := l.link
	l.mu.Unlock()
	return link.Dial(ctx, port)
}

// SetLink stores the connected link; when the sandbox ended meanwhile it closes it.
func (l *Life) SetLink(link driver.Link) {
	l.mu.Lock()
	l.link = link
	over := l.over
	l.mu.Unlock()
	if over {
		_ = link.Close()
	}
}

// CloseLink ends all connections, so that nobody waits for a dead sandbox.
func (l *Life) CloseLink() error {
	l.mu.Lock()
	l.over = true
	link := l.link
	l.mu.Unlock()
	if link == nil {
		return nil
	}
	return link.Close()
}

// Wait implements driver.Instance.
func (l *Life) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-l.ended:
		return l.exit, nil
	case <-l.left:
	case <-ctx.Done():
		return driver.Exit{}, context.Cause(ctx)
	}
	select {
	case <-l.ended: // both were ready
		return l.exit, nil
	default:
		return driver.Exit{}, &carrel.Error{Op: "wait for sandbox", Kind: carrel.Unavailable, ID: l.ID, Err: ErrClosed}
	}
}

// Destroy implements driver.Instance. The work is done once and to its end; a
// caller whose ctx ends earlier stops waiting for it.
func (l *Life) Destroy(ctx context.Context) error {
	l.once.Do(func() {
		l.meant()
		go func() {
			defer close(l.gone)
			l.goneErr = l.destroy()
		}()
	})
	select {
	case <-l.gone:
		return l.goneErr
	case <-ctx.Done():
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.TimedOut, ID: l.ID, Err: context.Cause(ctx)}
	}
}

// Doom kills the process because whoever wanted it has gone; [Life.Destroy] is still to be called.
func (l *Life) Doom() {
	l.meant()
	l.Kill()
}

// meant notes that the end to come is no crash.
func (l *Life) meant() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
}

// destroy kills the process, waits for its death, and removes every trace.
func (l *Life) destroy() error {
	ctx, cancel := context.WithTimeout(context.Background(), UndoTime)
	defer cancel()
	l.Kill()
	var errs []error
	select {
	case <-l.ended:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("process %d does not die", l.PID))
	}
	errs = append(errs, l.CloseLink(), l.Remove(ctx))
	_ = l.Pidfd.Close()
	l.Forget()
	if err := errors.Join(errs...); err != nil {
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.Internal, ID: l.ID, Err: err}
	}
	return nil
}

// Abandon undoes a creation that failed.
func (l *Life) Abandon() {
	if err := l.Destroy(context.Background()); err != nil {
		l.Log.Error("undo a failed creation", "sandbox", l.ID, "err", err)
	}
}

// Release lets go of the sandbox without ending it.
func (l *Life) Release() {
	_ = l.Pidfd.Close()
	<-l.left
	_ = l.CloseLink()
}
