//go:build linux

package box

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/denyfs"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// Box is a running box.
type Box struct {
	spec    Spec
	options Options
	conn    *conn
	argv    []string // of the stage
	stage   int      // pid
	stagefd int
	pidfd   int // of the command
	words   int // the stage's crash report, see lastwords.go
	begun   bool
	missing []string

	root, link, terminal *os.File
	listener             *seccomp.Listener
	masks                *denyfs.Server
	doors                *doors
	groups               *cgroup.Hierarchy
	group                *cgroup.Group
	order                order
	measure              bool // measure the memory, because no group does
	late                 bool // the group may be made later
	grouped              atomic.Bool
	frozen               atomic.Bool
	work                 sync.WaitGroup

	reaping sync.Mutex // guards stage: no signal to a reaped pid
	reaped  bool

	stopping chan struct{} // closed when the stage has ended
	done     chan struct{}
	detached sync.Once
	exit     Exit  // after done
	err      error // after done

	mu    sync.Mutex
	limit string // the limit that ended it
	told  map[string]bool
}

// run begins to serve a box. Its command runs already.
func (b *Box) run(buf []byte) error {
	if b.listener != nil && b.options.Watch != nil && !b.options.Detach {
		b.work.Go(func() {
			_ = b.listener.Serve(context.Background(), func(c seccomp.Call) seccomp.Answer { return b.options.Watch(b, c) })
		})
	}
	if b.options.Detach {
		return nil
	}
	b.serveDoors()
	if b.late {
		b.work.Go(b.joinLate)
	}
	if b.measure {
		b.work.Go(func() { b.watchMemory(b.stopping) })
	}
	var timeout *time.Timer
	if t := b.spec.Limits.Timeout; t > 0 {
		timeout = time.AfterFunc(t, func() { b.ended("timeout", t.String()) })
	}
	go b.serve(buf, timeout)
	return nil
}

// serve reads the stage's messages until the box has ended.
func (b *Box) serve(buf []byte, timeout *time.Timer) {
	var last message
	for {
		m, fds, err := b.conn.receive(buf)
		if err != nil || m.Word == "" {
			break
		}
		if m.Word == exited {
			last = m
			continue
		}
		b.handle(m, fds)
	}
	ws, ru := b.reap()
	close(b.stopping)
	if timeout != nil {
		timeout.Stop()
	}
	if b.listener != nil {
		_ = b.listener.Close()
	}
	b.doors.close()
	if b.masks != nil {
		_ = b.masks.Close()
	}
	b.work.Wait()
	b.conn.close()
	if b.root != nil {
		_ = b.root.Close()
	}
	b.release()
	b.conclude(last, ws, ru)
	closeFD(&b.words)
	close(b.done)
}

// conclude determines how the box ended.
func (b *Box) conclude(last message, ws syscall.WaitStatus, ru syscall.Rusage) {
	b.mu.Lock()
	b.exit.Limit = b.limit
	b.mu.Unlock()
	b.exit.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	b.exit.MaxMemory = ru.Maxrss << 10
	switch {
	case b.exit.Limit != "" && last.Word != exited:
		b.exit.Signal = syscall.SIGKILL
	case last.Word == exited:
		b.exit.Code, b.exit.Signal = last.Code, syscall.Signal(last.Signal)
	case ws.Signaled():
		b.exit.Signal = ws.Signal()
	case b.spec.Init:
		b.exit.Code = ws.ExitStatus()
	default:
		b.err = fmt.Errorf("box: %w", b.wordless(ws))
	}
}

// handle carries out a request of the stage.
func (b *Box) handle(m message, fds []int) {
	e := b.options.Events
	switch {
	case m.Word == named && e.Name != nil:
		e.Name(m.Text)
	case m.Word == stopped && e.Stopped != nil && !b.frozen.Load():
		e.Stopped()
	case m.Word == masks && len(fds) == 1:
		b.serveMasks(m.Masks, os.NewFile(uintptr(fds[0]), "fuse"))
		return
	case m.Word == dial:
		var f *os.File
		if len(fds) == 1 {
			f = os.NewFile(uintptr(fds[0]), "inside")
		}
		b.doors.answered(m.ID, f)
		return
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// serveMasks serves the masks over hidden files.
func (b *Box) serveMasks(list []int, dev *os.File) {
	table := make([]denyfs.Mask, len(list))
	index := make([]int, len(list))
	for i, n := range list {
		dir := n < 0
		if dir {
			n = -1 - n
		}
		if n >= len(b.spec.Hidden) {
			_ = dev.Close()
			return
		}
		table[i], index[i] = denyfs.Mask{Path: b.spec.Hidden[n].Path, Dir: dir}, n
	}
	b.masks = denyfs.Serve(dev, table, func(t denyfs.Touch) {
		if f := b.options.Events.Touched; f != nil && t.Mask >= 0 && t.Mask < len(index) {
			f(index[t.Mask], t.Path, t.Op, t.PID)
		}
	})
}

// reap waits for the stage. When it has ended, everything inside has ended.
func (b *Box) reap() (ws syscall.WaitStatus, ru syscall.Rusage) {
	// First wait without collecting, then collect under the lock. So no signal can hit another
	// process that got the same pid.
	for unix.Waitid(unix.P_PID, b.stage, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	b.reaping.Lock()
	defer b.reaping.Unlock()
	if b.reaped || b.stage == 0 {
		return ws, ru
	}
	for {
		_, err := syscall.Wait4(b.stage, &ws, 0, &ru)
		if err != syscall.EINTR {
			break
		}
	}
	b.reaped = true
	closeFD(&b.stagefd)
	closeFD(&b.pidfd)
	return ws, ru
}

func closeFD(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}

// abandon ends a box whose building failed.
func (b *Box) abandon() {
	if b.stage != 0 {
		_ = b.Kill()
		_, _ = b.reap()
	}
	closeFD(&b.stagefd)
	closeFD(&b.pidfd)
	closeFD(&b.words)
	if b.conn != nil {
		b.conn.close()
	}
	b.doors.close()
	if b.listener != nil {
		_ = b.listener.Close()
	}
	if b.masks != nil {
		_ = b.masks.Close()
	}
	b.release()
	for _, f := range []*os.File{b.root, b.link, b.terminal} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Link is the host's end of the network link of a Wired box. The caller owns it.
func (b *Box) Link() *os.File { return b.link }

// Terminal is the other end of the command's terminal, nil without one. The caller owns it.
func (b *Box) Terminal() *os.File { return b.terminal }

// Missing lists, in words, the parts of the Spec that this host could not do.
func (b *Box) Missing() []string { return b.missing }

// PID is the command's pid as this process sees it; 0 after its end.
func (b *Box) PID() int {
	b.reaping.Lock()
	defer b.reaping.Unlock()
	if b.pidfd < 0 {
		if b.spec.Init && !b.reaped {
			return b.stage
		}
		return 0
	}
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(b.pidfd))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(info) {
		if v, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			pid, _ := strconv.Atoi(string(bytes.TrimSpace(v)))
			return max(pid, 0)
		}
	}
	return 0
}

// Stage is the pid of the box's first process. With Init it is the same as PID.
func (b *Box) Stage() int { return b.stage }

// Stopping is closed when the first process has ended, a little before Wait returns. It is not
// closed for a detached box.
func (b *Box) Stopping() <-chan struct{} { return b.stopping }

// Root is a descriptor of the box's root directory, as its processes see it. Callers resolve paths
// with it as those processes do. The Box owns it and keeps it open until its end.
func (b *Box) Root() *os.File { return b.root }

// groupSignal reports whether a signal goes to every process of the command's group, as a
// terminal's signals do.
func groupSignal(s syscall.Signal) bool {
	switch s {
	case syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
		return true
	}
	return false
}

// Signal sends a signal to the command. SIGCONT, SIGTSTP, SIGINT, SIGQUIT and SIGHUP go to its
// whole process group.
func (b *Box) Signal(s syscall.Signal) error {
	if !b.spec.Init {
		return b.conn.send(message{Word: kill, Signal: int(s), Group: groupSignal(s)})
	}
	b.reaping.Lock()
	defer b.reaping.Unlock()
	if b.reaped {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(b.stagefd, unix.Signal(s), nil, 0)
}

// Kill ends everything inside.
func (b *Box) Kill() error {
	b.reaping.Lock()
	defer b.reaping.Unlock()
	if b.reaped || b.stage == 0 {
		return nil
	}
	if b.spec.Light {
		return b.conn.send(message{Word: end})
	}
	if b.stagefd < 0 {
		return syscall.Kill(b.stage, syscall.SIGKILL)
	}
	return unix.PidfdSendSignal(b.stagefd, unix.SIGKILL, nil, 0)
}

// Wait returns when the command and everything else in the box has ended. By then the descriptors
// of the stage and of this package are closed. For a detached box the Exit is known only with Init.
func (b *Box) Wait() (Exit, error) {
	if b.options.Detach {
		return b.waitDetached()
	}
	<-b.done
	return b.exit, b.err
}

// waitDetached waits for a box that this process does not serve.
func (b *Box) waitDetached() (Exit, error) {
	b.detached.Do(func() {
		ws, ru := b.reap()
		b.conn.close()
		b.release()
		b.conclude(message{}, ws, ru)
		closeFD(&b.words)
	})
	return b.exit, b.err
}
