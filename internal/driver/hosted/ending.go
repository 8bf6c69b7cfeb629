//go:build linux

package hosted

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Ending collects a driver's knowledge of a sandbox's end.
type Ending struct {
	Killed bool   // the service asked for it
	Status string // of the first process, if it was our child
	// First is the name of the first process: "the sandbox's kernel".
	First string
	// Events are the control group's. The driver must read them while the group exists.
	Events cgroup.Events
	// OverMemory says that a [MemoryGuard] ended the sandbox.
	OverMemory bool
	MemoryMB   int
	// PidsReached is the message when the control group refused a process.
	PidsReached string
	// Words returns the sandbox's last output. It is not called after an end that the service asked
	// for.
	Words func() string
}

// Exit returns the reason of a sandbox's end. It is called when the sandbox ends.
func (e Ending) Exit() driver.Exit {
	x := driver.Exit{Time: time.Now().UTC()}
	if e.Killed {
		x.Reason, x.Message = carrel.EndKilled, "destroyed"
		return x
	}
	if e.OverMemory || e.Events.OOMKills > 0 {
		x.Reason, x.Message = carrel.EndOutOfMemory, MemoryReached(e.MemoryMB)+": give the sandbox more memory"
		return x
	}
	parts := []string{e.First + " ended"}
	if e.Status != "" {
		parts[0] += " (" + e.Status + ")"
	}
	if e.Events.PidsMax > 0 {
		parts = append(parts, e.PidsReached)
	}
	if text := e.Words(); text != "" {
		parts = append(parts, text)
	}
	x.Reason, x.Message = carrel.EndCrashed, strings.Join(parts, ": ")
	return x
}

// MemoryReached is the message that names the memory limit.
func MemoryReached(mb int) string { return fmt.Sprintf("the memory limit of %d MiB was reached", mb) }

// OutOfMemory is the error for a sandbox that reached its limit before it was ready.
func OutOfMemory(mb int, err error) error {
	return &carrel.Error{Kind: carrel.Exhausted, Err: fmt.Errorf("%s: %w", MemoryReached(mb), err), Hint: "give it more memory"}
}

// MaxWords bounds the part of a log that goes into a message, in bytes.
const MaxWords = 1 << 10

// maxGuestLog bounds the log of the guest's standard error, in bytes.
const maxGuestLog = 64 << 10

// NewGuestLog returns a memory file for the guest's standard error, where it reports why it can't
// start. Its size is sealed. Through an ordinary file the sandbox could fill the host's disk, by
// way of /proc/1/fd/2.
func NewGuestLog() (_ *os.File, err error) {
	const name = "guest-stderr"
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = f.Truncate(maxGuestLog); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
		err = os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// GuestWords returns the end of a guest's log; "" if there is no log, as after Recover. The sealed
// file has its full size from the start, with zeros after the text.
func GuestWords(log *os.File) string {
	if log == nil {
		return ""
	}
	b := make([]byte, maxGuestLog)
	n, _ := log.ReadAt(b, 0)
	if i := bytes.IndexByte(b[:n], 0); i >= 0 {
		n = i
	}
	return lastLines(b[:n])
}

// lastLines returns the end of b, from the start of a line.
func lastLines(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) > MaxWords {
		b = b[len(b)-MaxWords:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return string(b)
}
