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

// scratch is the directory of a passing service. Nothing of the service stays when its process
// ends, however it ends:
//
//   - Close ends the sandboxes and removes the directory.
//   - Once there is a driver of real sandboxes there is also a reaper, a small process that waits
//     for the end of this one. It then ends the sandboxes and removes the directory.
//   - If there was no reaper, or somebody killed it, the next passing service of this user in the
//     same temporary directory does that.
//
// Only the holder of a lock may clear the directory. The service's process holds it first.
type scratch struct {
	dir  string
	lock *os.File

	mu     sync.Mutex
	closed bool
	reaper *reaper // nil until it is needed
}

// openScratch makes the directory. Before that it clears those of services that ended without
// Close.
func openScratch(ctx context.Context) (*scratch, error) {
	clearAbandoned(ctx, os.TempDir())
	dir, err := os.MkdirTemp("", scratchPattern)
	if err != nil {
		return nil, &carrel.Error{Op: "open service", Kind: carrel.Internal, Err: err}
	}
	s := &scratch{dir: dir}
	// The file gets its name only after it is locked, because a directory without a lock is never
	// cleared.
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

// watch starts the reaper, if it does not run yet.
func (s *scratch) watch() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaper != nil || s.closed {
		return nil
	}
	s.reaper, err = startReaper(s.dir)
	return err
}

// close removes the directory and ends the reaper. All sandboxes must have ended.
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

// reaper is a running process that plays the part reap.
type reaper struct {
	process *os.Process
	alive   *os.File // a pipe's end that only this process has
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
			Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's interrupt goes only to the program
		})
		if err == nil {
			return &reaper{p, ours}, nil
		}
	}
	_ = ours.Close()
	return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: err}
}

// end makes the reaper end without work, and waits for it.
func (r *reaper) end() {
	_ = r.alive.Close()
	_, _ = r.process.Wait()
}

// reap is the part. It waits until the process that started it has ended or executed another
// program. Then it clears the directory.
func reap() {
	// A signal that ends the program may go to its whole group or control group. The reaper must
	// outlive the program.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if len(os.Args) != 2 || !filepath.IsAbs(os.Args[1]) {
		os.Exit(2)
	}
	_, _ = io.Copy(io.Discard, os.NewFile(reaperFD, "alive"))
	// A dying process releases the lock with its files, perhaps after the pipe.
	clear(context.Background(), os.Args[1], unix.LOCK_EX)
}

// ClearEnded clears the directories in tmp of passing services whose processes have ended or are
// about to end. It waits for a process that already clears a directory, and for the lock of a dying
// process. No other service may have its directory in tmp.
func ClearEnded(ctx context.Context, tmp string) { clearIn(ctx, tmp, unix.LOCK_EX) }

// clearAbandoned clears the directories in tmp of passing services that ended without Close.
func clearAbandoned(ctx context.Context, tmp string) { clearIn(ctx, tmp, unix.LOCK_EX|unix.LOCK_NB) }

// clearIn clears directories in tmp. Other users may write to tmp, too, so it uses only directories
// that belong to this user and are closed to others.
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
	// clearRounds is the number of searches for sandboxes. If a process was being started when its
	// owner ended, its arguments can be seen only a moment later.
	clearRounds = 3
	clearPause  = 100 * time.Millisecond
)

// clear ends the sandboxes of a passing service whose process has ended, and removes its directory.
// how says whether to wait for the lock. After an error, the next caller tries again.
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
		return // its owner lives, or another process clears it
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

// endSandboxes ends the sandboxes and processes that drivers with roots in dir left behind.
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
		// A driver's helpers, too, have its root as an argument. Only this loop ends leftover
		// helpers: a driver's Sweep would also end its own.
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

// errClearing is the error of a driver that is open only to clear leftovers.
var errClearing = errors.New("this driver only clears")

// noFiles is for a driver that makes no sandbox.
func noFiles(context.Context, string) (image.Files, error) { return nil, errClearing }

// noNetwork is for a driver that makes no sandbox.
type noNetwork struct{}

// Attach implements driver.Network.
func (noNetwork) Attach(_ context.Context, _ driver.LinkSpec, fd *os.File) (driver.Link, error) {
	return nil, errors.Join(errClearing, fd.Close())
}
