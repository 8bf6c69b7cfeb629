//go:build linux

package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// stageName is the part of the process that builds a box.
const stageName = "carrel-box"

// Parts returns the parts of this package for reexec.Run.
func Parts() reexec.Parts { return reexec.Parts{stageName: stage} }

// Start builds a box and starts its command. It returns nil after the command has been executed. If
// that fails, ENOENT, EACCES and ENOEXEC come as *os.PathError. Errors about the Spec name the
// mount or path.
func Start(ctx context.Context, s Spec, o Options) (*Box, error) {
	if err := s.validate(o); err != nil {
		return nil, err
	}
	if o.Stage == nil && !reexec.Ready() {
		return nil, &carrel.Error{Op: "build box", Kind: carrel.Internal, Err: errors.New("this program's main does not run box.Parts")}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := blank(s, o)
	if err := b.start(ctx); err != nil {
		b.abandon()
		return nil, err
	}
	return b, nil
}

// blank returns a box with nothing started yet.
func blank(s Spec, o Options) *Box {
	return &Box{spec: s, options: o, done: make(chan struct{}), stopping: make(chan struct{}), argv: []string{stageName}, pidfd: -1, stagefd: -1, words: -1}
}

// start starts the stage, or takes one that was started ahead, and waits for its report.
func (b *Box) start(ctx context.Context) error {
	b.prepare()
	if err := b.openDoors(); err != nil {
		return err
	}
	if !b.adopt(b.options.Ahead) {
		if err := b.spawn(b.userChoices()); err != nil {
			return err
		}
	}
	if err := b.tellOrder(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = b.Kill() })
	defer stop()
	buf := make([]byte, maxMessage)
	for {
		m, fds, err := b.conn.receive(buf)
		if err != nil {
			return err
		}
		switch m.Word {
		case "":
			if b.begun { // with Init, the exec of the command closes the socket
				return b.run(buf)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return b.silent()
		case failed:
			return m.Failure.err()
		case started:
			b.take(m, fds)
			if !b.spec.Init {
				return b.run(buf)
			}
		default:
			b.handle(m, fds)
		}
	}
}

// silent returns the error for a stage that ended without a report.
func (b *Box) silent() error {
	ws, _ := b.reap()
	return &carrel.Error{Op: "build box", Kind: carrel.Internal, Err: b.wordless(ws)}
}

// spawn starts the stage with its end of the socket. It uses the first way that works on this host.
func (b *Box) spawn(ways []bool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	b.conn = &conn{fd: pair[0]}
	defer unix.Close(pair[1])
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	if b.words, err = newLastWords(); err != nil {
		return err
	}
	path, done, err := b.stagePath(proc.AboveChild(null, pair[1], b.words))
	if err != nil {
		return err
	}
	defer done()
	attr := &syscall.ProcAttr{Env: []string{"GOMAXPROCS=2", "GOGC=off", "GOMEMLIMIT=64MiB", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}, Dir: "/",
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pair[1]), uintptr(b.words)}}
	for _, user := range ways {
		b.order.User = user
		attr.Sys = b.attributes(user)
		if err = b.fork(path, attr); err == nil {
			return nil
		}
	}
	return unsupported(err)
}

// tellOrder sends the stage its order, and the command's standard streams.
func (b *Box) tellOrder() error {
	b.order.Spec, b.order.Stay = b.spec, b.options.Detach
	b.order.Watch = b.options.Watch != nil && !b.options.Detach
	b.order.Touch = b.options.Events.Touched != nil && !b.options.Detach
	told, err := memory("order", encode(nil, b.order))
	if err != nil {
		return err
	}
	defer unix.Close(told)
	fds, streams := []int{told}, []int(nil)
	for i, f := range []*os.File{b.options.Stdin, b.options.Stdout, b.options.Stderr} {
		if f != nil && !b.spec.Terminal[i] { // else it is /dev/null
			streams = append(streams, i)
			fds = append(fds, int(f.Fd()))
		}
	}
	err = b.conn.send(message{Word: ordered, Streams: streams}, fds...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // it has ended; start returns the reason
	}
	return err
}

// stagePath is a path of the stage's binary for exec: a descriptor from above on.
func (b *Box) stagePath(above int) (path string, done func(), err error) {
	if b.options.Stage == nil {
		return "/proc/self/exe", func() {}, nil
	}
	fd, err := unix.FcntlInt(b.options.Stage.Fd(), unix.F_DUPFD_CLOEXEC, above)
	if err != nil {
		return "", nil, os.NewSyscallError("dup", err)
	}
	return "/proc/self/fd/" + strconv.Itoa(fd), func() { _ = unix.Close(fd) }, nil
}

// memory writes data into a memory file and seals it.
func memory(name string, data []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	for off := 0; off < len(data) && err == nil; {
		var n int
		n, err = unix.Pwrite(fd, data[off:], int64(off))
		off += n
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memory file: %w", err)
	}
	return fd, nil
}

// userChoices lists the ways to make namespaces: with a user namespace, and, for root on hosts
// where those are switched off, without.
func (b *Box) userChoices() []bool {
	switch {
	case b.spec.Light:
		return []bool{false}
	case os.Geteuid() == 0 && len(b.spec.UIDMap) == 0:
		return []bool{true, false}
	}
	return []bool{true}
}

// attributes returns the attributes of the stage's process.
func (b *Box) attributes(user bool) *syscall.SysProcAttr {
	b.stagefd = -1
	a := &syscall.SysProcAttr{Setsid: true, PidFD: &b.stagefd}
	// Not with a version 1 group: there the thread that starts the child ends at once. The stage
	// also notices the end through the socket.
	if !b.options.Detach && !b.spec.Light && (b.group == nil || len(b.group.Paths().V1) == 0) {
		a.Pdeathsig = syscall.SIGKILL
	}
	if b.spec.Light {
		return a
	}
	a.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	if b.spec.Network != Host {
		a.Cloneflags |= unix.CLONE_NEWNET
	}
	if !user {
		return a
	}
	a.Cloneflags |= unix.CLONE_NEWUSER
	if len(b.spec.UIDMap) > 0 {
		a.UidMappings, a.GidMappings = b.spec.UIDMap, b.spec.GIDMap
		a.GidMappingsEnableSetgroups = os.Geteuid() == 0
		a.Credential = &syscall.Credential{NoSetGroups: !a.GidMappingsEnableSetgroups}
		return a
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	a.AmbientCaps = stageCapabilities(b.spec)
	return a
}

// spawner is a thread that lives as long as the process. The kernel kills a child with Pdeathsig
// when the thread that made it ends, and other threads may end.
var spawner = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// fork starts the stage's process.
func (b *Box) fork(path string, attr *syscall.ProcAttr) error {
	result := make(chan error, 1)
	start := func() error {
		return proc.Alone(func() error {
			proc.CloseOnExec(3) // all other files of this program; the stage's are copies
			pid, err := syscall.ForkExec(path, b.argv, attr)
			if err == nil {
				b.stage = pid
			}
			return err
		})
	}
	spawner() <- func() {
		if b.group != nil {
			result <- b.group.Start(attr.Sys, start)
		} else {
			result <- start()
		}
	}
	return <-result
}

// take stores the descriptors that the stage handed out.
func (b *Box) take(m message, fds []int) {
	b.begun, b.missing = true, append(b.missing, m.Missing...)
	for i, name := range m.Handed {
		if i >= len(fds) {
			break
		}
		switch name {
		case "pidfd":
			b.pidfd = fds[i]
		case "root":
			b.root = os.NewFile(uintptr(fds[i]), "/")
		case "link":
			b.link = os.NewFile(uintptr(fds[i]), "link")
		case "terminal":
			_ = unix.SetNonblock(fds[i], true)
			b.terminal = os.NewFile(uintptr(fds[i]), "terminal")
		case "listener":
			b.listener = seccomp.Listen(os.NewFile(uintptr(fds[i]), "seccomp"), b.spec.Seccomp)
		default:
			_ = unix.Close(fds[i])
		}
	}
}
