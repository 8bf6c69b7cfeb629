package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// draft is a snapshot that is being taken.
type draft struct {
	s   *Store
	id  carrel.SnapshotID
	dir string // drafts/<id>

	mu   sync.Mutex
	done bool // committed or discarded
}

// Begin implements [snapshot.Store].
func (s *Store) Begin(ctx context.Context, id carrel.SnapshotID) (snapshot.Draft, error) {
	const op = "begin snapshot"
	if err := checkID(op, id); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, classify(op, id, err)
	}
	if err := s.makeRoom(op, 1); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed(op)
	}
	if s.entries[id] != nil || s.drafts[id] {
		s.mu.Unlock()
		return nil, &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Err: fmt.Errorf("there is a snapshot %s already", id)}
	}
	s.drafts[id] = true
	s.mu.Unlock()
	d := &draft{s: s, id: id, dir: s.path(dirDrafts, string(id))}
	err := os.Mkdir(d.dir, 0o700)
	if err == nil {
		err = os.Mkdir(d.Dir(), 0o700)
	}
	if err == nil {
		err = step("begin.made")
	}
	if err != nil {
		_ = d.Discard()
		return nil, classify(op, id, err)
	}
	return d, nil
}

// Dir implements [snapshot.Draft].
func (d *draft) Dir() string { return filepath.Join(d.dir, filesDir) }

// writeBackEvery is the pause between two starts of writing to the disk.
const writeBackEvery = 5 * time.Millisecond

// WriteBack implements [snapshot.Draft].
func (d *draft) WriteBack() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(writeBackEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				d.writeBack()
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}

// writeBack makes the kernel begin to write the present data. It is a hint: fsync returns the same
// error later.
func (d *draft) writeBack() {
	list, err := os.ReadDir(d.Dir())
	if err != nil {
		return
	}
	for _, de := range list {
		if !de.Type().IsRegular() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(d.Dir(), de.Name()), os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		_ = f.Close()
	}
}

// Discard implements [snapshot.Draft].
func (d *draft) Discard() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return nil
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return classify("discard snapshot", d.id, err)
	}
	d.done = true
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	delete(d.s.drafts, d.id)
	d.s.unclaim(string(d.id))
	return nil
}

// Commit implements [snapshot.Draft].
func (d *draft) Commit(ctx context.Context, m snapshot.Manifest) (snapshot.Manifest, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.commit(ctx, m)
	if err != nil {
		return snapshot.Manifest{}, classify("commit snapshot", d.id, err)
	}
	return m, nil
}

func (d *draft) commit(ctx context.Context, m snapshot.Manifest) (snapshot.Manifest, error) {
	if d.done {
		return m, &carrel.Error{Kind: carrel.Conflict, Err: errors.New("this draft has ended")}
	}
	if m.ID != d.id {
		return m, &carrel.Error{Kind: carrel.Invalid, Field: "ID", Err: fmt.Errorf("the manifest is for %q", m.ID)}
	}
	if m.Created.IsZero() {
		m.Created = time.Now().UTC()
	}
	m.Version = snapshot.ManifestVersion
	if err := step("commit.start"); err != nil {
		return m, err
	}
	files, err := d.openFiles()
	defer func() {
		for _, f := range files {
			_ = f.f.Close()
		}
	}()
	if err != nil {
		return m, err
	}
	m.Files, m.Size = nil, 0
	for _, f := range files {
		m.Size += f.size
	}
	if err := d.s.makeRoom("commit snapshot", m.Size); err != nil {
		return m, err
	}
	if err := d.settle(ctx, files); err != nil {
		return m, err
	}
	for _, f := range files {
		m.Files = append(m.Files, snapshot.File{Name: filepath.Base(f.f.Name()), Size: f.size, Sum: encodeSums(f.sums)})
	}
	if err := d.publish(m); err != nil {
		return m, err
	}
	d.done = true
	d.s.committed(m)
	return m, step("commit.done")
}

// openFiles opens the driver's files. They must be plain files, directly in Dir.
func (d *draft) openFiles() ([]*sumFile, error) {
	list, err := os.ReadDir(d.Dir())
	if err != nil {
		return nil, err
	}
	if len(list) > maxFiles {
		return nil, &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("%d files: a snapshot may have %d", len(list), maxFiles)}
	}
	var files []*sumFile
	for _, de := range list {
		if !de.Type().IsRegular() || !validName(de.Name()) {
			return files, &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("%.80q is not a plain file of a good name", de.Name())}
		}
		f, err := os.OpenFile(filepath.Join(d.Dir(), de.Name()), os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return files, err
		}
		sf := &sumFile{f: f}
		files = append(files, sf)
		fi, err := f.Stat()
		if err != nil {
			return files, err
		}
		sf.size = fi.Size()
	}
	return files, nil
}

// settle syncs the files to the disk. It computes their checksums at the same time.
func (d *draft) settle(ctx context.Context, files []*sumFile) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, f := range files {
		if failpoint.Mutant("sync-content") {
			break
		}
		// Writing begins at once, and fsync only waits for it. This is a hint: fsync returns the
		// same error later.
		_ = unix.SyncFileRange(int(f.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	for _, f := range files {
		// In parallel, since several fsyncs share one commit of a file system's journal.
		g.Go(func() error {
			// The content of a committed snapshot never changes.
			if err := f.f.Chmod(0o400); err != nil {
				return err
			}
			if failpoint.Mutant("sync-content") {
				return nil
			}
			return f.f.Sync()
		})
	}
	g.Go(func() error { return sumAll(gctx, files, d.s.opts.Workers) })
	if err := g.Wait(); err != nil {
		return err
	}
	return step("commit.synced")
}

// publish makes the snapshot exist.
func (d *draft) publish(m snapshot.Manifest) (err error) {
	b, err := encodeManifest(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.dir, manifestFile), b, 0o600); err != nil {
		return err
	}
	var g errgroup.Group
	for _, path := range []string{filepath.Join(d.dir, manifestFile), d.Dir(), d.dir} {
		g.Go(func() error { return atomicfile.SyncDir(path) }) // of a file it does the same
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := step("commit.manifest"); err != nil {
		return err
	}
	hot := d.s.path(dirHot, string(d.id))
	if err := os.Rename(d.dir, hot); err != nil {
		return err
	}
	if err = step("commit.renamed"); err == nil {
		err = atomicfile.SyncDir(d.s.path(dirHot))
	}
	if err != nil {
		// A snapshot that may not be durable must not exist.
		return errors.Join(err, os.Rename(hot, d.dir))
	}
	return nil
}

// committed adds a new snapshot to the entries and to the packer's queue.
func (s *Store) committed(m snapshot.Manifest) {
	now := time.Now().UnixNano()
	s.mu.Lock()
	delete(s.drafts, m.ID)
	s.unclaim(string(m.ID))
	s.entries[m.ID] = &entry{size: m.Size, added: -1, used: now, made: now, line: m.Line, hot: true}
	s.hot += m.Size
	s.pending = append(s.pending, m.ID)
	s.mu.Unlock()
	s.wakePacker()
}

// wakePacker tells the packer that there is work.
func (s *Store) wakePacker() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
