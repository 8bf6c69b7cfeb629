// Package denyfs is a filesystem that refuses every access to its files and directories, and
// reports each attempt.
//
// A box hides a secret by mounting something else over it. With this filesystem (FUSE, which user
// namespaces may mount) the kernel tells which process touched it and below which name, so that the
// box can report the refusal. Programs get EACCES. If /dev/fuse can't be opened, a box mounts an
// empty tmpfs without permissions instead, and nobody learns of the attempts.
//
// # The story
//
// The root directory has one entry for each mask: "0", "1", … A mask over a directory is a
// directory, and a mask over a file is a file. The stage of a box, in its user namespace, calls
// [Open] and [Mount], and hands the descriptor to a process outside, which calls [Serve]. Then the
// stage bind-mounts each entry over the path that it hides; the first of these calls waits for
// Serve. The stage closes its own copy of the descriptor. When the last copy is closed, a program
// that still touches a mask gets an error instead of waiting.
//
// Listing a directory that contains a mask, or stat of the mask itself, is no touch: after the
// first time the kernel alone answers it. "ls -l" shows a name without permissions.
//
// # Threat
//
// Every request comes from the hostile side. Each request costs at most one read, one lookup in a
// table and one write. The caller waits until then, and no state is kept for it. Names are
// arbitrary bytes. The kernel does not check the permissions, so capabilities don't help.
package denyfs

// Mask is one hidden path.
type Mask struct {
	Path string // the path that it hides, for the report
	Dir  bool
}

// Touch is one attempt.
type Touch struct {
	Mask int    // index
	Path string // the mask's path, and the requested name below it
	Op   string // "open", "list", "look up" of a name below, "stat" (access, chdir), "change" (of mode, owner, times, size, attributes)
	PID  int    // thread, in the mounter's pid namespace; 0 if not in there
}
