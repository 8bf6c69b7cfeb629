package gvisor

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// program is the binary of the driver's processes, opened once. They are started through its
// descriptor. So replacing the binary on disk changes nothing, and only we need access to its
// directory.
type program struct {
	file *os.File
	path string // through its descriptor, valid in each process that has it
	null *os.File
	info os.FileInfo // when it was opened
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
	if p.info, err = p.file.Stat(); err != nil {
		p.file.Close()
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

// whole returns an error if somebody has written into the program since it was opened. It compares
// the file's size and time of change.
func (p *program) whole() error {
	now, err := p.file.Stat()
	if err != nil {
		return err
	}
	if now.Size() == p.info.Size() && now.ModTime().Equal(p.info.ModTime()) {
		return nil
	}
	return &carrel.Error{Kind: carrel.Unavailable,
		Err: fmt.Errorf("the program of sandboxes' kernels, %s, was changed: it may be damaged",
			p.file.Name()),
		Hint: "restart the daemon: it checks the program, and unpacks it again"}
}

// files returns the descriptors of a process from 0 on. Its stdin is null.
func (p *program) files(rest ...*os.File) ([]*os.File, error) {
	if 1+len(rest) >= leastProgram {
		return nil, errors.New("too many files for one process")
	}
	return append([]*os.File{p.null}, rest...), nil
}

func (p *program) close() { hosted.CloseAll(p.file, p.null) }
