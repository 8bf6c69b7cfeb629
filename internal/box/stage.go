//go:build linux

package box

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// builder is the stage: it builds the box from inside, and then stays as its first process.
type builder struct {
	null int // /dev/null, for letGo; negative if it could not be opened
	order
	conn    *conn
	missing []string
	handed  []string // names of fds
	fds     []int
	// sources are clones of the outside files for mounts, by the mount's index.
	sources map[int]int
	devices []device
	// own are the filesystems (st_dev) that belong to this box. Only in these may directories be
	// made.
	own     map[uint64]bool
	begin   first
	mask    [4]int      // see hide.go
	files   map[int]int // files for ReadFile mounts, by index; resolvConf for our own
	fuse    *os.File    // /dev/fuse, open, for the masks
	fuseDir int         // its root directory
	proc    int         // a /proc that is not attached yet, unless Root is the host's
	sys     int         // and a /sys
	linkFD  int         // the host's end of the link, once it is made
	netns   int         // the network namespace, where it is not the main thread\'s
	below   map[int][]submount
	pinned  map[string]bool
	ordered chan struct{} // closed when there is an order
	command int
	tty     int // the command's side of its terminal
	failing string
}

// stage is the process between Start and the command.
func stage() {
	// The main thread stays unrestricted. Another thread takes on the command's restrictions and
	// starts the command. If the main thread did that, the command could signal the stage, because
	// Landlock decides by the main thread.
	runtime.LockOSThread()
	// No process of the same user may read or trace this process, whatever yama allows.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	b := &builder{conn: &conn{fd: controlFD}, ordered: make(chan struct{}), command: -1, tty: -1, sources: map[int]int{}, own: map[uint64]bool{}, files: map[int]int{}, below: map[int][]submount{}, pinned: map[string]bool{},
		fuseDir: -1, proc: -1, sys: -1, linkFD: -1, netns: -1, mask: [4]int{-1, -1, -1, -1}}
	b.begin = b.first()
	go b.thread()
	if err := b.read(); err != nil {
		b.fail(err)
	}
	if b.Spec.Light {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if b.NProc > 0 {
		keepThreads()
	}
	close(b.ordered)
	b.listen()
}

// read reads the order. It also makes all other open descriptors close at an exec, so that the
// command does not get them. It does not close them now: this program's own runtime opens files at
// any time, and dies without them. Start makes sure that nothing else is inherited.
func (b *builder) read() error {
	unix.CloseOnExec(controlFD)
	proc.CloseOnExec(wordsFD + 1)
	keepLastWords()
	m, fds, err := b.conn.receive(make([]byte, maxMessage))
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	if m.Word != ordered || len(fds) != 1+len(m.Streams) {
		os.Exit(1) // the process that started it has no use for it, or is gone
	}
	for i, to := range m.Streams {
		if err := unix.Dup3(fds[1+i], to, 0); err != nil {
			return os.NewSyscallError("dup", err)
		}
		_ = unix.Close(fds[1+i])
	}
	order := fds[0]
	defer unix.Close(order)
	var st unix.Stat_t
	if err := unix.Fstat(order, &st); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	data, err := unix.Mmap(order, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	err = decode(data, &b.order)
	_ = unix.Munmap(data)
	return err
}

// keepThreads starts the threads that this process may need later. The process is bounded like the
// command. If the command has used up all tasks, Go's runtime can't start a thread and ends the
// program. The runtime keeps idle threads and reuses them first.
func keepThreads() {
	const spare = 8 // threads in system calls, and the collector's
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
	var here sync.WaitGroup
	here.Add(spare)
	for range spare {
		go func() {
			runtime.LockOSThread() // each on one of its own
			defer runtime.UnlockOSThread()
			here.Done()
			here.Wait()
		}()
	}
	here.Wait()
}

// first are steps that are the same for every box that needs them. Each runs only once. A stage
// that was started ahead runs them while it waits for its order.
type first struct{ detach, devices, loopback, link func() error }

func (b *builder) first() first {
	return first{sync.OnceValue(detach), sync.OnceValue(b.gatherUsual), sync.OnceValue(loopback), sync.OnceValue(b.makeLink)}
}

// thread builds the box and starts the command, on a thread that is not the main one.
func (b *builder) thread() {
	runtime.LockOSThread()
	if len(os.Args) > 2 && os.Args[1] == aheadArg {
		network := b.begin.loopback
		if os.Args[2] == string(Wired) {
			network = b.begin.link
		}
		for _, step := range []func() error{b.begin.detach, b.begin.devices, network} {
			_ = step() // build reports the error
		}
	}
	<-b.ordered
	if err := b.build(); err != nil {
		b.fail(err)
	}
	if err := b.launch(); err != nil {
		b.fail(err)
	}
	b.reap()
}

// fail reports the error to the host's process and ends this one.
func (b *builder) fail(err error) {
	f, ok := err.(*execError)
	if ok {
		_ = b.conn.send(message{Word: failed, Failure: &failure{Exec: true, Path: f.path, Errno: int(f.errno), Text: f.Error()}})
	} else {
		_ = b.conn.send(message{Word: failed, Failure: fault(b.failing, err)})
	}
	os.Exit(126)
}

// build builds all walls except those of this process alone.
func (b *builder) build() error {
	newKeyring()
	steps := []step{{"limits", b.limits}, {"terminal", b.terminal}}
	if !b.Spec.Light {
		steps = append(b.walls(), steps...)
	}
	for _, s := range steps {
		b.failing = s.name
		if err := s.do(); err != nil {
			return err
		}
	}
	b.failing = ""
	return nil
}

// step is one part of building; errors use its name.
type step struct {
	name string
	do   func() error
}

// walls returns the steps of a box with namespaces.
func (b *builder) walls() []step {
	return []step{
		{"network", b.network},
		{"mounts", b.gather},
		{"root", b.root},
		{"/dev", b.dev},
		{"/proc and /sys", b.kernel},
		{"/tmp and /run", b.private},
		{"mounts", b.mounts},
		{"names", b.resolver},
		{"hidden paths", b.hide},
		{"host name", b.hostname},
	}
}

// newKeyring replaces the session keyring, which may hold the caller's keys. On a kernel without
// keys it does nothing.
func newKeyring() {
	_, _, _ = unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
}

func (b *builder) hostname() error {
	if b.Spec.Hostname == "" {
		return nil
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(b.Spec.Hostname)))
}

// listen carries out the requests of the host's process. When that process is gone, it ends
// everything.
func (b *builder) listen() {
	buf := make([]byte, maxMessage)
	for {
		m, _, err := b.conn.receive(buf)
		switch {
		case (err != nil || m.Word == "") && b.Stay:
			select {} // the box outlives the host's process
		case err != nil, m.Word == "", m.Word == end:
			b.finish(1)
		case m.Word == dial:
			go b.dial(m)
		case m.Word == kill:
			if pid := b.command; pid > 0 {
				if m.Group {
					pid = -pid
				}
				_ = unix.Kill(pid, syscall.Signal(m.Signal))
			}
		}
	}
}

// reap waits for the command and for every orphan.
func (b *builder) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			b.finish(1)
		case pid != b.command:
		case ws.Stopped():
			if s := ws.StopSignal(); b.tty >= 0 && (s == syscall.SIGTTIN || s == syscall.SIGTTOU) && b.foreground() {
				_ = unix.Kill(-b.command, unix.SIGCONT) // the terminal belongs to its group by now
				continue
			}
			_ = b.conn.send(message{Word: stopped, Signal: int(ws.StopSignal())})
		default:
			m := message{Word: exited, Code: ws.ExitStatus()}
			if ws.Signaled() {
				m.Code, m.Signal = 0, int(ws.Signal())
			}
			_ = b.conn.send(m)
			b.finish(0)
		}
	}
}

// finish ends this process. It is the first of its namespace, so all others end with it.
func (b *builder) finish(code int) {
	if b.Spec.Light {
		b.killAll()
	}
	os.Exit(code)
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
