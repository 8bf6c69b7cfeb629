//go:build linux

package guard

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// socket is a duplicate of a caller's socket. Both are the same socket, with the same flags and
// options.
type socket struct {
	fd     int
	domain int
	call   seccomp.Call
	guard  *Guard
}

// slice is the time for which a connect waits before it checks whether its caller still waits.
const slice = 50 * time.Millisecond

// connect connects with the semantics of the caller's own call. A call that may wait does so in
// slices. For that connect sets the socket's timeout, and restores it afterwards. It does not use
// the non-blocking flag, because that is shared with the caller, and the caller's other threads
// would see it.
func (s *socket) connect(addr []byte) error {
	flags, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_NONBLOCK != 0 {
		return s.raw(addr)
	}
	own, err := unix.GetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO)
	if err != nil {
		return err
	}
	limit := time.Duration(own.Nano())
	begin := time.Now()
	defer func() { _ = unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, own) }()
	for {
		wait := slice
		if limit > 0 {
			wait = min(wait, max(limit-time.Since(begin), time.Millisecond))
		}
		t := unix.NsecToTimeval(int64(wait))
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t); err != nil {
			return err
		}
		err := s.raw(addr)
		switch err {
		case unix.EINPROGRESS, unix.EALREADY:
			err = unix.EINPROGRESS
		case unix.EAGAIN, unix.EINTR:
		default:
			return err
		}
		// EINTR comes from a signal of this process, and says nothing about the time.
		if limit > 0 && time.Since(begin) >= limit && err != unix.EINTR {
			return err
		}
		if _, gone := s.call.Bytes(0, 0); gone != nil {
			return unix.EINTR
		}
		if signalled(s.call.PID) {
			return unix.EINTR
		}
	}
}

// raw is connect(2).
func (s *socket) raw(addr []byte) error {
	var p unsafe.Pointer
	if len(addr) > 0 {
		p = unsafe.Pointer(&addr[0])
	}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(s.fd), uintptr(p), uintptr(len(addr)))
	runtime.KeepAlive(addr)
	if errno != 0 {
		return errno
	}
	return nil
}

// signalled reports whether a signal waits for a thread that has a handler for it. Such a signal
// would have interrupted the thread's own connect.
func signalled(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return true
	}
	masks := map[string]uint64{}
	for line := range strings.Lines(string(status)) {
		if key, value, _ := strings.Cut(line, ":"); strings.HasPrefix(key, "Sig") || key == "ShdPnd" {
			masks[key], _ = strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return (masks["SigPnd"]|masks["ShdPnd"])&^masks["SigBlk"]&masks["SigCgt"] != 0
}

// asCaller runs f on this thread with the user, the groups and the (lack of) rights of the caller:
// the kernel asks whether who connects may write to the socket's file, and tells the server who it
// was. A process that is not root has nothing else to give. file is what is connected to, nil if
// that is no file. Where the caller is the user that this process is, and may write to the file as
// its owner, nothing would differ.
func (s *socket) asCaller(file *unix.Stat_t, f func() error) error {
	if unix.Geteuid() != 0 {
		return f()
	}
	id, err := s.guard.credentials(s.call)
	if err != nil {
		return err
	}
	if id.here && (file == nil || int(file.Uid) == id.uid && file.Mode&unix.S_IWUSR != 0) {
		return f()
	}
	runtime.LockOSThread() // unlocked only if everything is restored
	as := *id              // it keeps what was before
	if err := as.take(); err != nil {
		return err
	}
	err = f()
	if restore := as.giveBack(); restore != nil {
		return restore
	}
	runtime.UnlockOSThread()
	return err
}

// user is the user that a thread acts for.
type user struct {
	uid, gid int
	groups   []uint32
	here     bool // these are this process's, too
	before   struct {
		gid    int
		groups []uint32
		caps   [2]unix.CapUserData
	}
}

// credentials returns a thread's effective ids, as numbers in this process's user namespace.
func credentials(pid int) (*user, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, unix.ESRCH
	}
	u := &user{uid: -1, gid: -1}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "Uid" && len(fields) == 4:
			u.uid, err = strconv.Atoi(fields[1])
		case key == "Gid" && len(fields) == 4:
			u.gid, err = strconv.Atoi(fields[1])
		case key == "Groups":
			for _, f := range fields {
				n, bad := strconv.ParseUint(f, 10, 32)
				if err = bad; err == nil {
					u.groups = append(u.groups, uint32(n))
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if u.uid < 0 || u.gid < 0 {
		return nil, unix.ESRCH
	}
	own, err := unix.Getgroups()
	u.here = err == nil && u.uid == unix.Geteuid() && u.gid == unix.Getegid() &&
		slices.EqualFunc(own, u.groups, func(a int, b uint32) bool { return a == int(b) })
	return u, nil
}

// take makes only this thread act for the user. It makes the system calls directly, because the C
// library would change all threads.
func (u *user) take() error {
	b := &u.before
	b.gid = unix.Getegid()
	groups, err := unix.Getgroups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		b.groups = append(b.groups, uint32(g))
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &b.caps[0]); err != nil {
		return err
	}
	if err := setgroups(u.groups); err != nil {
		return err
	}
	if err := setres(unix.SYS_SETRESGID, u.gid); err != nil {
		return err
	}
	if err := setres(unix.SYS_SETRESUID, u.uid); err != nil {
		return err
	}
	none := b.caps
	none[0].Effective, none[1].Effective = 0, 0
	return unix.Capset(&header, &none[0])
}

// giveBack undoes take. That works because the saved user is still root.
func (u *user) giveBack() error {
	if err := setres(unix.SYS_SETRESUID, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &u.before.caps[0]); err != nil {
		return err
	}
	if err := setres(unix.SYS_SETRESGID, u.before.gid); err != nil {
		return err
	}
	return setgroups(u.before.groups)
}

// setres sets only this thread's effective user or group.
func setres(call uintptr, id int) error {
	if _, _, errno := unix.RawSyscall(call, ^uintptr(0), uintptr(id), ^uintptr(0)); errno != 0 {
		return errno
	}
	return nil
}

func setgroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0); errno != 0 {
		return errno
	}
	return nil
}
