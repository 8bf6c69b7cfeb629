package seccomp

import "golang.org/x/sys/unix"

// arch is the mark of this architecture's calls.
const arch = unix.AUDIT_ARCH_X86_64
