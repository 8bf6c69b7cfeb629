// Package gvisor builds walls with gVisor: a second kernel, written in Go, that serves every system
// call of the sandbox in a process of its own.
//
// # One sandbox, one process
//
// [Driver.Create] starts one sentry (gVisor's kernel) from our own binary and hands it everything
// it may ever use as open file descriptors: the template and the guest as EROFS images, an empty
// file for what the sandbox writes, one end of a socket pair as its only network link, and a
// control socket. No helper process ("gofer") reads files for it, no state file is kept, and
// nothing on the host is configured: no mount, no route, no bridge.
//
// The sentry lives in new user, pid, mount, network, ipc and uts namespaces, in an empty root,
// without any capability, under gVisor's system call filter, in a control group of its own. As root
// every sandbox has a host uid of its own; without root it is the caller's uid, in a namespace
// where that is "nobody".
//
// A few sentries are started before there is a sandbox for them, and get all of that in one message
// later: see blankBoot and blanks.
//
// # Limits
//
// The control group bounds memory, processor and host tasks. An ordinary user mostly may not make
// control groups. Then the driver watches the memory itself, a few times a second, and ends a
// sandbox that passes its limit as out of memory; the processor is not bounded. The sentry bounds
// disk and the processes inside on every host. Report lists the limits that are missing on this
// host.
//
// # Life
//
// Destroy kills the sentry, which is the first process of its pid namespace. The kernel then kills
// all others and reports the death when they are gone. The keeper, too, holds the daemon's end of
// the link, so that Recover can adopt the sandbox after the daemon died.
//
// # Time
//
// A snapshot is a set of files that the driver opens and the sentry writes, and carrel.json, which
// names the images that they depend on. The sentry is never told to end after a snapshot. A
// restored sandbox starts like a fresh one, but then loads a state instead of starting a guest. Its
// pages come in while it already runs: one thread of low priority in the sentry reads them, and the
// pages that a task waits for come first. Some limits are part of the state inside, and come back
// with it.
//
// A snapshot of files is made from one with memory, by a process that decodes the sentry's state
// and is as confined as a sandbox. The process that makes tar streams is confined in the same way.
// The daemon itself reads only carrel.json.
//
// # Threats
//
// The code in the sandbox is hostile, and so is a sentry that it took over. The code sees only what
// the sentry serves: no host file, socket or device, no raw socket. The sentry holds the file
// descriptors above and nothing else; its uid owns no file and can signal no other process. A
// hostile sentry can still use up what its control group allows, fill its disk file, and attack the
// host kernel through the filtered system calls.
//
// # Locks
//
// Instance.mu guards only the reason of an end; nothing is called under it.
package gvisor
