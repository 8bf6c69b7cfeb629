package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/datadir"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
)

const (
	opWrite     = "back up"
	stateFile   = "state.db"
	stagePrefix = ".backup-"
	stageLock   = "lock"
	// tries is how many times to try for a moment in which nothing is removed.
	tries = 8
)

// stage is a directory with second names of all files of a backup.
type stage struct {
	dir     string
	records []state.Record
	snaps   []state.SnapshotRecord
}

// newStage links the contents of a data directory at one moment. undo removes the stage.
func newStage(ctx context.Context, dataDir string) (s *stage, undo func(), err error) {
	var done cleanup.Stack
	defer func() {
		if err != nil {
			done.Run()
		}
	}()
	if _, err := os.Stat(filepath.Join(dataDir, stateFile)); err != nil {
		return nil, nil, &carrel.Error{Op: opWrite, Kind: carrel.NotFound, Field: "data-dir", Err: err,
			Hint: "name the daemon's data directory with --data-dir"}
	}
	clearOld(dataDir)
	top, err := os.MkdirTemp(dataDir, stagePrefix)
	if err != nil {
		return nil, nil, &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	done.Add(func() { _ = os.RemoveAll(top) })
	lock, err := os.OpenFile(filepath.Join(top, stageLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	done.Add(func() { _ = lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, nil, &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	var missing error
	for try := range tries {
		s = &stage{dir: filepath.Join(top, fmt.Sprint(try))}
		if err := s.fill(ctx, dataDir); err != nil {
			return nil, nil, err
		}
		if missing = s.check(); missing == nil {
			return s, done.Run, nil
		}
		if err := os.RemoveAll(s.dir); err != nil {
			return nil, nil, &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
		}
	}
	return nil, nil, &carrel.Error{Op: opWrite, Kind: carrel.Conflict, Err: missing,
		Hint: "its content is lost, or snapshots are removed all the time; carrel snapshot rm takes out what is lost"}
}

// clearOld removes the stages of backups whose process was killed.
func clearOld(dataDir string) {
	old, _ := filepath.Glob(filepath.Join(dataDir, stagePrefix+"*"))
	for _, dir := range old {
		lock, err := os.OpenFile(filepath.Join(dir, stageLock), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

// fill copies the records and then links the files. It links packs before and after the manifests
// that name them. If a manifest appears between, the second round links its pack.
func (s *stage) fill(ctx context.Context, dataDir string) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	if err := sqlite.Copy(ctx, filepath.Join(dataDir, stateFile), filepath.Join(s.dir, stateFile)); err != nil {
		return err
	}
	if err := s.takeTrail(dataDir); err != nil {
		return &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	blobs := filepath.Join("snapshots", "blobs")
	// A template's image may give way to its delta in the first walk. The second one finds that.
	for _, part := range []string{blobs, ".", blobs, "templates"} {
		if err := s.link(ctx, dataDir, part); err != nil {
			return &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
		}
	}
	if err := s.takeAudit(ctx, dataDir); err != nil {
		return &carrel.Error{Op: opWrite, Kind: carrel.Internal, Err: err}
	}
	return s.read(ctx)
}

// link gives every file below part a second name. It ignores files that disappear; check finds out
// whether one is missing.
func (s *stage) link(ctx context.Context, dataDir, part string) error {
	from := filepath.Join(dataDir, part)
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dataDir, name)
		if err != nil {
			return err
		}
		if s.passes(dataDir, rel, d) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		to := filepath.Join(s.dir, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case d.Type().IsRegular():
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			err := os.Link(name, to)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
				return nil
			}
			return err
		}
		return nil // sockets and the like
	})
	return err
}

// passes reports whether a backup leaves out a file or directory.
func (s *stage) passes(dataDir, rel string, d fs.DirEntry) bool {
	dir, base := filepath.Split(rel)
	switch {
	case rel == ".":
		return false
	case dir == "": // at the top
		switch base {
		case "run", "cache", "lock", "daemon.json", ".daemon.json.spare", datadir.File, stateFile, stateFile + "-wal",
			stateFile + "-shm", sqlite.Ledger, trailDir: // takeTrail takes the trail
			return true
		}
		return strings.HasPrefix(base, stagePrefix) || strings.HasSuffix(base, ".lock")
	case dir == "sandboxes/":
		return base != ".roots" // the driver owns the files of a running sandbox
	case dir == "snapshots/":
		switch base {
		case "drafts", "trash", "lock":
			return true
		}
	case dir == "snapshots/blobs/":
		return base == "tmp~"
	case dir == "snapshots/hot/": // a copy of what is packed, unless it must be packed again
		_, err := os.Lstat(filepath.Join(dataDir, "snapshots", "packed", base))
		_, again := os.Lstat(filepath.Join(dataDir, "snapshots", "again", base))
		return err == nil && again != nil
	}
	return base == ".lock"
}

// read reads the copied records.
func (s *stage) read(ctx context.Context) error {
	name := filepath.Join(s.dir, stateFile)
	db, err := sqlite.Open(ctx, name)
	if err != nil {
		return err
	}
	if s.records, err = db.Sandboxes(ctx); err == nil {
		s.snaps, err = db.Snapshots(ctx)
	}
	err = errors.Join(err, db.Close())
	for _, made := range []string{name + ".lock", name + "-wal", name + "-shm", filepath.Join(s.dir, sqlite.Ledger)} {
		_ = os.Remove(made)
	}
	return err
}

// check compares the records with the files.
func (s *stage) check() error {
	for _, sr := range s.snaps {
		id := string(sr.Snapshot.ID)
		_, hot := os.Stat(filepath.Join(s.dir, "snapshots", "hot", id, "manifest.json"))
		_, packed := os.Stat(filepath.Join(s.dir, "snapshots", "packed", id))
		if hot != nil && packed != nil {
			return fmt.Errorf("the content of snapshot %s is not there", id)
		}
	}
	return nil
}
