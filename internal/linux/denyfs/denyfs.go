// Package denyfs is a filesystem whose every file and directory refuses, and says
// what was asked of it.
//
// A box hides a secret by laying something else over it. With this filesystem
// (FUSE, which user namespaces may mount) the kernel tells who touched it and below which name, so that
// the refusal can be reported; programs get EACCES. Where /dev/fuse can't be opened, a box
// lays an empty tmpfs without permissions over it, and nobody learns of the attempts.
//
// The root directory has one entry for each mask: "0", "1", …; a mask of a directory is a directory and
// of a file a file. The box bind-mounts each over what it hides.
package denyfs

import "os"

// Mask is one thing that is hidden.
type Mask struct {
	Path string // what it lies over, for the report
	Dir  bool
}

// Touch is one attempt.
type Touch struct {
	Mask int    // index
	Path string // the mask's path, and below it what was asked for
	Op   string // "open", "list", "look up", "stat"
	PID  int    // in the pid namespace of whoever opened the descriptor; 0 if unknown
}

// Server answers the kernel.
type Server struct{}

// Open opens /dev/fuse for a mount by the calling process (or one that it hands the
// descriptor to). Error: Unsupported, with the reason.
func Open() (*os.File, error) { panic("not built") }

// Mount mounts the filesystem of an open descriptor at dir, in the caller's mount namespace. It returns before
// anybody serves it.
func Mount(dev *os.File, dir string) error { panic("not built") }

// Serve answers the kernel until the filesystem is unmounted (its namespace has ended). touched must not block. It starts at once
// and Close waits for its end.
func Serve(dev *os.File, masks []Mask, touched func(Touch)) *Server { panic("not built") }

// Close ends it; later operations on the mount fail.
func (s *Server) Close() error { panic("not built") }
