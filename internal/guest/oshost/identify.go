package oshost

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockSlack is the error of the clock that Identify tolerates. A request may be seconds old when it
// arrives, on a busy host. After a restore the clock may be late by days.
const clockSlack = 10 * time.Second

// Identify sets the machine's name and clock. It does as much as it can. If the kernel refuses one
// part, it still does the others (gVisor uses the host's clock, and nobody can set it).
func (s *System) Identify(hostname string, now time.Time) error {
	if !s.opt.Own {
		return nil
	}
	var errs []error
	if hostname != "" {
		// The builder of the sandbox may have set the name already and kept the right to do so.
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

// hostsHead is the beginning of /etc/hosts. The first line after it holds the machine's own name,
// as in Debian.
const hostsHead = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// ownAddress marks our line in /etc/hosts.
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
