// Package seatbelt writes the decisions about a box as a profile for macOS's Seatbelt, the sandbox
// of sandbox-exec(1). "carrel run" uses it where there are no namespaces.
//
// # The profile
//
// Everything is denied by default. Then follow, in this order: the needs of every program, reading,
// writing, protected names, devices, and the network. Of all rules about one operation, the last
// that matches decides. So rules about paths are sorted by depth, the most specific one last. A
// rule for one operation ("file-write-unlink") is said to beat a later one for its family
// ("file-write*"). The profile means the same either way, and the tests read it both ways.
//
// # Threat
//
// The command is hostile. Paths come from directories that it may have written, with quotes, line
// ends and backslashes in their names. [quote] makes sure that a name does not become a rule.
// Seatbelt judges a path as it is at the moment, so a denied file must not be moved: the
// directories above denied and protected paths are pinned. The filesystem usually takes ".MCP.json"
// for ".mcp.json": the patterns of protected names match all spellings that fold to the same.
//
// # What it does not do
//
// Seatbelt has no private /tmp, no layers, no limits, no process or network namespace. Its only
// addresses are "localhost" and "any". [Notes] lists the consequences for a box. Whatever would be
// a hole is an error of [Options.Profile]. The profile is tested as text and by reading it back; it
// was not run on macOS.
package seatbelt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// Program applies a profile. It is an absolute path, so that no directory of PATH can replace it.
const Program = "/usr/bin/sandbox-exec"

// maxProfile bounds a profile. It is passed as an argument, and macOS allows 1 MiB for arguments
// and environment together.
const maxProfile = 640 << 10

// Options are things that the caller made for one box. The zero value is usable.
type Options struct {
	// Proxy is the loopback port of a proxy that applies the policy. Without it, a policy must mean
	// "nothing" or "everything"; a box with any other policy is refused.
	Proxy uint16
	// Temp is the box's own temporary directory, for TMPDIR: empty, absolute, with links resolved.
	// The box may write to it, and Unix sockets in it are the box's own.
	Temp string
	// Terminal is the device of the box's own terminal, such as "/dev/ttys004". Without it, no
	// earlier terminal can be opened or controlled, not even the one that the command inherits. A
	// program that may control a terminal may type into it.
	Terminal string
}

// Profile is Options{}.Profile.
func Profile(b *settings.Box) (string, error) { return Options{}.Profile(b) }

// Command is Options{}.Command.
func Command(b *settings.Box, args []string) ([]string, error) { return Options{}.Command(b, args) }

// Command returns the argument list that runs args in the box.
func (o Options) Command(b *settings.Box, args []string) ([]string, error) {
	if len(args) == 0 || args[0] == "" {
		return nil, &carrel.Error{Op: "run", Kind: carrel.Invalid, Err: errors.New("no command to run")}
	}
	profile, err := o.Profile(b)
	if err != nil {
		return nil, err
	}
	return append([]string{Program, "-p", profile, "--"}, args...), nil
}

// Profile returns the profile of a box. The error is Unsupported if Seatbelt can't enforce a
// decision, and Invalid for paths that can't be written in a profile.
func (o Options) Profile(b *settings.Box) (string, error) {
	if b.Overlay {
		return "", unsupported("--overlay", "Seatbelt has no layers", "work on a copy of the directory")
	}
	w := &writer{box: b, options: o}
	w.base()
	w.reads()
	w.writes()
	w.protected()
	w.text.WriteString(devices)
	w.terminal()
	w.temp()
	w.network()
	if w.err != nil {
		return "", w.err
	}
	text := w.text.String()
	if len(text) > maxProfile {
		return "", unsupported("", fmt.Sprintf("a profile of %d KiB for %d paths is more than macOS takes", len(text)>>10, len(b.Paths)),
			"close the directory in place of the files in it")
	}
	return text, nil
}

func unsupported(field, what, hint string) error {
	return &carrel.Error{Op: "run", Kind: carrel.Unsupported, Field: field, Err: errors.New(what), Hint: hint}
}

// writer builds a profile. It keeps the first error.
type writer struct {
	box     *settings.Box
	options Options
	text    strings.Builder
	err     error
	said    map[string]settings.Access // by path, once it was needed
}

// comment writes a line for people. Its text never comes from outside.
func (w *writer) comment(text string) { fmt.Fprintf(&w.text, "\n; %s\n", text) }

// rule writes one rule with its filters, one per line. Without filters it is a rule for everything,
// so callers with lists use rules.
func (w *writer) rule(action, operations string, filters ...string) {
	fmt.Fprintf(&w.text, "(%s %s", action, operations)
	for _, f := range filters {
		w.text.WriteString("\n  " + f)
	}
	w.text.WriteString(")\n")
}

// rules writes a rule unless there are no filters.
func (w *writer) rules(action, operations string, filters []string) {
	if len(filters) > 0 {
		w.rule(action, operations, filters...)
	}
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) literal(p string) string { return "(literal " + w.quoted(p) + ")" }
func (w *writer) subpath(p string) string { return "(subpath " + w.quoted(p) + ")" }

// quoted is quote; it keeps the error.
func (w *writer) quoted(s string) string {
	q, err := quote(s)
	if err != nil {
		w.fail(err)
	}
	return q
}
