package landlock

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights from linux/landlock.h. Package x/sys knows only those of the first versions.
const (
	execute = 1 << iota
	writeFile
	readFile
	readDir
	removeDir
	removeFile
	makeChar
	makeDir
	makeReg
	makeSock
	makeFifo
	makeBlock
	makeSym
	refer    // version 2
	truncate // version 3
	ioctlDev // version 5
)

const (
	bindTCP    = 1 << 0
	connectTCP = 1 << 1

	scopeSockets = 1 << 0
	scopeSignals = 1 << 1

	ruleFile = 1
	rulePort = 2
)

const (
	readWrite = execute | writeFile | readFile | readDir | removeDir | removeFile | makeDir | makeReg |
		makeSock | makeFifo | makeSym | refer | truncate | ioctlDev
	// ofFiles are the rights that a rule for a file may name; a rule for a directory may name more.
	ofFiles = execute | writeFile | readFile | truncate | ioctlDev
)

// rights are the rights of each Access, in the newest version.
var rights = [...]uint64{
	ReadExec:   execute | readFile | readDir,
	ReadOnly:   readFile | readDir,
	WriteFile:  execute | readFile | readDir | writeFile | truncate | ioctlDev,
	ReadWrite:  readWrite,
	Everything: readWrite | makeChar | makeBlock,
}

// rulesetAttr, pathAttr and portAttr are the kernel's structures. The kernel's pathAttr is packed.
// The padding of ours lies after the part that the kernel reads.
type (
	rulesetAttr struct{ fs, net, scoped uint64 }
	pathAttr    struct {
		allowed uint64
		parent  int32
	}
	portAttr struct{ allowed, port uint64 }
)

// ABI is the version of the running kernel's Landlock; 0 when it has none or it is off.
func ABI() int {
	const versionFlag = 1
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, versionFlag)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// Restrict applies r to the calling thread, as far as the kernel's ABI allows. It returns, in
// words, the parts of r that this kernel can't do. The thread must be locked and have no_new_privs
// (or CAP_SYS_ADMIN). Programs that the thread executes or starts later are restricted too; the
// other threads of the process are not. Restrict opens the paths now, as the caller sees them.
func Restrict(r Ruleset) (missing []string, err error) {
	attr, missing := plan(r, ABI())
	if attr == (rulesetAttr{}) {
		return missing, nil
	}
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return missing, fmt.Errorf("landlock: make a ruleset: %w", errno)
	}
	fd := int(n)
	defer unix.Close(fd)
	if attr.fs != 0 {
		for _, rule := range r.Rules {
			if err := addPath(fd, rule, attr.fs); err != nil {
				return missing, err
			}
		}
	}
	if attr.net != 0 {
		if err := addPorts(fd, r); err != nil {
			return missing, err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0); errno != 0 {
		return missing, explain(errno)
	}
	return missing, nil
}

// explain explains the errors of the last step.
func explain(errno unix.Errno) error {
	switch errno {
	case unix.EPERM:
		return fmt.Errorf("landlock: restrict this thread: %w (it needs no_new_privs first)", errno)
	case unix.E2BIG:
		return fmt.Errorf("landlock: restrict this thread: %w (16 boxes lie within one another already, the kernel's limit)", errno)
	}
	return fmt.Errorf("landlock: restrict this thread: %w", errno)
}

// plan returns the parts of r that a kernel with this version handles, and the parts that it can't.
func plan(r Ruleset, abi int) (a rulesetAttr, missing []string) {
	lack := func(asked bool, since int, what string) bool {
		if asked && abi < since {
			missing = append(missing, what)
		}
		return asked && abi >= since
	}
	if lack(r.Files, 1, "Landlock (Linux 5.13, in the list lsm= of the kernel) to restrict files") {
		a.fs = rights[Everything]
		if !lack(true, 2, "Landlock 2 (Linux 5.19) to allow moving and linking files between directories") {
			a.fs &^= refer
		}
		if r.Writing {
			a.fs &^= execute | readFile | readDir | truncate
		} else if !lack(true, 3, "Landlock 3 (Linux 6.2) to restrict truncating files") {
			a.fs &^= truncate
		}
		if !lack(true, 5, "Landlock 5 (Linux 6.10) to restrict ioctls of devices") {
			a.fs &^= ioctlDev
		}
	}
	if lack(r.TCP, 4, "Landlock 4 (Linux 6.7) to restrict TCP") {
		a.net = bindTCP | connectTCP
	}
	if lack(r.ScopeSockets, 6, "Landlock 6 (Linux 6.12) to close abstract Unix sockets outside") {
		a.scoped |= scopeSockets
	}
	if lack(r.ScopeSignals, 6, "Landlock 6 (Linux 6.12) to keep signals inside") {
		a.scoped |= scopeSignals
	}
	return a, missing
}

// addPath allows a rule's access. It leaves out rights that are not in handled.
func addPath(ruleset int, rule Rule, handled uint64) error {
	if rule.Access < 0 || int(rule.Access) >= len(rights) {
		return fmt.Errorf("landlock: rule for %q: no such access: %d", rule.Path, rule.Access)
	}
	fd, err := open(rule.Path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
		return nil
	case err != nil:
		return &os.PathError{Op: "landlock: open", Path: rule.Path, Err: err}
	}
	defer unix.Close(fd)
	allowed := rights[rule.Access] & handled
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "landlock: stat", Path: rule.Path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		allowed &= ofFiles
	}
	if allowed == 0 {
		return nil
	}
	attr := pathAttr{allowed: allowed, parent: int32(fd)}
	if err := addRule(ruleset, ruleFile, unsafe.Pointer(&attr)); err != nil {
		return &os.PathError{Op: "landlock: allow", Path: rule.Path, Err: err}
	}
	return nil
}

// open opens a path as O_PATH. So opening a fifo or device has no effect on it.
func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// addPorts allows the TCP ports.
func addPorts(ruleset int, r Ruleset) error {
	for _, l := range []struct {
		right uint64
		verb  string
		ports []uint16
	}{{connectTCP, "connect to", r.Connect}, {bindTCP, "bind", r.Bind}} {
		for _, p := range l.ports {
			attr := portAttr{allowed: l.right, port: uint64(p)}
			if err := addRule(ruleset, rulePort, unsafe.Pointer(&attr)); err != nil {
				return fmt.Errorf("landlock: allow to %s port %d: %w", l.verb, p, err)
			}
		}
	}
	return nil
}

func addRule(ruleset int, kind uintptr, attr unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), kind, uintptr(attr), 0, 0, 0)
	runtime.KeepAlive(attr)
	if errno != 0 {
		return errno
	}
	return nil
}
