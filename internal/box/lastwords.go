//go:build linux

package box

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A stage that crashes can't report it on the standard streams: they belong to the command, and the
// stage closes them once it runs. So Go's runtime also writes its crash report to a memory file,
// which this package reads when the box ends without a reason.

// maxLastWords bounds the crash report, in bytes.
const maxLastWords = 8 << 10

// newLastWords makes the memory file. It can't grow.
func newLastWords() (int, error) {
	fd, err := unix.MemfdCreate("last words", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, maxLastWords); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memory for last words: %w", err)
	}
	return fd, nil
}

// keepLastWords makes the runtime write its crash report to the memory file. It runs in the stage.
// The command does not get the descriptor.
func keepLastWords() {
	f := os.NewFile(wordsFD, "last words")
	_ = debug.SetCrashOutput(f, debug.CrashOptions{}) // has a copy of its own
	_ = f.Close()
}

// wordless returns the error for a stage that ended without giving a reason.
func (b *Box) wordless(ws syscall.WaitStatus) error {
	how := "exit " + strconv.Itoa(ws.ExitStatus())
	if ws.Signaled() {
		how = ws.Signal().String()
	}
	said := make([]byte, maxLastWords)
	n, _ := unix.Pread(b.words, said, 0)
	said = bytes.TrimSpace(bytes.TrimRight(said[:max(n, 0)], "\x00"))
	if len(said) == 0 {
		return fmt.Errorf("its first process ended without a word: %s", how)
	}
	return fmt.Errorf("its first process crashed: %s: %s", how, said)
}
