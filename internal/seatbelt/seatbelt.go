// Package seatbelt writes the decisions about a box as a profile for macOS's
// Seatbelt, the sandbox of sandbox-exec(1). "carrel run" uses it where there are no namespaces.
//
// # The profile
//
// Everything is denied by default. Then come, in this order, what every program needs, what may be read,
// what may be written, what is protected, devices, and the network. Of all rules about one operation the last that matches
// decides, so rules about paths stand in the order of their depth: the most specific one is the last. A rule for
// one operation ("file-write-unlink") is said to beat a later one for its family ("file-write*"); the profile means the same
// either way, and the tests read it both ways.
//
// # Threat
//
// The command is hostile. Paths come from directories that it may have written, with quotes, line ends and
// backslashes in their names: [quote] is what keeps a name from becoming a rule. Seatbelt judges a path as it is at the
// moment, so what is denied must not be moved: the directories above denied and protected paths are pinned. The filesystem
// usually takes ".MCP.json" for ".mcp.json": the patterns of protected names match all spellings that fold to the same.
//
// # What it does not do
//
// Seatbelt has no private /tmp, no layers, no limits, no process or network namespace, and knows of addresses only "localhost" and
// "any". [Notes] says what that means for a box; what would be a hole is an error of [Options.Profile]. The
// profile is tested as text and by reading it back; it was not run on macOS.
package seatbelt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// Program is what applies a profile. It is named in full, so that no directory of PATH can put another in its place.
const Program = "/usr/bin/sandbox-exec"

// maxProfile bounds a profile: it is an argument, and macOS passes 1 MiB of arguments and environment.
const maxProfile = 640 << 10

// Options are what the caller made for one box. The zero value is usable.
type Options struct {
	// Proxy is the port on loopback of a proxy that carries out the policy. Without it a box whose
	// policy is neither "nothing" nor "everything" is refused.
	Proxy uint16
	// Temp is a directory of the box's own, empty and absolute with links resolved: what TMPDIR should name.
	// It may be written, and Unix sockets in it are the box's own.
	Temp string
	// Terminal is the device of a terminal of the box's own, such as "/dev/ttys004". Without it no terminal that
	// was there before can be opened or controlled, not even the one that the command inherits: whoever may control it
	// may type into it.
	Terminal string
}

// Profile is Options{}.Profile.
func Profile(b *settings.Box) (string, error) { return Options{}.Profile(b) }

// Command is Options{}.Command.
func Command(b *settings.Box, args []string) ([]string, error) { return Options{}.Command(b, args) }

// Command returns the argument vector that runs args in the box.
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

// Profile returns the profile of a box. It fails, with kind Unsupported, where Seatbelt can't hold what was decided, and with
// kind Invalid for paths that can't be written down.
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

// writer collects a profile. The first error is kept.
type writer struct {
	box     *settings.Box
	options Options
	text    strings.Builder
	err     error
	said    map[string]settings.Access // by path, once it was needed
}

// comment writes a line for people. It is never text of others.
func (w *writer) comment(text string) { fmt.Fprintf(&w.text, "\n; %s\n", text) }

// rule writes one rule with its filters, each on a line; none is a rule for everything, so callers with lists use rules.
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

// quoted is quote with the error kept.
func (w *writer) quoted(s string) string {
	q, err := quote(s)
	if err != nil {
		w.fail(err)
	}
	return q
}
