package seccomp

import "golang.org/x/sys/unix"

// arch marks the calls of this architecture.
const arch = unix.AUDIT_ARCH_X86_64
