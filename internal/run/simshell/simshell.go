// Package simshell is "carrel sim": a simulated machine for one script or one session, in this
// process, with no daemon, no root and nothing installed.
package simshell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/shell/hostfs"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Mode says what happens to writes below a mounted directory.
type Mode int

// The modes of a mount.
const (
	Overlay  Mode = iota // changes are kept in memory, and lost at the end
	ReadOnly             // writes fail
	Write                // changes are made
)

// Mount is a directory of the host that the machine sees.
type Mount struct {
	Source string // a directory of the host
	Target string // absolute, in the machine
	Mode   Mode
}

// Options describe the script and its machine.
type Options struct {
	// Script is the script to run. Without it and File, the script comes from In, or there is a
	// session on the terminal.
	Script string
	File   string   // of the host: a script
	Args   []string // $1 and so on
	Mounts []Mount
	Dir    string   // absolute, in the machine; "" is the first mount's target or the home
	Env    []string // NAME=value, on top of the machine's own

	In       *os.File
	Out, Err io.Writer

	// Policy is the machine's network policy; nil allows nothing. Table is a file with an
	// artificial internet, for tests.
	Policy *carrel.Policy
	Table  string

	Limits interp.Limits
	DiskMB int     // most that may be written in memory; 0 is no limit
	Seed   *uint64 // makes it deterministic, see interp.Config
	// Servers are command lines that start MCP servers on this host. Their tools are programs of
	// the machine and win over its own programs. Rules is a file with rules for their calls; ""
	// allows every call.
	Servers []string
	Rules   string
	// Denied, if given, is called with each refusal of the policy.
	Denied func(carrel.Decision)
}

// user is who runs everything.
const (
	userName = "user"
	userID   = 1000
	home     = "/home/" + userName
)

// Run runs the script or session and returns the exit status. Errors are about the Options:
// Invalid, NotFound, Unsupported.
func Run(ctx context.Context, o Options) (status int, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	granted, err := openServers(ctx, o.Servers, o.Rules, &undo)
	if err != nil {
		return 0, err
	}
	disk, err := o.disk(slices.Collect(maps.Keys(granted)), &undo)
	if err != nil {
		return 0, err
	}
	config := interp.Config{FS: disk, Hostname: "sim", Limits: o.Limits, Seed: o.Seed, Commands: tools.All()}
	if len(granted) > 0 {
		config.Commands = maps.Clone(config.Commands)
		maps.Copy(config.Commands, granted)
	}
	env := o.Env
	if o.Policy != nil {
		way, more, err := wayOut(o)
		if err != nil {
			return 0, err
		}
		undo.Add(way.Close)
		config.HTTP, env = way, append(more, env...)
	}
	m := interp.New(config)
	undo.Add(m.Close)
	return o.run(ctx, m, env)
}

// disk makes the machine's disk, with files for its additional programs.
func (o Options) disk(programs []string, undo *cleanup.Stack) (*vfs.FS, error) {
	fail := func(kind carrel.Kind, field string, err error) (*vfs.FS, error) {
		return nil, &carrel.Error{Op: "make the machine", Kind: kind, Field: field, Err: err}
	}
	names := append(tools.Names(), programs...)
	empty := vfs.New(vfs.Options{})
	if err := interp.Install(empty, names...); err != nil {
		return fail(carrel.Internal, "", err)
	}
	if err := interp.AddUser(empty, userName, userID); err != nil {
		return fail(carrel.Internal, "", err)
	}
	disk := empty.Clone(vfs.Options{Quota: int64(o.DiskMB) << 20}) // its first contents do not count
	for _, at := range o.Mounts {
		if !strings.HasPrefix(at.Target, "/") {
			return fail(carrel.Invalid, "mount", fmt.Errorf("%q is not an absolute path", at.Target))
		}
		if err := disk.Root().MkdirAll(at.Target, 0o755); err != nil {
			return fail(carrel.Invalid, "mount", err)
		}
		owner := vfs.Cred{UID: userID, GID: userID}
		options := vfs.MountOptions{ReadOnly: at.Mode == ReadOnly, Overlay: at.Mode == Overlay, Owner: &owner, Name: "host", Type: "carrel"}
		var source vfs.Source
		var closer io.Closer
		if at.Mode == Write {
			d, err := hostfs.OpenWritable(at.Source)
			if err != nil {
				return fail(kindOf(err), "mount", err)
			}
			source, closer = d, d
		} else {
			s, err := hostfs.Open(at.Source)
			if err != nil {
				return fail(kindOf(err), "mount", err)
			}
			source, closer = s, s
		}
		undo.Add(func() { _ = closer.Close() }) // reads and writes are finished; the error does not matter
		if err := disk.Mount(at.Target, source, options); err != nil {
			return fail(carrel.Invalid, "mount", err)
		}
	}
	return disk, nil
}

// kindOf returns the kind of an error from opening a directory.
func kindOf(err error) carrel.Kind {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return carrel.NotFound
	case errors.Is(err, os.ErrPermission):
		return carrel.Forbidden
	}
	return carrel.Invalid
}

// spec returns the first process of the machine.
func (o Options) spec(env []string) (interp.Spec, error) {
	s := interp.Spec{Path: "bash", Dir: o.Dir, UID: userID, GID: userID,
		Env: append([]string{"HOME=" + home, "USER=" + userName, "LOGNAME=" + userName, "SHELL=/bin/bash", "LANG=C.UTF-8",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)}
	if s.Dir == "" {
		if s.Dir = home; len(o.Mounts) > 0 {
			s.Dir = o.Mounts[0].Target
		}
	}
	script, name := o.Script, "bash"
	if o.File != "" {
		text, err := os.ReadFile(o.File)
		if err != nil {
			return s, &carrel.Error{Op: "read script", Kind: kindOf(err), Field: "file", Err: err}
		}
		script, name = string(text), o.File
	}
	if script != "" || o.File != "" {
		s.Args = append([]string{"-c", script, name}, o.Args...)
	} else if len(o.Args) > 0 {
		s.Args = append([]string{"-s", "--"}, o.Args...)
	}
	return s, nil
}

// run starts the shell and copies its streams.
func (o Options) run(ctx context.Context, m *interp.Machine, env []string) (int, error) {
	s, err := o.spec(env)
	if err != nil {
		return 0, err
	}
	var out sync.WaitGroup
	if screen, ok := o.Out.(*os.File); ok && term.IsTerminal(int(o.In.Fd())) && term.IsTerminal(int(screen.Fd())) {
		restore, err := o.terminal(ctx, m, &s, &out)
		if err != nil {
			return 0, err
		}
		defer restore()
	} else {
		in := interp.NewPipe()
		s.Stdin, s.Out, s.Err = in, interp.NewPipe(), interp.NewPipe()
		go func() { // ends with the process or the input
			_, _ = io.Copy(in, o.In)
			in.CloseWrite()
		}()
		for pipe, to := range map[*interp.Pipe]io.Writer{s.Out: o.Out, s.Err: o.Err} {
			out.Go(func() {
				if _, err := io.Copy(to, pipe); err != nil {
					pipe.CloseRead() // nobody reads, so a writer inside gets a broken pipe
				}
			})
		}
	}
	p, err := m.Start(s)
	if err != nil {
		kind := carrel.Internal
		if errors.Is(err, os.ErrNotExist) {
			kind = carrel.NotFound
		}
		return 0, &carrel.Error{Op: "start the shell", Kind: kind, Err: err}
	}
	defer context.AfterFunc(ctx, func() { _ = p.Signal(15) })()
	e := p.Wait()
	drained := make(chan struct{})
	go func() { out.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(100 * time.Millisecond): // background jobs hold the streams and end with the machine
		m.Close()
		<-drained
	}
	if e.Message != "" {
		fmt.Fprintf(o.Err, "carrel: %s\n", e.Message)
	}
	return e.Code, nil
}

// terminal connects the machine's terminal to this process's.
func (o Options) terminal(ctx context.Context, m *interp.Machine, s *interp.Spec, out *sync.WaitGroup) (restore func(), err error) {
	fd := int(o.In.Fd())
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		cols, rows = 80, 24
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, &carrel.Error{Op: "set up the terminal", Kind: carrel.Internal, Err: err}
	}
	t := m.NewTTY(uint16(cols), uint16(rows))
	s.TTY = t
	s.Env = append(s.Env, "TERM="+os.Getenv("TERM"))
	ctx, stop := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(300 * time.Millisecond) // not every system has SIGWINCH; a person changes the size
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if c, r, err := term.GetSize(fd); err == nil && (c != cols || r != rows) {
					cols, rows = c, r
					t.Resize(uint16(c), uint16(r))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() { _, _ = io.Copy(t, o.In) }()
	out.Go(func() { _, _ = io.Copy(o.Out, t) })
	return func() {
		stop()
		_ = term.Restore(fd, old)
	}, nil
}
