//go:build linux

// Package handover is the small program's half of package early.
package handover

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/run"
)

// Names in argv[0], the same as in package early. That package can't be imported: it contains the
// small program, which would then contain itself.
const (
	small = "carrel-run"
	whole = "carrel-whole"
)

// Run runs "carrel run", if this process was started for that, and ends the process. Otherwise it
// returns false.
func Run() bool {
	if os.Args[0] != small || len(os.Args) < 2 {
		return false
	}
	back, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return false
	}
	syscall.CloseOnExec(back)
	// A box's runner needs little memory, and a short one needs no collection.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	args := os.Args[2:]
	// This program is its own stage. It is in memory, or where no box can write.
	all := func() (*os.File, error) { return again(back) }
	if code, done := run.Quick(args, self, all); done {
		os.Exit(code)
	}
	err = syscall.Exec("/proc/self/fd/"+strconv.Itoa(back), append([]string{whole, "run"}, args...), os.Environ())
	fmt.Fprintf(os.Stderr, "carrel: start the whole program: %v\n", err)
	os.Exit(125)
	return true
}

// again is another descriptor of the same file.
func again(fd int) (*os.File, error) {
	more, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(more), "the whole program"), nil
}

// self opens this program.
func self() (*os.File, error) { return os.Open("/proc/self/exe") }
