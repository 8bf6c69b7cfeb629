package gvisor

import (
	"errors"
	"os"
	"strconv"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"golang.org/x/sys/unix"
)

// program is the binary of the driver's processes, opened once. They are started through its
// descriptor. So replacing the binary on disk changes nothing, and only we need access to its
// directory.
type program struct {
	file *os.File
	path string // through its descriptor, valid in each process that has it
	null *os.File
}

// leastProgram is the least number of the program's descriptor. It is higher than the number of
// files of a new process. It also makes the process's descriptor table so big that the files which
// a sentry opens later fit in (see package spawn).
const leastProgram = 200

// openProgram opens a program.
//
// Before an exec, Go's runtime in the new process first moves the files to numbers above the
// highest one that it was told of, and then puts them in their places. The program's descriptor
// must keep its number during that. So null, which is passed to every start, has a higher number
// than the program.
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

// openAbove opens a file with a descriptor of at least the number least.
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

// files returns the descriptors of a process from 0 on. Its stdin is null.
func (p *program) files(rest ...*os.File) ([]*os.File, error) {
	if 1+len(rest) >= leastProgram {
		return nil, errors.New("too many files for one process")
	}
	return append([]*os.File{p.null}, rest...), nil
}

func (p *program) close() { hosted.CloseAll(p.file, p.null) }
