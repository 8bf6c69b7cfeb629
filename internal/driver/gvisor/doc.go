// Package gvisor builds walls with gVisor: a second kernel, written in Go, that
// serves every system call of the sandbox in a process of its own.
//
// # One sandbox, one process
//
// [Driver.Create] starts one sentry (gVisor's kernel) from our own binary and
// hands it everything it may ever use as open file descriptors: the template and
// the guest as EROFS images, an empty file for what the sandbox writes, one end of
// a socket pair as its only network link, and a control socket. No helper process
// ("gofer") reads files for it, no state file is kept, and nothing on the host is
// configured: no mount, no route, no bridge.
//
// The sentry lives in new user, pid, mount, network, ipc and uts namespaces, in
// an empty root, without any capability, under gVisor's system call filter, in a
// control group of its own. As root every sandbox has a host uid of its own;
// without root it is the caller's uid, in a namespace where that is "nobody".
//
// A few sentries are started before there is a sandbox for them, and get all of that in one message later: see blankBoot and blanks.
//
// # Limits
//
// The control group bounds memory, processor and host tasks. Where none may be made,
// as an ordinary user mostly may not, the driver watches the memory itself, a few
// times a second, and ends a sandbox that passes its limit as out of memory; the
// processor is then not bounded. Disk and the processes inside are bounded by the
// sentry, everywhere. Report says what is missing on this host.
//
// # Life
//
// Destroy kills the sentry, which is the first process of its pid namespace: the
// kernel then kills all others and reports the death when they are gone. The
// daemon's end of the link is also held by the keeper, so that Recover can adopt
// the sandbox after the daemon died.
//
// # Time
//
// A snapshot is what the sentry writes into files that the driver opens for it,
// and carrel.json, which says what they lie on. The sentry is never told to end
// after one. A restored sandbox is started like a fresh one and then loads a state
// in place of starting a guest; its pages come in while it already runs, read by one
// thread of low priority in the sentry itself, those that are waited for first.
// Limits that are part of what runs inside come back with it.
//
// A snapshot of files is made of one with memory, by a process that decodes the
// sentry's state and is as confined as a sandbox; so is the process that makes tar
// streams. The daemon itself reads carrel.json only.
//
// # Threats
//
// The code in the sandbox is hostile, and so is a sentry it took over. The first
// sees only what the sentry serves: no host file, socket or device, no raw
// socket. The second holds the file descriptors above and nothing else; its uid
// owns no file and can signal no other process. What it can still do is use up
// what its control group allows, fill its disk file, and attack the host kernel
// through the filtered system calls.
//
// # Locks
//
// Instance.mu guards the reason of an end only; nothing is called under it.
package gvisor
