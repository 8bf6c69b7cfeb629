//go:build linux

// Package tier runs one command for "carrel run" in a sandbox of another tier than ns: with
// gVisor's kernel, or in the simulated machine, in this process.
//
// # The story
//
// There is no daemon. [Run] opens a private service ([carrel.Open]) whose whole state is in one
// temporary directory. It makes one sandbox, and copies the working directory into it, to the same
// absolute path. The command runs there with the given environment; standard input and output,
// signals and the terminal pass through. At the end, its changes to that directory become the upper
// layer of an overlay, and are carried out on the real directory with the rules of package overlay:
// protected names are skipped, and a file that somebody else changed in that time is a conflict.
//
// In the gvisor tier the command finds this machine's programs (the built-in template "host"). It
// is root if the caller is root, else the user "user". In the sim tier it is a command line of the
// simulated shell: one argument is a complete line, several are words.
//
// # What is left
//
// Run removes the directory "carrel-run-…" below the directory for temporary files before it
// returns. After a kill -9 a second process ([Parts]) ends the sandbox and removes the directory.
// If that process was killed too, the next Run of the same user does it: the directory holds a file
// that is locked as long as its owner lives.
//
// # Threat
//
// The command is hostile and may be root inside. It can replace the programs there that list and
// pack the directory. So the results are not simply trusted: names are checked, only requested
// files are taken, sizes are bounded, and nothing is written outside of our own directory before
// package overlay has judged it. Paths that were not copied in (secrets, sockets, unreadable files)
// can't be changed or removed by using their names either.
package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
)

// Request is one command.
type Request struct {
	Tier      carrel.Tier // GVisor or Sim
	Dir       string      // absolute working directory outside
	Args, Env []string
	// Stdin nil means none. It is not used with a Terminal.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal is the caller's terminal. The command gets a terminal of its own in its place. Nil
	// is none.
	Terminal *os.File
	Network  carrel.Network
	CPUs     float64
	MemoryMB int
	Pids     int
	Timeout  time.Duration // of the command; 0 is none
	// Readable reports whether a file or directory, given as an absolute path, is copied in. Nil
	// copies everything.
	Readable func(path string) bool
	// Protected reports whether an absolute path must not be changed outside. It also returns the
	// rule.
	Protected func(path string) (rule string, yes bool)
	// KeepChanges leaves the changes in Result.Upper instead of carrying them back.
	KeepChanges bool
	// Copy bounds the copy, in bytes; 0 is the tier's default.
	Copy     int64
	Progress io.Writer             // what takes long is said here; may be nil
	Note     func(string)          // what a person should know; may be nil
	Denied   func(carrel.Decision) // what the network refused; may be nil
	Signals  <-chan os.Signal      // passed on to the command; window changes adjust its terminal
}

// Result is the result of a run. If carrying the changes back fails with kind Conflict, Exhausted
// or Forbidden, the Result is complete, and Upper holds the changes.
type Result struct {
	Code   int // when Signal is 0
	Signal syscall.Signal
	Limit  string // "timeout" if that ended it
	// Changes are all differences. Skipped are those, and others, that are not carried back.
	Changes []overlay.Change
	Skipped []overlay.Skipped
	// Upper is an upper layer over Dir with the changes, a directory that the caller removes
	// (overlay.Remove). It is "" if the changes were carried back.
	Upper string
}

// limits of a copy, either way.
type limits struct {
	files int
	bytes int64
}

// tierLimits are the limits by tier. A simulated machine's files lie in this process's memory.
var tierLimits = map[carrel.Tier]limits{
	carrel.GVisor: {files: 100_000, bytes: 1 << 30},
	carrel.Sim:    {files: 20_000, bytes: 256 << 20},
}

// limits are those of a request. A larger copy may have more files, too.
func (r *Request) limits() limits {
	l := tierLimits[r.Tier]
	if r.Copy > 0 {
		l.files = max(1, int(float64(l.files)*(float64(r.Copy)/float64(l.bytes))))
		l.bytes = r.Copy
	}
	return l
}

// outTime bounds the copying back, because the command may have replaced the tools for it.
const outTime = 10 * time.Minute

// Run runs a command. It returns when the command has ended and nothing of its sandbox is left.
func Run(ctx context.Context, r Request) (res Result, err error) {
	if err := r.check(); err != nil {
		return res, err
	}
	p := newProgress(&r)
	src, err := scan(ctx, r, p)
	if err != nil {
		return res, err
	}
	st, err := newState(ctx, r)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, st.remove()) }()
	done := p.during("making a sandbox", func() string { return "" })
	box, err := openBox(ctx, r, st)
	done()
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, box.close()) }()
	c := box.carrier(src)
	done = p.during("copying "+r.Dir+" into the sandbox", src.far)
	err = c.load(ctx, src)
	done()
	if err != nil {
		return res, fmt.Errorf("copy %s in: %w", r.Dir, err)
	}
	before, err := c.look(ctx)
	if err != nil {
		return res, fmt.Errorf("look at the copy of %s: %w", r.Dir, err)
	}
	if res, err = box.run(ctx); err != nil {
		return res, err
	}
	p.again()
	defer p.during("looking for what changed in "+r.Dir, func() string { return "" })()
	octx, cancel := context.WithTimeoutCause(ctx, outTime, fmt.Errorf("the sandbox did not give its files within %v", outTime))
	defer cancel()
	out := &layout{src: src, before: before, dir: st.upper(), limits: r.limits()}
	if err := out.fill(octx, c); err != nil {
		return res, fmt.Errorf("copy the changes of %s back: %w", r.Dir, err)
	}
	return res, r.carry(octx, st, out, &res)
}

// carry carries the changes back, or keeps them.
func (r *Request) carry(ctx context.Context, st *state, out *layout, res *Result) (err error) {
	o := overlay.Options{Base: out.src.info}
	if r.Protected != nil {
		o.Protected = func(p string) (string, bool) { return r.Protected(filepath.Join(out.src.dir, p)) }
	}
	res.Skipped = out.skipped
	if res.Changes, err = overlay.Changes(ctx, out.src.dir, out.dir, o); err != nil {
		return err
	}
	if !r.KeepChanges {
		skipped, err := overlay.Apply(ctx, out.src.dir, out.dir, res.Changes, o)
		res.Skipped = append(res.Skipped, skipped...)
		if err == nil {
			return nil
		}
		var keep error
		if res.Upper, keep = st.keepUpper(); keep == nil {
			r.note("the changes are kept in " + res.Upper)
		}
		return errors.Join(err, keep)
	}
	res.Upper, err = st.keepUpper()
	return err
}

// check refuses requests that can't be run, and resolves Dir.
func (r *Request) check() error {
	const op = "run"
	if _, ok := tierLimits[r.Tier]; !ok {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "tier", Err: fmt.Errorf("no tier %q here", r.Tier), Hint: "gvisor, sim, or ns without this package"}
	}
	if len(r.Args) == 0 || r.Args[0] == "" {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "args", Err: errors.New("no command given")}
	}
	dir, err := filepath.EvalSymlinks(r.Dir)
	if err == nil && !filepath.IsAbs(dir) {
		err = fmt.Errorf("%s is not absolute", r.Dir)
	}
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "dir", Err: err}
	}
	for _, no := range []string{"/proc", "/sys", "/dev"} {
		if dir == "/" || dir == no || strings.HasPrefix(dir, no+"/") && !strings.HasPrefix(dir, "/dev/shm/") {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "dir", Err: fmt.Errorf("%s can't be copied into a sandbox", dir),
				Hint: "run it in the directory of a project"}
		}
	}
	r.Dir = dir
	if r.Stdout == nil {
		r.Stdout = io.Discard
	}
	if r.Stderr == nil {
		r.Stderr = io.Discard
	}
	return nil
}

// note passes a message to the person.
func (r *Request) note(text string) {
	if r.Note != nil {
		r.Note(text)
	}
}

// environment returns Env as a map. If a name occurs twice, the last value counts.
func (r *Request) environment() map[string]string {
	m := make(map[string]string, len(r.Env))
	for _, kv := range r.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			m[k] = v
		}
	}
	return m
}
