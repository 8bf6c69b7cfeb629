// Package given knows the limit on open files that this process was given. Package syscall
// raises it before any program of ours runs, and gives it back only to children that it
// starts itself. So this package imports nothing: what imports nothing, and has a path
// that comes early, is initialised before package syscall.
package given

// Limit is a resource limit, as the kernel has it.
type Limit struct{ Soft, Hard uint64 }

// OpenFiles is the limit on open files; zero if the kernel did not tell.
var OpenFiles = func() (l Limit) {
	getOpenFiles(&l)
	return l
}()

// getOpenFiles is getrlimit(RLIMIT_NOFILE, l).
//
//go:noescape
func getOpenFiles(l *Limit)
