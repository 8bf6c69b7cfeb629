package filler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image/registry"
	"github.com/carrel-dev/carrel/internal/image/stargz"
	"github.com/carrel-dev/carrel/internal/linux/fileview"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Part is the name under which a binary runs as the filler.
const Part = "carrel-filler"

// Parts returns the filler's entry for [reexec.Run].
func Parts() reexec.Parts {
	return reexec.Parts{Part + " start": startDetached, Part + " serve": Main}
}

// Names in the directory of an image that is being filled.
const (
	ImageFile  = "image.erofs"
	planFile   = "fill.plan"
	lockFile   = "fill.lock" // its text is the filler's process ID
	statusFile = "fill.status"
	viewFile   = "fill.view" // an empty file, over which the filler mounts
)

// Order is what a filler is told when it starts.
type Order struct {
	Allow   []string
	Mirrors []registry.Mirror
	Offline bool
	Layout  string
	// MinBytes and StallTime are those of [registry.Config].
	MinBytes  int64
	StallTime time.Duration
	// Credentials are those of the pull. Nobody else keeps them.
	Credentials *carrel.RegistryCredentials
	// Resumed says that an earlier filler worked on the image.
	Resumed bool
}

// Status is what a filler says about its work.
type Status struct {
	State   string // Filling, Done or Failed
	Missing int64  // bytes
	Kind    carrel.Kind
	Reason  string // of Failed
}

// The states of a Status.
const (
	Filling = "filling"
	Done    = "done"
	Failed  = "failed"
)

const (
	orderFD     = 3
	lockFD      = 4
	statusEvery = 500 * time.Millisecond
	startTime   = 30 * time.Second
)

// Able reports why this process can't start a filler. Error: Unsupported.
func Able() error {
	if !reexec.Ready() {
		return &carrel.Error{Op: opLazy, Kind: carrel.Unsupported, Err: errors.New("this program's main does not call reexec.Run")}
	}
	return Mountable()
}

// Mountable reports why no filler of this user can work on this machine. Error: Unsupported.
func Mountable() error {
	e := &carrel.Error{Op: opLazy, Kind: carrel.Unsupported}
	switch f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); {
	case os.Geteuid() != 0:
		e.Err = errors.New("only root may mount the view of an image that is not whole")
	case err != nil:
		e.Err = err
		e.Hint = "load the kernel module fuse"
	default:
		_ = f.Close()
		return nil
	}
	return e
}

const opLazy = "pull template lazily"

// Prepare writes what a filler needs into the directory of an image.
func Prepare(dir string, p *Plan) error {
	if err := p.Write(filepath.Join(dir, planFile)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, viewFile), nil, 0o600)
}

// Clean removes it again. A filler that still runs then behaves as after [Process.Release].
func Clean(dir string) error {
	var errs []error
	for _, name := range []string{planFile, lockFile, statusFile, viewFile} {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Process is a filler that runs.
type Process struct {
	dir string
	pid int
}

// View returns the path at which the image can be opened while the filler lives.
func (p *Process) View() string {
	return fmt.Sprintf("/proc/%d/root%s", p.pid, filepath.Join(p.dir, viewFile))
}

// PID is the filler's process ID.
func (p *Process) PID() int { return p.pid }

// Release takes the view away from new users. The filler ends after the last one.
func (p *Process) Release() {
	if Find(p.dir) != nil { // so the process ID is still the filler's
		_ = unix.Kill(p.pid, unix.SIGTERM)
	}
}

// Find returns the filler of a directory, or nil.
func Find(dir string) *Process {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return nil // nobody holds it
	}
	text, err := io.ReadAll(io.LimitReader(f, 20))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || perr != nil || pid <= 1 {
		return nil // it is about to start
	}
	return &Process{dir, pid}
}

// ReadStatus returns what the filler of a directory said last.
func ReadStatus(dir string) (Status, error) {
	raw, err := os.ReadFile(filepath.Join(dir, statusFile))
	var s Status
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// Start starts the filler of a prepared directory, unless it runs, and returns when its view can be
// opened. The caller makes sure that nobody else starts it now. exe is the binary; "" is the
// running one.
func Start(ctx context.Context, exe, dir string, o Order) (*Process, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		if p := Find(dir); p != nil {
			return p, nil
		}
		return nil, &carrel.Error{Op: opLazy, Kind: carrel.Conflict,
			Err: errors.New("another process is starting it")}
	}
	if err := lock.Truncate(0); err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(dir, statusFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	if exe == "" {
		exe = "/proc/self/exe"
	}
	// A text is smaller than a pipe's buffer, unless it holds a very large key.
	if err := w.SetWriteDeadline(time.Now().Add(startTime)); err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	_ = w.Close()
	cmd := &exec.Cmd{Path: exe, Args: []string{Part, "start", dir}, Dir: "/", Env: os.Environ(),
		ExtraFiles: []*os.File{r, lock}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("start %s: %w", Part, err)
	}
	_ = lock.Close() // from here on only the filler holds it
	return waitReady(ctx, dir)
}

// startDetached is the process in between. It starts the filler and ends, so that the filler is not
// the daemon's child.
func startDetached() {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{Part, "serve", os.Args[2]}, Dir: "/",
		Env:         os.Environ(),
		ExtraFiles:  []*os.File{os.NewFile(orderFD, "order"), os.NewFile(lockFD, lockFile)},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS}}
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
}

// waitReady waits until the view is there.
func waitReady(ctx context.Context, dir string) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := ReadStatus(dir)
		p := Find(dir)
		switch {
		case err == nil && s.State == Failed:
			return nil, &carrel.Error{Op: opLazy, Kind: s.Kind, Err: errors.New(s.Reason)}
		case err == nil && p != nil:
			return p, nil
		case !isLocked(dir):
			return nil, &carrel.Error{Op: opLazy, Kind: carrel.Internal,
				Err: errors.New("the filler ended before it was ready")}
		}
		select {
		case <-ctx.Done():
			if p != nil {
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// isLocked reports whether a filler has the directory.
func isLocked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Main is the filler's process.
func Main() {
	unix.CloseOnExec(orderFD)
	unix.CloseOnExec(lockFD)
	if len(os.Args) != 3 {
		os.Exit(2)
	}
	dir := os.Args[2]
	lock := os.NewFile(lockFD, lockFile)
	if err := serve(dir, lock); err != nil {
		say(dir, Status{State: Failed, Kind: carrel.KindOf(err), Reason: err.Error()})
		os.Exit(1)
	}
}

// say writes the status. If the directory is gone, nobody asks.
func say(dir string, s Status) {
	if raw, err := json.Marshal(s); err == nil {
		_ = atomicfile.Write(filepath.Join(dir, statusFile), raw, 0o600)
	}
}

// serve shows the image and fills it, until nobody uses it any more.
func serve(dir string, lock *os.File) error {
	var o Order
	if err := json.NewDecoder(os.NewFile(orderFD, "order")).Decode(&o); err != nil {
		return err
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	plan, err := ReadPlan(filepath.Join(dir, planFile))
	if err != nil {
		return err
	}
	image, err := os.OpenFile(filepath.Join(dir, ImageFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	info, err := image.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Size() != plan.Size {
		return fmt.Errorf("the image has %d bytes, the plan says %d", info.Size(), plan.Size)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	src, err := o.source(ctx, plan)
	if err != nil {
		return err
	}
	fill := New(plan, image, src, o.Resumed)
	view := filepath.Join(dir, viewFile)
	dev, err := fileview.Mount(view)
	if err != nil {
		return err
	}
	server := fileview.Serve(dev, fill, fileview.Options{Size: plan.Size, Inode: st.Ino,
		Modified: info.ModTime()})
	// The server closes before the image does: a read that it answers needs the image.
	defer func() { _ = server.Close() }()
	defer fill.Close()
	say(dir, Status{State: Filling, Missing: fill.Missing()})
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	return attend(ctx, dir, lock, fill, server, term)
}

// attend waits for what may happen to a filler.
func attend(ctx context.Context, dir string, lock *os.File, fill *Fill, server *fileview.Server,
	term <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- fill.Run(ctx) }()
	running := true
	defer func() {
		cancel()
		fill.Close()
		if running {
			<-ended
		}
	}()
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	isOurs := true // the directory is ours: it has this filler's lock and status
	release := func() {
		if isOurs {
			isOurs = false
			_ = fileview.Unmount(filepath.Join(dir, viewFile))
			_ = lock.Close()
		}
	}
	for {
		select {
		case err := <-ended:
			running = false
			s := Status{State: Done}
			if err != nil {
				s = Status{State: Failed, Missing: fill.Missing(), Kind: carrel.KindOf(err),
					Reason: err.Error()}
			}
			if isOurs {
				say(dir, s)
			}
		case <-term:
			release()
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(dir, planFile)); err != nil {
				release()
			} else if isOurs && running {
				say(dir, Status{State: Filling, Missing: fill.Missing()})
			}
		case <-server.Done():
			return nil
		}
	}
}

// source makes the two clients of a filler.
func (o Order) source(ctx context.Context, p *Plan) (Source, error) {
	cfg := registry.Config{Allow: o.Allow, Mirrors: o.Mirrors, Offline: o.Offline, Layout: o.Layout,
		MinBytes: o.MinBytes, StallTime: o.StallTime}
	opts := carrel.PullOptions{Image: p.Image, Platform: p.Platform, Credentials: o.Credentials}
	req := registry.Request{Project: p.Project, Operator: p.Operator}
	open := func() (*registry.Ranges, error) {
		c, err := registry.New(cfg)
		if err != nil {
			return nil, err
		}
		return c.Ranges(ctx, opts, req), nil
	}
	demand, err := open()
	if err != nil {
		return Source{}, err
	}
	background, err := open()
	if err != nil {
		return Source{}, err
	}
	return Source{Background: background,
		Chunk: func(ctx context.Context, layer v1.Hash, c stargz.Chunk) ([]byte, error) {
			return registry.Fetch(ctx, demand, layer, c)
		}}, nil
}
