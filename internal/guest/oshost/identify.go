package oshost

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockSlack is how wrong the clock may be before Identify sets it. Requests take
// time to arrive; a restored snapshot is late by minutes.
const clockSlack = time.Second

// Identify gives the machine its name and sets its clock. It does as much as it
// can: a kernel that refuses one part (gVisor has the host's clock and lets
// nobody set it) still gets the others.
func (s *System) Identify(hostname string, now time.Time) error {
	if !s.opt.Own {
		return nil
	}
	var errs []error
	if hostname != "" {
		// Whoever built the sandbox may have named it, and kept the right to.
		if now, err := os.Hostname(); err != nil || now != hostname {
			errs = append(errs, os.NewSyscallError("sethostname", unix.Sethostname([]byte(hostname))))
		}
		errs = append(errs, nameInFiles(hostname))
	}
	if drift := time.Until(now).Abs(); !now.IsZero() && drift > clockSlack {
		ts := unix.NsecToTimespec(now.UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
			errs = append(errs, os.NewSyscallError("clock_settime", err))
		}
	}
	return errors.Join(errs...)
}

// hostsHead is what /etc/hosts begins with. The first line of the second group
// carries the machine's own name, as Debian has it.
const hostsHead = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// ownAddress marks the line of /etc/hosts that is ours.
const ownAddress = "127.0.1.1\t"

// nameInFiles writes the name where programs look for it.
func nameInFiles(hostname string) error {
	return errors.Join(
		writePlain("/etc/hostname", hostname+"\n", 0o644),
		replaceOwnName("/etc/hosts", hostname),
	)
}

// replaceOwnName puts the machine's name into a hosts file and leaves all other
// lines as they are.
func replaceOwnName(file, hostname string) error {
	old, err := readPlain(file)
	if err != nil || len(old) == 0 {
		old = []byte(hostsHead)
	}
	var b strings.Builder
	for line := range strings.Lines(string(old)) {
		if !strings.HasPrefix(line, ownAddress) {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	b.WriteString(ownAddress + hostname + "\n")
	if b.String() == string(old) {
		return nil
	}
	return writePlain(file, b.String(), 0o644)
}
