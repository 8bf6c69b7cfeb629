package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// naming says which arguments of a command name sandboxes.
type naming struct {
	first, all bool   // the first argument; every argument
	path       bool   // every argument of the form ID:PATH
	snapshot   bool   // the first may also name a snapshot; snapshots win
	flag       string // the value of this flag
	unless     string // no argument names one if this flag is given
	own        bool   // exits with another program's status: a failure here is 125
}

// namings are the commands that take sandboxes, by their path below the root. Each of them takes an
// ID, a name, or the beginning of an ID. The daemon accepts only IDs there, because the meaning of
// the others changes as sandboxes come and go.
var namings = map[string]naming{
	"exec": {first: true, own: true}, "shell": {first: true, own: true}, "ssh": {first: true, own: true},
	"ssh-proxy": {first: true}, "info": {first: true}, "pause": {all: true}, "resume": {all: true}, "kill": {all: true},
	"snapshot": {first: true}, "snapshot ls": {flag: "sandbox"}, "fork": {first: true}, "rollback": {first: true},
	"promote": {first: true}, "timeline": {first: true}, "diff": {first: true, snapshot: true}, "lifecycle": {first: true}, "label": {first: true},
	"network": {first: true}, "policy show": {first: true}, "policy learn": {first: true}, "policy test": {flag: "sandbox"}, "audit": {first: true},
	"port-forward": {first: true}, "url": {first: true}, "ssh-key add": {flag: "sandbox"}, "cp": {path: true}, "logs": {first: true},
	"metrics": {first: true}, "trace": {first: true}, "ps": {first: true}, "attach": {first: true, own: true},
	"inbox": {flag: "sandbox"}, "run-code": {first: true, unless: "template"}, "notebook": {first: true},
}

// namedCommands are the commands that accept a sandbox's name.
type namedCommands struct{ *app }

// acceptNames makes commands of the tree accept names and beginnings of IDs in place of IDs.
func (a namedCommands) acceptNames(c *cobra.Command) {
	_, below, _ := strings.Cut(c.CommandPath(), " ")
	if n, ok := namings[below]; ok && c.RunE != nil {
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			args, err := a.resolveArgs(c, n, args)
			if err != nil && n.own {
				err = ownFailure{err}
			}
			if err != nil {
				return err
			}
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		a.acceptNames(sub)
	}
}

// resolveArgs replaces names and beginnings by IDs. If there are none, it asks no service.
func (a namedCommands) resolveArgs(c *cobra.Command, n naming, args []string) ([]string, error) {
	if f := c.Flags().Lookup(n.unless); n.unless != "" && f != nil && f.Changed {
		return args, nil
	}
	args = append([]string(nil), args...)
	for i, arg := range args {
		switch {
		case n.path:
			head, rest, remote := strings.Cut(arg, ":")
			if !remote || !isRef(head) {
				continue
			}
			id, err := a.resolve(c.Context(), head)
			if carrel.KindOf(err) == carrel.NotFound {
				continue // a local file may have this name
			}
			if err != nil {
				return nil, err
			}
			args[i] = string(id) + ":" + rest
		case n.all, n.first && i == 0:
			text, suffix := arg, ""
			if name, ok := strings.CutSuffix(arg, sshSuffix); ok {
				text, suffix = name, sshSuffix
			}
			if !isRef(text) || n.snapshot && a.meansSnapshot(c.Context(), text) {
				continue
			}
			id, err := a.resolve(c.Context(), text)
			if n.snapshot && carrel.KindOf(err) == carrel.NotFound {
				continue // the command reports the missing snapshot or sandbox
			}
			if err != nil {
				return nil, err
			}
			args[i] = string(id) + suffix
		}
	}
	return args, a.resolveFlag(c, n)
}

// resolveFlag does the same with the values of a flag.
func (a namedCommands) resolveFlag(c *cobra.Command, n naming) error {
	f := c.Flags().Lookup(n.flag)
	if n.flag == "" || f == nil || !f.Changed {
		return nil
	}
	list, several := f.Value.(pflag.SliceValue)
	values := []string{f.Value.String()}
	if several {
		values = list.GetSlice()
	}
	for i, v := range values {
		if !isRef(v) {
			continue
		}
		id, err := a.resolve(c.Context(), v)
		if err != nil {
			return err
		}
		values[i] = string(id)
	}
	if several {
		return list.Replace(values)
	}
	return f.Value.Set(values[0])
}

// isRef reports whether a text may be a name or a beginning and is no complete ID. Only such a text
// needs a search.
func isRef(text string) bool {
	if _, err := carrel.ParseID(text); err == nil {
		return false
	}
	return text != "" && carrel.CheckName(text) == nil
}

// meansSnapshot reports whether a text is the ID or name of a snapshot.
func (a namedCommands) meansSnapshot(ctx context.Context, text string) bool {
	found := false
	_ = a.withService(ctx, func(svc carrel.Service) error {
		_, err := resolveSnapshot(ctx, svc, text, allSnapshots)
		found = err == nil
		return nil
	})
	return found
}

// resolve finds the only sandbox for a name or the beginning of an ID.
func (a namedCommands) resolve(ctx context.Context, text string) (id carrel.ID, err error) {
	err = a.withService(ctx, func(svc carrel.Service) error {
		id, err = resolveSandbox(ctx, svc, text)
		return err
	})
	return id, err
}

// resolveSandbox finds a sandbox of the caller's own project. If one sandbox has the name and the
// ID of another begins with it, the text is ambiguous, as for two IDs with the same beginning. A
// name must not hide another sandbox.
func resolveSandbox(ctx context.Context, svc carrel.Service, text string) (carrel.ID, error) {
	const op = "find sandbox"
	found, err := listAll(ctx, svc, carrel.ListOptions{Match: text}, 0)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, s := range found {
		if s.Means(text) { // an older daemon ignores Match
			ids = append(ids, string(s.ID))
		}
	}
	switch len(ids) {
	case 1:
		return carrel.ID(ids[0]), nil
	case 0:
		return "", &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("none is called %s, and no ID begins so", text),
			Hint: fmt.Sprintf("carrel ls; a beginning has %d letters at least, and one of another project's must be whole", carrel.MinPrefix)}
	}
	const most = 3
	if len(ids) > most {
		ids = append(ids[:most], "…")
	}
	return "", &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "sandboxID", Err: errors.New(text + " may be " + strings.Join(ids, ", ")),
		Hint: "give more of its ID"}
}
