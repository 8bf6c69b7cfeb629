package assembly

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/ns"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Names of a passing service's own files.
const (
	scratchPattern = "carrel-local-*"
	scratchLock    = "lock" // held while the service is open
	driversDir     = "run"  // the roots of the drivers
)

// scratch is the directory of a passing service. Nothing of the service stays when its process ends, however it ends:
//
//   - Close ends the sandboxes and removes the directory.
//   - Once there is a driver of real sandboxes there is also a reaper, a small process that waits for the end of this one. It
//     then ends the sandboxes and removes the directory.
//   - Where there was no reaper, or somebody killed it, the next passing service of this user in the same temporary directory does it.
//
// A lock says whose turn it is: the process of the service holds it first, and nobody clears a directory without it.
type scratch struct {
	dir  string
	lock *os.File

	mu     sync.Mutex
	closed bool
	reaper *reaper // nil until it is wanted
}

// openScratch makes the directory, after those of services that ended without Close were cleared.
func openScratch(ctx context.Context) (*scratch, error) {
	clearAbandoned(ctx, os.TempDir())
	dir, err := os.MkdirTemp("", scratchPattern)
	if err != nil {
		return nil, &carrel.Error{Op: "open service", Kind: carrel.Internal, Err: err}
	}
	s := &scratch{dir: dir}
	// The file gets its name when it is locked: a directory without a lock is never cleared.
	name := filepath.Join(dir, scratchLock)
	if s.lock, err = os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err == nil {
		if err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			err = os.Rename(name+".new", name)
		}
	}
	if err != nil {
		return nil, &carrel.Error{Op: "open service", Kind: carrel.Internal, Err: errors.Join(err, s.close())}
	}
	return s, nil
}

// watch starts the reaper, once.
func (s *scratch) watch() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaper != nil || s.closed {
		return nil
	}
	s.reaper, err = startReaper(s.dir)
	return err
}

// close removes the directory and ends the reaper. No sandbox is left.
func (s *scratch) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	err := overlay.Remove(s.dir)
	if s.lock != nil {
		_ = s.lock.Close()
	}
	if s.reaper != nil {
		s.reaper.end()
	}
	return err
}

// reaper is a running process that plays reap.
type reaper struct {
	process *os.Process
	alive   *os.File // the end of a pipe that only this process has
}

const (
	reaperName = "carrel-reaper"
	reaperFD   = 3 // the other end of the pipe
)

// startReaper starts the process that clears dir when this one has ended.
func startReaper(dir string) (*reaper, error) {
	const op = "start the process that cleans up"
	if !reexec.Ready() { // the child would run this program's own main
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, Err: errors.New("this program can't start itself"),
			Hint: "call carrel's re-exec hook first thing in main"}
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: err}
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		var p *os.Process
		p, err = os.StartProcess(hosted.SelfName, []string{reaperName, dir}, &os.ProcAttr{
			Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, theirs},
			Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's interrupt is for the program
		})
		if err == nil {
			return &reaper{p, ours}, nil
		}
	}
	_ = ours.Close()
	return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: err}
}

// end lets the reaper find nothing to do, and waits for it.
func (r *reaper) end() {
	_ = r.alive.Close()
	_, _ = r.process.Wait()
}

// reap is the part: it waits until the process that started it has ended or become another program, and clears its directory.
func reap() {
	// Who ends the program may tell its whole group or control group to end. The program is to be gone first.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if len(os.Args) != 2 || !filepath.IsAbs(os.Args[1]) {
		os.Exit(2)
	}
	_, _ = io.Copy(io.Discard, os.NewFile(reaperFD, "alive"))
	// The lock of a dying process goes with its files, perhaps after the pipe.
	clear(context.Background(), os.Args[1], unix.LOCK_EX)
}

// ClearEnded clears the directories in tmp of passing services whose processes have ended, or are about to: it waits for the one that
// clears a directory already, and for the lock of a process that is dying. No other service may have its directory in tmp.
func ClearEnded(ctx context.Context, tmp string) { clearIn(ctx, tmp, unix.LOCK_EX) }

// clearAbandoned clears the directories in tmp of passing services that ended without Close.
func clearAbandoned(ctx context.Context, tmp string) { clearIn(ctx, tmp, unix.LOCK_EX|unix.LOCK_NB) }

// clearIn clears directories in tmp. Others may write to tmp, too: only what is this user's and closed to others is looked at.
func clearIn(ctx context.Context, tmp string, how int) {
	dirs, _ := filepath.Glob(filepath.Join(tmp, scratchPattern))
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode == unix.S_IFDIR|0o700 && int(st.Uid) == os.Geteuid() {
			clear(ctx, dir, how)
		}
	}
}

const (
	// clearTime bounds the clearing of one directory.
	clearTime = time.Minute
	// clearRounds is how often sandboxes are looked for: a process that was being started when its owner ended is known by its
	// arguments a moment later.
	clearRounds = 3
	clearPause  = 100 * time.Millisecond
)

// clear ends the sandboxes of a passing service whose process has ended, and removes its directory. how says whether to wait for
// the lock. What goes wrong leaves something to the next who tries.
func clear(ctx context.Context, dir string, how int) {
	lock, err := os.OpenFile(filepath.Join(dir, scratchLock), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // it is gone, or not ready yet
	}
	defer lock.Close()
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(lock.Fd()), how)
	}
	if err != nil {
		return // its owner lives, or another clears it
	}
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	for round := range clearRounds {
		if round > 0 {
			time.Sleep(clearPause)
		}
		if err = endSandboxes(ctx, filepath.Join(dir, driversDir)); err == nil && !isDir(filepath.Join(dir, driversDir)) {
			break // there were no drivers
		}
	}
	if err == nil {
		_ = overlay.Remove(dir)
	}
}

// endSandboxes ends what the drivers with roots in dir left behind.
func endSandboxes(ctx context.Context, dir string) error {
	var errs []error
	for name, open := range map[string]func(hosted.Options) (driver.Driver, error){
		"gvisor": func(o hosted.Options) (driver.Driver, error) { return gvisor.New(gvisor.Options{Options: o}) },
		"ns":     func(o hosted.Options) (driver.Driver, error) { return ns.New(ns.Options{Options: o, Files: noFiles}) },
	} {
		root := filepath.Join(dir, name)
		if !isDir(root) {
			continue
		}
		// Whatever helps a driver has its root as an argument, too. Only this loop ends helpers: a driver's Sweep would end its own.
		hosted.Strays(func(pid int, args []string) {
			if slices.Contains(args, "--root="+root) {
				errs = append(errs, hosted.KillStray(ctx, pid))
			}
		})
		d, err := open(hosted.Options{Root: root, Network: noNetwork{}})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s, ok := driver.As[driver.Sweeper](d); ok {
			errs = append(errs, s.Sweep(ctx, nil))
		}
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

func isDir(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// errClearing is what a driver answers that is open for what was left behind.
var errClearing = errors.New("this driver only clears")

// noFiles is for a driver that makes no sandbox.
func noFiles(context.Context, string) (image.Files, error) { return nil, errClearing }

// noNetwork is for a driver that makes no sandbox.
type noNetwork struct{}

// Attach implements driver.Network.
func (noNetwork) Attach(_ context.Context, _ driver.LinkSpec, fd *os.File) (driver.Link, error) {
	return nil, errors.Join(errClearing, fd.Close())
}
