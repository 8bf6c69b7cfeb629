package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// storedPrefix begins the names of our files in a supervisor's store. The supervisor passes the
// files of a socket unit in the same way, under other names.
const storedPrefix = "carrel/"

// tellTime bounds one message to the supervisor.
const tellTime = 2 * time.Second

// Supervisor is the store for open files of the service manager (systemd's FDSTORE=1). It outlives
// the daemon and every keeper. It gives the files back only at the daemon's next start.
type Supervisor struct {
	addr *unix.SockaddrUnix // "@" begins an abstract name

	mu    sync.Mutex
	files map[string]*os.File // what it gave back, and what it was given
}

// NewSupervisor returns the store of the supervisor at a socket, the value of NOTIFY_SOCKET. given
// are the files that this process got at its start. NewSupervisor takes its own ones out of them,
// and returns the rest.
func NewSupervisor(socket string, given []*os.File) (s *Supervisor, rest []*os.File) {
	s = &Supervisor{addr: &unix.SockaddrUnix{Name: socket}, files: map[string]*os.File{}}
	for _, f := range given {
		name, ok := strings.CutPrefix(f.Name(), storedPrefix)
		switch {
		case !ok:
			rest = append(rest, f)
		case s.files[name] != nil: // an older one of the same name
			_ = s.files[name].Close()
			s.files[name] = f
		default:
			s.files[name] = f
		}
	}
	return s, rest
}

// Put implements Holder.
func (s *Supervisor) Put(ctx context.Context, name string, f *os.File) error {
	if err := checkStored(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[name] != nil {
		if err := s.forget(ctx, name); err != nil {
			return err
		}
	}
	own, err := duplicate(f)
	if err != nil {
		return requestError("put", carrel.Exhausted, err)
	}
	if err := s.tell(ctx, "FDSTORE=1\nFDNAME="+storedPrefix+name, own); err != nil {
		_ = own.Close()
		return requestError("put", carrel.Unavailable, err)
	}
	s.files[name] = own
	return nil
}

// checkStored refuses names that the protocol can't carry.
func checkStored(name string) error {
	err := checkName(name)
	if err == nil && (len(storedPrefix)+len(name) > maxName ||
		strings.ContainsFunc(name, func(r rune) bool { return r == ':' || r > '~' })) {
		err = fmt.Errorf("%q is no name for a supervisor's store", name)
	}
	if err != nil {
		return &carrel.Error{Op: "keeper put", Kind: carrel.Invalid, Field: "name", Err: err}
	}
	return nil
}

// Get implements Holder.
func (s *Supervisor) Get(_ context.Context, name string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return nil, requestError("get", carrel.NotFound,
			errors.New("the supervisor did not give it back"))
	}
	c, err := duplicate(f)
	if err != nil {
		return nil, requestError("get", carrel.Exhausted, err)
	}
	return c, nil
}

// Delete implements Holder.
func (s *Supervisor) Delete(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[name] == nil {
		return nil
	}
	return s.forget(ctx, name)
}

// forget takes a file out of the store. The caller holds mu.
func (s *Supervisor) forget(ctx context.Context, name string) error {
	if err := s.tell(ctx, "FDSTOREREMOVE=1\nFDNAME="+storedPrefix+name, nil); err != nil {
		return requestError("delete", carrel.Unavailable, err)
	}
	_ = s.files[name].Close()
	delete(s.files, name)
	return nil
}

// List implements Holder.
func (s *Supervisor) List(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.files)), nil
}

// Close closes this process's copies. The supervisor keeps its own.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		_ = f.Close()
	}
	clear(s.files)
	return nil
}

// tell sends one message, with a file if f is not nil.
func (s *Supervisor) tell(ctx context.Context, state string, f *os.File) error {
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(sock)
	left := tellTime
	if d, ok := ctx.Deadline(); ok {
		left = max(time.Millisecond, min(left, time.Until(d)))
	}
	wait := unix.NsecToTimeval(left.Nanoseconds())
	if err := unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if f == nil {
		return os.NewSyscallError("sendmsg", unix.Sendmsg(sock, []byte(state), nil, s.addr,
			unix.MSG_NOSIGNAL))
	}
	return withFD(f, func(fd int) error {
		return os.NewSyscallError("sendmsg", unix.Sendmsg(sock, []byte(state), unix.UnixRights(fd),
			s.addr, unix.MSG_NOSIGNAL))
	})
}

// withFD calls use with f's descriptor. It leaves f's mode alone, unlike f.Fd.
func withFD(f *os.File, use func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var uerr error
	cerr := raw.Control(func(fd uintptr) { uerr = use(int(fd)) })
	return errors.Join(cerr, uerr)
}

// duplicate returns another file of the same open file.
func duplicate(f *os.File) (*os.File, error) {
	copied := -1
	err := withFD(f, func(fd int) (err error) {
		copied, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(copied), f.Name()), nil
}
