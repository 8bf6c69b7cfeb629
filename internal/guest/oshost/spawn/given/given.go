// Package given knows the limit on open files that this process was given. Package syscall raises
// the limit before any other code runs, and restores it only for children that it starts itself. So
// package given must be initialised before package syscall. Go does that because it imports nothing
// and its path sorts early.
package given

// Limit is a resource limit, as the kernel has it.
type Limit struct{ Soft, Hard uint64 }

// OpenFiles is the limit on open files; zero if the kernel did not return it.
var OpenFiles = func() (l Limit) {
	getOpenFiles(&l)
	return l
}()

// getOpenFiles is getrlimit(RLIMIT_NOFILE, l).
//
//go:noescape
func getOpenFiles(l *Limit)
