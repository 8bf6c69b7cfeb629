// Package denyfs is a filesystem whose every file and directory refuses, and says
// what was asked of it.
//
// A box hides a secret by laying something else over it. With this filesystem
// (FUSE, which user namespaces may mount) the kernel tells who touched it and below which name, so that
// the refusal can be reported; programs get EACCES. Where /dev/fuse can't be opened, a box
// lays an empty tmpfs without permissions over it, and nobody learns of the attempts.
//
// # The story
//
// The root directory has one entry for each mask: "0", "1", …; a mask of a directory is a directory and
// of a file a file. The stage of a box, in its user namespace, calls [Open] and [Mount], hands the
// descriptor to a process outside, which calls [Serve], and bind-mounts each entry over
// what it hides: the first of these waits for Serve. It closes its own copy of
// the descriptor: when the last one is closed, whoever still touches a mask gets an error instead of waiting.
//
// Listing a directory that holds a mask, or stat of the mask itself, is answered by the kernel alone after the first time, and is no
// touch: "ls -l" shows a name without permissions.
//
// # Threat
//
// Every request comes from the hostile side. None is worth more than one read, one lookup
// in a table and one write; the caller waits meanwhile, and no state is kept of it. Names are whatever bytes a program
// likes. The permissions are not the kernel's to check: capabilities don't help.
package denyfs

// Mask is one thing that is hidden.
type Mask struct {
	Path string // what it lies over, for the report
	Dir  bool
}

// Touch is one attempt.
type Touch struct {
	Mask int    // index
	Path string // the mask's path, and below it what was asked for
	Op   string // "open", "list", "look up" of a name below, "stat" (access, chdir), "change" (of mode, owner, times, size, attributes)
	PID  int    // thread, in the pid namespace of whoever mounted it; 0 if it is not in there
}
