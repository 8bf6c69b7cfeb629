package gvisor

import (
	"errors"
	"os"
	"strconv"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"golang.org/x/sys/unix"
)

// program is the binary that the driver's processes run, open: they are started by its descriptor, so neither its being
// replaced on disk nor a directory that only we may search is in their way.
type program struct {
	file *os.File
	path string // by its descriptor, in whoever has it
	null *os.File
}

// leastProgram is the least number of the program's descriptor: more than a new process has files, and so much that its table of them has
// room for those that a sentry opens (see package spawn).
const leastProgram = 200

// openProgram opens a program.
//
// In a process that is about to become it, Go's runtime moves files to numbers above the highest that it was told of, before it
// puts them where they belong. null, which every start passes on, has a higher number than the program, so that this one
// stays what it is.
func openProgram(name string) (*program, error) {
	p := &program{}
	var err error
	if p.file, err = openAbove(name, os.O_RDONLY, leastProgram); err != nil {
		return nil, err
	}
	p.path = "/proc/self/fd/" + strconv.Itoa(int(p.file.Fd()))
	if p.null, err = openAbove(os.DevNull, os.O_RDWR, int(p.file.Fd())+1); err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

// openAbove opens a file at a number that is not less than least.
func openAbove(name string, flags, least int) (*os.File, error) {
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, least)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// files are the descriptors of a process from 0 on: stdin is null.
func (p *program) files(rest ...*os.File) ([]*os.File, error) {
	if 1+len(rest) >= leastProgram {
		return nil, errors.New("too many files for one process")
	}
	return append([]*os.File{p.null}, rest...), nil
}

func (p *program) close() { hosted.CloseAll(p.file, p.null) }
