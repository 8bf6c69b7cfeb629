package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/delta"
)

// thinImages is the part of a [Store] that keeps templates as the difference from another.
type thinImages struct{ *Store }

func thins(s *Store) thinImages { return thinImages{s} }

// A thin template has these two files, and image.erofs only while it is used. base.erofs is a link
// to another template's image, so it takes no space of its own, and it stays when that template
// goes.
const (
	deltaFile = "image.delta"
	baseFile  = "base.erofs"
)

// A delta is worth its making if it saves at least one thinShare-th of the image.
const thinShare = 2

// The moments at which tests stop a thinning or its opposite, by their names in package failpoint.
const (
	pointBased   = "image.thin.based"   // base.erofs is linked
	pointDelta   = "image.thin.delta"   // image.delta is there
	pointThin    = "image.thin.thin"    // image.erofs is gone
	pointWritten = "image.thin.written" // the image is written again, and has no name
	pointWhole   = "image.thin.whole"   // image.erofs is there again
)

// ThinPoints lists the moments at which tests stop a thinning or its opposite.
var ThinPoints = []string{pointBased, pointDelta, pointThin, pointWritten, pointWhole}

// family is one image file, and the templates that are links to it.
type family struct {
	members []*entry
	size    int64 // on the disk
	used    time.Time
}

// Thin implements image.Store.
func (s *Store) Thin(ctx context.Context, opts image.ThinOptions) ([]image.Image, error) {
	const op = "thin templates"
	s.thinning.Lock()
	defer s.thinning.Unlock()
	if thins(s).sharesBlocks() {
		return nil, nil
	}
	families := thins(s).families()
	total := int64(0)
	for _, f := range families {
		total += f.size
	}
	var out []image.Image
	var errs []error
	for _, f := range families {
		idle := s.opts.Now().Sub(f.used)
		many := opts.Budget > 0 && total > opts.Budget
		if idle < opts.Unused && (!many || idle < opts.Young) ||
			opts.May != nil && !opts.May(f.members[0].Image) {
			continue
		}
		saved, err := thins(s).thin(ctx, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.members[0].ID, err))
		}
		if ctx.Err() != nil {
			break
		}
		if saved > 0 {
			img := f.members[0].Image
			img.Size = saved
			out = append(out, img)
			total -= f.size
		}
	}
	return out, archive.Classify(op, errors.Join(errs...))
}

// sharesBlocks reports whether the file system keeps equal blocks of two files once by itself. Then
// thin templates would save nothing.
func (s thinImages) sharesBlocks() bool {
	s.shares.once.Do(func() {
		from, err := os.CreateTemp(s.opts.Dir, ".part-")
		if err != nil {
			return
		}
		defer func() { _ = errors.Join(from.Close(), os.Remove(from.Name())) }()
		to, err := os.CreateTemp(s.opts.Dir, ".part-")
		if err != nil {
			return
		}
		defer func() { _ = errors.Join(to.Close(), os.Remove(to.Name())) }()
		if _, err := from.Write(make([]byte, sampleSize)); err == nil {
			s.shares.able = unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
		}
	})
	return s.shares.able
}

// families returns the images that only templates have as a file: no sandbox, no snapshot and no
// thin template lies on one of them. The one that was used first comes first.
func (s thinImages) families() []*family {
	type file struct{ dev, ino uint64 }
	found, links := map[file]*family{}, map[file]uint64{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.byID {
		var st syscall.Stat_t
		if e.Lazy != nil || s.held[id] > 0 || strings.HasPrefix(e.Name, image.DraftMark) ||
			syscall.Stat(e.Path, &st) != nil {
			continue
		}
		key := file{st.Dev, st.Ino}
		f := found[key]
		if f == nil {
			f = &family{size: st.Blocks * 512}
			found[key], links[key] = f, uint64(st.Nlink)
		}
		f.members = append(f.members, e)
		if used := s.usedLocked(e); used.After(f.used) {
			f.used = used
		}
	}
	var out []*family
	for key, f := range found {
		if uint64(len(f.members)) == links[key] {
			slices.SortFunc(f.members, func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *family) int {
		return cmp.Or(a.used.Compare(b.used), a.members[0].Created.Compare(b.members[0].Created))
	})
	return out
}

// usedLocked returns the time of the last use of a template, as far as this store knows. The caller
// holds mu.
func (s thinImages) usedLocked(e *entry) time.Time {
	last := e.Created
	for _, t := range []time.Time{s.opened, s.used[e.ID]} {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// thin removes an image that can be made again, and makes what is needed for that. It returns how
// many bytes that saved.
func (s thinImages) thin(ctx context.Context, f *family) (saved int64, err error) {
	var st syscall.Stat_t
	if err := syscall.Stat(f.members[0].Path, &st); err != nil || uint64(st.Nlink) > uint64(len(f.members)) {
		return 0, nil // it is gone, or became a base
	}
	var cost int64
	first := ""
	for _, e := range f.members {
		if isThin(filepath.Dir(e.Path)) {
			first = filepath.Dir(e.Path)
			break
		}
	}
	if first == "" {
		first = filepath.Dir(f.members[0].Path)
		if cost, err = s.makeDelta(ctx, first, f); err != nil || cost == 0 {
			return 0, err
		}
	}
	for _, e := range f.members {
		if dir := filepath.Dir(e.Path); dir != first && !isThin(dir) {
			if err := linkThin(first, dir); err != nil {
				return 0, err
			}
		}
	}
	for _, e := range f.members { // the file's number may be another one's soon
		dir := filepath.Dir(e.Path)
		if err := forgetInode(dir); err != nil {
			return 0, err
		}
		s.checks.forget(dir)
	}
	gone, ok := s.hideImages(f)
	for _, name := range gone {
		if rerr := os.Remove(name); !errors.Is(rerr, fs.ErrNotExist) { // makeWhole removes such files too
			err = errors.Join(err, rerr)
		}
	}
	if err != nil || !ok {
		return 0, err
	}
	return f.size - cost, failpoint.Hit(pointThin)
}

// hideImages takes the names of a family's images away, unless one of them was used or held a moment
// ago. [Store.Get] notes the use before it looks for the file, so it finds the file or knows that
// it must make it. ok is false if an image stays.
func (s thinImages) hideImages(f *family) (gone []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range f.members {
		if s.held[e.ID] > 0 || s.usedLocked(e).After(f.used) || s.byID[e.ID] != e {
			return nil, false
		}
	}
	for _, e := range f.members {
		to := filepath.Join(filepath.Dir(e.Path), "part-gone")
		if os.Rename(e.Path, to) == nil {
			gone = append(gone, to)
		}
	}
	return gone, len(gone) == len(f.members)
}

// makeDelta writes the delta of a family's image into a directory, and links its base. It returns
// the size of the delta on the disk; 0 says that no other image is like this one.
func (s thinImages) makeDelta(ctx context.Context, dir string, f *family) (int64, error) {
	table, sums, err := readSums(dir)
	if err != nil || table == nil {
		return 0, err
	}
	img, err := os.Open(filepath.Join(dir, imageFile))
	if err != nil {
		return 0, err
	}
	defer img.Close()
	base, err := s.pickBase(ctx, img, table.Size, f.members[0].Created)
	if err != nil || base == nil {
		return 0, err
	}
	defer base.Close()
	// It is linked first. So the base stays, whatever happens to its template.
	name := filepath.Join(dir, baseFile)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := linkOpen(base, name); err != nil {
		if errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		return 0, err
	}
	done := false
	defer func() {
		if !done {
			_ = os.Remove(name)
		}
	}()
	if err := failpoint.Hit(pointBased); err != nil {
		return 0, err
	}
	out, err := os.CreateTemp(dir, "part-*")
	if err != nil {
		return 0, err
	}
	defer func() { _ = errors.Join(out.Close(), os.Remove(out.Name())) }() // it may have moved on
	if err := delta.Write(ctx, out, base, img); err != nil {
		if errors.Is(err, delta.ErrForm) {
			err = nil
		}
		return 0, err
	}
	size, err := diskSize(out)
	if err != nil || size > f.size/thinShare {
		return 0, err
	}
	k := &checked{table: table, sums: sums}
	if err = delta.Apply(ctx, base, out, nil, k.content); err == nil {
		err = errors.Join(out.Chmod(0o644), out.Sync(), os.Rename(out.Name(),
			filepath.Join(dir, deltaFile)))
	}
	if err != nil {
		return 0, err
	}
	done = true
	return size, errors.Join(atomicfile.SyncDir(dir), failpoint.Hit(pointDelta))
}

// pickBase returns the image with which most blocks of another one are equal; nil if none has
// enough. Only an older image becomes a base, so that of images over one base the base stays.
func (s thinImages) pickBase(ctx context.Context, img *os.File, size int64,
	created time.Time) (*os.File, error) {
	own, err := img.Stat()
	if err != nil {
		return nil, err
	}
	var best *os.File
	most := samples/leastEqual - 1
	for _, path := range s.basePaths(created) {
		if err := ctx.Err(); err != nil {
			return best, err
		}
		o, err := os.Open(path)
		if err != nil {
			continue // it is thin, or was just removed
		}
		info, err := o.Stat()
		if err == nil && !os.SameFile(own, info) {
			if equal, _ := alike(img, o, size); equal > most {
				if best != nil {
					_ = best.Close()
				}
				best, most = o, equal
				continue
			}
		}
		_ = o.Close()
	}
	return best, nil
}

// basePaths returns the images that can be bases of one made at some time: first those that are
// bases, so that there are few; then the built-in templates; then older images, the oldest first.
func (s thinImages) basePaths(created time.Time) []string {
	s.mu.Lock()
	var thin, older []*entry
	for _, e := range s.byID {
		thin = append(thin, e)
		if e.Created.Before(created) {
			older = append(older, e)
		}
	}
	s.mu.Unlock()
	byAge := func(a, b *entry) int { return a.Created.Compare(b.Created) }
	slices.SortFunc(thin, byAge)
	slices.SortFunc(older, byAge)
	var paths []string
	seen := map[uint64]bool{}
	for _, e := range thin {
		path := filepath.Join(filepath.Dir(e.Path), baseFile)
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil && !seen[st.Ino] {
			seen[st.Ino] = true
			paths = append(paths, path)
		}
	}
	for _, t := range append([]*cached{s.host}, s.builtIns.cached()...) {
		if img := t.listed(); img.Path != "" {
			paths = append(paths, img.Path)
		}
	}
	for _, e := range older[:min(len(older), maxCompared)] {
		paths = append(paths, e.Path)
	}
	return paths
}

// isThin reports whether a template's image can be made from its delta.
func isThin(dir string) bool {
	for _, name := range []string{deltaFile, baseFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// linkThin gives a template the delta and the base of an equal one.
func linkThin(from, to string) error {
	for _, name := range []string{baseFile, deltaFile} {
		old := filepath.Join(to, name)
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Link(filepath.Join(from, name), old); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(to)
}

// linkThin makes a template that has the delta of a thin one. ok is false if the template with an ID
// has its image, or no checksum of the whole image.
func (s thinImages) linkThin(ctx context.Context, id string,
	t carrel.Template) (_ image.Image, ok bool, _ error) {
	s.mu.Lock()
	e := s.find(id, "")
	s.mu.Unlock()
	if e == nil {
		return image.Image{}, false, nil
	}
	from := filepath.Dir(e.Path)
	if _, err := os.Stat(e.Path); !errors.Is(err, fs.ErrNotExist) || !isThin(from) {
		return image.Image{}, false, nil
	}
	known, _, err := readSums(from)
	if err != nil || known == nil || known.SHA256 == "" {
		return image.Image{}, false, nil
	}
	img, err := s.put(ctx, t, func(dir string) (int64, *sumsTable, error) {
		return e.Size, known, linkThin(from, dir)
	})
	return img, true, err
}

// forgetInode notes in image.sums that no file is known to be whole. A file that is made later may
// get the number and the time of the present one, and need not be durable when it is used.
func forgetInode(dir string) error {
	table, _, err := readSums(dir)
	if err != nil || table == nil || table.Inode == 0 {
		return err
	}
	table.Inode = 0
	return table.write(dir)
}

// use notes that a template is used, and keeps its image whole until done.
func (s thinImages) use(e *entry) (done func()) {
	mark := func(by int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used[e.ID] = s.opts.Now()
		if s.held[e.ID] += by; s.held[e.ID] <= 0 {
			delete(s.held, e.ID)
		}
		if s.byID[e.ID] == nil { // it was deleted meanwhile
			delete(s.used, e.ID)
		}
	}
	mark(1)
	return func() { mark(-1) }
}

// whole makes the image of a thin template again, if it is not there.
func (s thinImages) whole(ctx context.Context, e *entry) error {
	if _, err := os.Stat(e.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(filepath.Dir(e.Path), deltaFile), &st); err != nil {
		return &fs.PathError{Op: "open", Path: e.Path, Err: fs.ErrNotExist}
	}
	key := fmt.Sprintf("%d/%d", st.Dev, st.Ino) // templates that are equal share one image
	s.wholes.Lock(key)
	defer s.wholes.Unlock(key)
	if _, err := os.Stat(e.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if st.Nlink > 1 && s.linkWhole(e) {
		return nil
	}
	// The next caller needs it as well, so it is made although this one may leave.
	return s.makeWhole(context.WithoutCancel(ctx), filepath.Dir(e.Path))
}

// linkWhole takes the image of an equal template, if that has one.
func (s thinImages) linkWhole(e *entry) bool {
	for _, d := range s.sameFiles(filepath.Join(filepath.Dir(e.Path), deltaFile)) {
		if os.Link(filepath.Join(filepath.Dir(d), imageFile), e.Path) == nil {
			return true
		}
	}
	return false
}

// sameFiles returns the paths under which templates have the same file as one of them, with that
// one.
func (s thinImages) sameFiles(path string) []string {
	own, err := os.Stat(path)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	var all []string
	for _, e := range s.byID {
		all = append(all, filepath.Join(filepath.Dir(e.Path), filepath.Base(path)))
	}
	s.mu.Unlock()
	return slices.DeleteFunc(all, func(p string) bool {
		info, err := os.Stat(p)
		return err != nil || !os.SameFile(own, info)
	})
}

// again makes a thin template's image anew, because it is damaged.
func (s thinImages) again(ctx context.Context, e *entry) error {
	dir := filepath.Dir(e.Path)
	for _, path := range s.sameFiles(e.Path) { // equal templates have the same file
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.checks.forget(filepath.Dir(path))
	}
	err := s.whole(ctx, e)
	if err == nil {
		err = s.checks.quick(ctx, dir)
	}
	return err
}

// removeHalves removes what a thinning left that ended too early, or its opposite.
func removeHalves(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, deltaFile)); errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(filepath.Join(dir, baseFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return removeParts(dir)
}

// makeWhole makes the image of a thin template from its base and its delta. Each chunk is compared
// with its checksum. The file is not synced: after a crash it is read before it is used.
func (s thinImages) makeWhole(ctx context.Context, dir string) (err error) {
	start := time.Now()
	table, sums, err := readSums(dir)
	if err != nil || table == nil {
		return fmt.Errorf("%w: %w", errDamaged, cmp.Or(err, fs.ErrNotExist))
	}
	base, d, err := openParts(dir)
	if err != nil {
		return err
	}
	defer base.Close()
	defer d.Close()
	if err := removeParts(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	writing, stop := keepRoom(ctx, dir)
	defer stop()
	f, err := os.CreateTemp(dir, "part-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }() // it may have moved on
	k := &checked{table: table, sums: sums}
	if err := delta.Apply(writing, base, d, f, k.content); err != nil {
		if errors.Is(err, delta.ErrForm) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return roomError(writing, err)
	}
	when := time.Unix(0, table.Modified)
	err = errors.Join(f.Chmod(0o644), os.Chtimes(f.Name(), when, when), failpoint.Hit(pointWritten))
	if err != nil {
		return err
	}
	v, err := versionOf(f)
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, imageFile))
	}
	if err != nil {
		return err
	}
	s.checks.learn(dir, table, sums, v)
	s.opts.Logger.Info("made a template's image from its base and its delta", "dir", filepath.Base(dir),
		"bytes", v.size, "took", time.Since(start).Round(time.Millisecond))
	return failpoint.Hit(pointWhole)
}

// openParts opens the base and the delta of a thin template.
func openParts(dir string) (base, d *os.File, err error) {
	if base, err = os.Open(filepath.Join(dir, baseFile)); err != nil {
		return nil, nil, err
	}
	if d, err = os.Open(filepath.Join(dir, deltaFile)); err != nil {
		return nil, nil, errors.Join(err, base.Close())
	}
	return base, d, nil
}

// content compares a chunk with its checksum.
func (k *checked) content(at int64, chunk []byte) error {
	if at+int64(len(chunk)) > k.table.Size ||
		xxhash.Sum64(chunk) != binary.BigEndian.Uint64(k.sums[8*(at/sumsChunk):]) {
		return fmt.Errorf("%w between bytes %d and %d: its base or its delta is", errDamaged, at,
			at+int64(len(chunk)))
	}
	return nil
}

// learn notes that a version of an image is whole.
func (c *checks) learn(dir string, table *sumsTable, sums []byte, v fileVersion) {
	k := c.of(dir)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table, k.sums, k.version, k.err = table, sums, v, nil
}

// checkThin reads a thin template's base and delta as a whole, with a pause after each chunk.
func checkThin(ctx context.Context, dir string, pause time.Duration) error {
	table, sums, err := readSums(dir)
	if err != nil || table == nil {
		return err
	}
	base, d, err := openParts(dir)
	if err != nil {
		return err
	}
	defer base.Close()
	defer d.Close()
	k := &checked{table: table, sums: sums}
	err = delta.Apply(ctx, base, d, nil, func(at int64, chunk []byte) error {
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		return k.content(at, chunk)
	})
	if errors.Is(err, delta.ErrForm) {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}
