//go:build linux

package tier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
)

// prefix is the beginning of the names of this package's directories.
const prefix = "carrel-run-"

// state is the temporary directory of one run.
type state struct {
	dir   string
	lock  *os.File
	watch *watcher // of a tier with processes
}

// newState makes a state. First it removes the states of owners that were killed.
func newState(ctx context.Context, r Request) (*state, error) {
	sweep(ctx)
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, &carrel.Error{Op: "run", Kind: carrel.Internal, Err: err, Hint: "TMPDIR must name a directory that can be written to"}
	}
	s := &state{dir: dir}
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err == nil {
		err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Mkdir(s.upper(), 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if r.Tier != carrel.Sim {
		if s.watch, err = startWatcher(dir); err != nil {
			r.note(fmt.Sprintf("if this process is killed, its sandbox stays until the next run: %v", err))
		}
	}
	return s, nil
}

// sweep removes the directories that killed runs of this user left. A directory without a lock is
// just being made.
func sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = reap(ctx, dir)
		}
		_ = f.Close()
	}
}

// upper returns the directory for the changes.
func (s *state) upper() string { return filepath.Join(s.dir, "upper") }

// keepUpper moves the changes to a separate directory.
func (s *state) keepUpper() (string, error) {
	dir, err := os.MkdirTemp("", "carrel-changes-")
	if err != nil {
		return "", err
	}
	return dir, unix.Rename(s.upper(), dir) // over the empty one
}

// remove removes all.
func (s *state) remove() error {
	err := overlay.Remove(s.dir)
	if s.lock != nil {
		_ = s.lock.Close()
	}
	s.watch.Close() // last: after an interruption the watcher continues
	return err
}

// tempMu is held while TMPDIR has another value, because the whole process has one environment.
var tempMu sync.Mutex

// within calls f with TMPDIR set to the state's directory, so that f's temporary files are removed
// with the state.
func (s *state) within(f func() error) error {
	tempMu.Lock()
	defer tempMu.Unlock()
	old, set := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", s.dir); err != nil {
		return fmt.Errorf("set TMPDIR: %w", err)
	}
	defer func() {
		if set {
			_ = os.Setenv("TMPDIR", old)
		} else {
			_ = os.Unsetenv("TMPDIR")
		}
	}()
	return f()
}
