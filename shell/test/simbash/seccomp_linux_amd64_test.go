package simbash

import "golang.org/x/sys/unix"

// deadlyHere are the older variants of the deadly calls.
var deadlyHere = []uintptr{unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_RENAME, unix.SYS_MKDIR,
	unix.SYS_MKNOD, unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_STAT,
	unix.SYS_LSTAT, unix.SYS_GETDENTS, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_ACCEPT, unix.SYS_PIPE, unix.SYS_DUP2, unix.SYS_USELIB}
