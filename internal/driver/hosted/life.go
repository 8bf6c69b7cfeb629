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

// UndoTime bounds the removal of one sandbox, and any other cleanup after the caller's context has
// ended.
const UndoTime = 10 * time.Second

// ErrClosed is the error of a sandbox's methods after its driver was closed.
var ErrClosed = errors.New("the driver is closed")

// Life is the life of one sandbox. A driver's Instance embeds it; it implements Dial, Wait and
// Destroy of [driver.Instance].
type Life struct {
	Params

	ended chan struct{} // closed when the process is gone and exit is set
	exit  driver.Exit   // valid after ended
	left  chan struct{} // closed when the watch ends, perhaps before the process

	once    sync.Once     // the one Destroy that does the work
	gone    chan struct{} // closed when destroy has finished
	goneErr error         // its result, valid after gone

	mu     sync.Mutex
	killed bool        // we asked for the end
	over   bool        // close the link, also one that is set later
	link   driver.Link // nil until it is connected
}

// Params describe a sandbox that was started or found again.
type Params struct {
	ID  carrel.ID
	PID int
	// Pidfd refers to the first process; its death ends all others. Reading it must not block. Life
	// closes it.
	Pidfd *os.File
	Log   *slog.Logger

	// Guard watches the process until the caller calls stop. It may be nil.
	Guard func() (stop func())
	// Kill ends the process, at once.
	Kill func()
	// Reason tells why the process ended. killed says that the service asked for it. status is the
	// process's exit status if it was our child.
	Reason func(killed bool, status string) driver.Exit
	// Remove removes every trace of the sandbox after its end.
	Remove func(context.Context) error
	// Forget takes the sandbox out of the driver's books. It is called after Remove.
	Forget func()
}

// Begin starts the watch over a process. It is called once, before all other methods except
// [Life.SetLink] and [Life.CloseLink].
func (l *Life) Begin(p Params) {
	l.Params = p
	l.ended, l.left, l.gone = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go l.watch()
}

// watch waits for the end of the process and records the reason. After [Life.Release] it only
// returns.
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

// Ended is closed when the process is gone; from then on [Life.Exit] returns the reason.
func (l *Life) Ended() <-chan struct{} { return l.ended }

// Left is closed when the watch is over: the process is gone, or was released.
func (l *Life) Left() <-chan struct{} { return l.left }

// Exit is the reason of the end. Valid after Ended.
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

// SetLink stores the connected link. If the sandbox has ended by then, SetLink closes it.
func (l *Life) SetLink(link driver.Link) {
	l.mu.Lock()
	l.link = link
	over := l.over
	l.mu.Unlock()
	if over {
		_ = link.Close()
	}
}

// CloseLink ends all connections, so that no caller waits for a dead sandbox.
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

// Destroy implements driver.Instance. The work is done once and to its end. A caller whose ctx ends
// earlier stops waiting for it.
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

// Doom kills the process when the caller of its creation gave up. [Life.Destroy] must still be
// called.
func (l *Life) Doom() {
	l.meant()
	l.Kill()
}

// meant notes that the coming end is intended and no crash.
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
