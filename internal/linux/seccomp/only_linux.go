package seccomp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// InstallOnly allows this whole process, with all its threads, only the named calls. Of clone it
// allows only making threads, and of socketpair only Unix sockets. Every other call fails with
// EPERM. clone3 fails with ENOSYS, because the filter can't read its arguments. The process must
// have no_new_privs.
func InstallOnly(names ...string) error {
	code, err := only(names)
	if err != nil {
		return err
	}
	if _, errno := install(code, unix.SECCOMP_FILTER_FLAG_TSYNC); errno != 0 {
		return fmt.Errorf("seccomp: install the filter: %w", errno)
	}
	return nil
}

// only compiles a list of allowed calls.
func only(names []string) ([]unix.SockFilter, error) {
	var plain []uint32
	for _, name := range names {
		n, ok := number(name)
		if !ok {
			return nil, fmt.Errorf("seccomp: there is no system call %q here", name)
		}
		if n != unix.SYS_CLONE && n != unix.SYS_SOCKETPAIR {
			plain = append(plain, uint32(n))
		}
	}
	p := &program{returns: map[uint32]label{}}
	no, yes := p.ret(fail(unix.EPERM)), p.ret(unix.SECCOMP_RET_ALLOW)
	next := p.oneOf(plain, yes, no)
	next = p.jump(unix.BPF_JEQ, unix.SYS_CLONE3, p.ret(fail(unix.ENOSYS)), next)
	if slices.Contains(names, "socketpair") {
		yes := p.ret(unix.SECCOMP_RET_ALLOW)
		local := p.arg(0, p.jump(unix.BPF_JEQ, unix.AF_UNIX, yes, p.ret(fail(unix.EPERM))))
		next = p.jump(unix.BPF_JEQ, unix.SYS_SOCKETPAIR, local, next)
	}
	if slices.Contains(names, "clone") {
		const thread, apart = unix.CLONE_THREAD | unix.CLONE_VM, unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET
		yes := p.ret(unix.SECCOMP_RET_ALLOW)
		same := p.arg(0, p.and(thread|apart, p.jump(unix.BPF_JEQ, thread, yes, p.ret(fail(unix.EPERM)))))
		next = p.jump(unix.BPF_JEQ, unix.SYS_CLONE, same, next)
	}
	next = p.load(offNumber, next)
	p.load(offArch, p.jump(unix.BPF_JEQ, arch, next, p.ret(unix.SECCOMP_RET_KILL_PROCESS)))
	return p.instructions(), nil
}
