package shell

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tool"
)

// Options describe a new machine. The zero value is a machine with the usual programs, sensible
// limits and no network.
type Options struct {
	// Programs are functions of the caller, by the name that scripts use. They replace the
	// machine's own programs of the same name. Each appears as a file in /usr/local/bin.
	Programs map[string]Program
	// Commands are programs written against package tool, such as those that codemode makes. They
	// are used like Programs.
	Commands map[string]tool.Command
	// Env is the environment of every script, as NAME=value. It is added to HOME, USER, LOGNAME,
	// SHELL, LANG and PATH.
	Env []string
	// User is the user that runs the scripts; "" is "user". New gives it the number 1000 and the
	// home /home/NAME. "root" exists already.
	User string
	// Hostname is the machine's name; "" is "sim".
	Hostname string
	// CPUs is the number that nproc prints; 0 is 1.
	CPUs int
	// HTTP sends the requests of curl, wget, git and others. With nil, the machine has no network.
	// Package outside has an implementation.
	HTTP tool.HTTP
	// Now is the machine's clock; nil is time.Now.
	Now func() time.Time
	// Seed makes the machine deterministic: the same scripts write the same bytes. Its clock begins
	// at a fixed time. The clock moves only while scripts sleep, and sleeping takes no real time.
	// Random numbers and process numbers follow from the seed. Processes run one at a time. Now
	// must be nil.
	Seed *uint64
	// Limits bound what scripts use.
	Limits Limits
}

// Unlimited removes a bound: it is a value for a field of [Limits].
const Unlimited = -1

// Limits bound what scripts use. A field that is 0 has the value of [DefaultLimits]. [Unlimited] is
// no bound.
type Limits struct {
	Steps     int64         // of one script and all its processes; a step is about a hundred nanoseconds
	Memory    int64         // bytes that all processes hold together; files are not counted
	Output    int64         // bytes that one script and all its processes write to its streams
	Time      time.Duration // of one script
	Processes int           // at once
	OpenFiles int           // of one process; Unlimited is 1024 here too
	Disk      int64         // bytes written, beyond those of a new machine
	Files     int64         // files made, beyond those of a new machine
	FileSize  int64         // bytes of one file, holes included
	Depth     int           // calls within calls: functions, substitutions, scripts; Unlimited is 512 here too
}

// DefaultLimits returns the bounds that a machine with zero Limits has. Time is not bounded: the
// context ends a script that waits.
func DefaultLimits() Limits {
	return Limits{Steps: 10_000_000_000, Memory: 512 << 20, Output: 256 << 20, Time: Unlimited, Processes: 512, OpenFiles: 1024,
		Disk: 1 << 30, Files: 1_000_000, FileSize: 1 << 30, Depth: 512}
}

// filled returns the limits with defaults for zero fields, or an error that names the wrong field.
func (l Limits) filled() (Limits, error) {
	d := DefaultLimits()
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Steps", l.Steps}, {"Memory", l.Memory}, {"Output", l.Output}, {"Time", int64(l.Time)}, {"Processes", int64(l.Processes)},
		{"OpenFiles", int64(l.OpenFiles)}, {"Disk", l.Disk}, {"Files", l.Files}, {"FileSize", l.FileSize}, {"Depth", int64(l.Depth)},
	} {
		if f.value < Unlimited {
			return l, optionError("Limits."+f.name, fmt.Errorf("%d is neither a bound nor Unlimited", f.value))
		}
	}
	// In the packages below, 0 is no bound.
	return Limits{Steps: bound(l.Steps, d.Steps), Memory: bound(l.Memory, d.Memory), Output: bound(l.Output, d.Output), Time: bound(l.Time, d.Time),
		Processes: bound(l.Processes, d.Processes), OpenFiles: bound(l.OpenFiles, d.OpenFiles), Disk: bound(l.Disk, d.Disk),
		Files: bound(l.Files, d.Files), FileSize: bound(l.FileSize, d.FileSize), Depth: bound(l.Depth, d.Depth)}, nil
}

// bound converts a limit to the form of the packages below, where 0 is no bound.
func bound[T ~int | ~int64](given, otherwise T) T { return max(cmp.Or(given, otherwise), 0) }

// interp returns the limits that the interpreter keeps.
func (l Limits) interp() interp.Limits {
	return interp.Limits{Procs: l.Processes, Memory: l.Memory, Output: l.Output, Steps: l.Steps, Depth: l.Depth, FDs: l.OpenFiles, Wall: l.Time}
}

// optionError is an Error that New returns.
func optionError(field string, err error) error {
	return &Error{Op: "make a machine", Field: field, Err: err}
}

// checked returns the options with defaults for zero fields. It copies maps and lists, so that the
// caller may change its own.
func (o Options) checked() (Options, error) {
	var err error
	if o.Limits, err = o.Limits.filled(); err != nil {
		return o, err
	}
	if o.Seed != nil && o.Now != nil {
		return o, optionError("Now", errors.New("a machine with a Seed has a clock of its own"))
	}
	o.User, o.Hostname = cmp.Or(o.User, defaultUser), cmp.Or(o.Hostname, "sim")
	if !isUserName(o.User) {
		return o, optionError("User", fmt.Errorf("%.80q is not a user's name: small letters, digits, _ and -, at most 32", o.User))
	}
	if !isHostname(o.Hostname) {
		return o, optionError("Hostname", fmt.Errorf("%.80q is not a host's name: letters, digits, - and ., at most 64", o.Hostname))
	}
	if err := checkEnv(o.Env); err != nil {
		return o, optionError("Env", err)
	}
	o.Env = append(baseEnv(o.User), o.Env...)
	if o.CPUs < 0 {
		return o, optionError("CPUs", fmt.Errorf("%d is not a number of processors", o.CPUs))
	}
	o.Commands, err = o.programs()
	o.Programs = nil
	return o, err
}

// programs returns Programs and Commands as one table.
func (o Options) programs() (map[string]tool.Command, error) {
	all := make(map[string]tool.Command, len(o.Programs)+len(o.Commands))
	for name, p := range o.Programs {
		if p == nil {
			return nil, optionError("Programs", fmt.Errorf("%.80q has no function", name))
		}
		all[name] = p.Command()
	}
	for name, c := range o.Commands {
		if c == nil {
			return nil, optionError("Commands", fmt.Errorf("%.80q has no function", name))
		}
		if all[name] != nil {
			return nil, optionError("Commands", fmt.Errorf("%.80q is among Programs too", name))
		}
		all[name] = c
	}
	for name := range all {
		if err := tool.CheckName(name); err != nil {
			return nil, optionError("Programs", err)
		}
		if name == "bash" || name == "sh" {
			return nil, optionError("Programs", fmt.Errorf("%s is the machine's shell, and stays so", name))
		}
	}
	return all, nil
}

// isUserName reports whether a name can stand in /etc/passwd.
func isUserName(s string) bool {
	return len(s) <= 32 && s[0] != '-' && (s[0] < '0' || s[0] > '9') && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// isHostname reports whether a name can be the name of a machine.
func isHostname(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."
	return len(s) <= 64 && strings.Trim(s, letters) == ""
}

// checkEnv returns an error that says what is wrong with an environment.
func checkEnv(env []string) error {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("%.80q is not NAME=value", kv)
		}
	}
	return nil
}

// baseEnv is the environment of a user's scripts.
func baseEnv(user string) []string {
	return []string{"HOME=" + homeOf(user), "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/bash", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}
