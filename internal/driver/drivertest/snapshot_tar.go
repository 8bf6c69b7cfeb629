package drivertest

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
)

// entry is an entry of a tar stream, with the hash of its contents.
type entry struct {
	*tar.Header
	sum string
}

// readTar reads a stream to its end and checks the names. Its keys are names without the slash
// after a directory's name and without a leading "./", which some writers add.
func readTar(r io.Reader) (map[string]entry, error) {
	out := map[string]entry{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if path.IsAbs(h.Name) {
			return out, fmt.Errorf("an absolute name: %q", h.Name)
		}
		for _, part := range strings.Split(h.Name, "/") {
			if part == ".." {
				return out, fmt.Errorf("a name that climbs: %q", h.Name)
			}
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if _, twice := out[name]; twice {
			return out, fmt.Errorf("%q is there twice", name)
		}
		if h.Typeflag == tar.TypeLink {
			target := strings.TrimPrefix(strings.TrimPrefix(h.Linkname, "./"), "/")
			if first, ok := out[target]; !ok || first.Typeflag != tar.TypeReg {
				return out, fmt.Errorf("%q is a hard link to %q, which did not come before", name, h.Linkname)
			}
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, tr); err != nil {
			return out, fmt.Errorf("%q: %w", name, err)
		}
		out[name] = entry{h, hex.EncodeToString(sum.Sum(nil))}
	}
}

// whiteout reports whether an entry is a whiteout.
func (e entry) whiteout() bool {
	return e.Header != nil && e.Typeflag == tar.TypeChar && e.Devmajor == 0 && e.Devminor == 0
}

// opaque reports whether an entry is a directory that hides the image's.
func (e entry) opaque() bool {
	return e.Header != nil && e.Typeflag == tar.TypeDir && e.PAXRecords["SCHILY.xattr.trusted.overlay.opaque"] == "y"
}

// files opens a snapshot's files and reads them.
func (s *suite) files(t testing.TB, d driver.Driver, m moment) map[string]entry {
	t.Helper()
	spec := s.spec(t)
	rc, err := restorer(t, d).SnapshotFiles(t.Context(), m.dir, m.info, spec)
	if err != nil {
		t.Fatalf("the snapshot's files: %v", err)
	}
	out, err := readTar(rc)
	if err != nil {
		t.Errorf("the snapshot's files: %v", err)
	}
	if err := rc.Close(); err != nil {
		t.Errorf("close the snapshot's files: %v", err)
	}
	s.wantGone(t, spec)
	return out
}

func (s *suite) testTar(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.makeTree(t)
	tree := b.tree(t, "/tmp/tree")
	c := b.changeTemplate(t)
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			m := b.snapshot(t, opts)
			got := s.files(t, d, m)
			s.wantTarTree(t, got, tree)
			wantTarChanges(t, got, c)
			if again := s.files(t, d, m); len(again) != len(got) {
				t.Errorf("read twice: %d entries, then %d", len(got), len(again))
			}
			// A snapshot of a restored sandbox has the same files.
			r := s.restore(t, d, m, driver.RestoreOptions{})
			second := s.files(t, d, r.snapshot(t, opts))
			s.wantTarTree(t, second, tree)
			wantTarChanges(t, second, c)
		})
	}
	t.Run("closed early", func(t *testing.T) { s.testTarClosedEarly(t, d, b) })
}

// wantTarTree compares a stream with the guest's description of the tree.
func (s *suite) wantTarTree(t testing.TB, got map[string]entry, tree map[string]seen) {
	t.Helper()
	links := map[string]entry{}
	for p, want := range tree {
		name := strings.TrimPrefix(p, "/")
		e, ok := got[name]
		if !ok {
			t.Errorf("%q is not in the stream", name)
			continue
		}
		if e.Typeflag == tar.TypeLink {
			links[name] = e
			e = got[strings.TrimPrefix(strings.TrimPrefix(e.Linkname, "./"), "/")]
		}
		// The guest describes a link by its target's mode, and a pipe only as no regular file. It
		// does not report the special bits.
		if mode := e.FileInfo().Mode(); want.Target == "" && want.Sum != special && want.Mode&fs.ModeIrregular == 0 && mode&(fs.ModeType|fs.ModePerm) != want.Mode&(fs.ModeType|fs.ModePerm) {
			t.Errorf("%q is %v in the stream, want %v", name, mode, want.Mode)
		}
		if d := e.ModTime.Sub(want.Modified); d.Abs() > time.Microsecond {
			t.Errorf("%q was changed at %v in the stream, want %v", name, e.ModTime, want.Modified)
		}
		if want.Mode.IsRegular() && want.Sum != special && (e.sum != want.Sum || e.Size != want.Size) {
			t.Errorf("%q has %d bytes in the stream, want %d, or they differ", name, e.Size, want.Size)
		}
	}
	for name, target := range map[string]string{"sym": "deep/er/est/file", "dangling": "/nowhere/at/all", "up": ".."} {
		if e := got["tmp/tree/"+name]; e.Header == nil || e.Typeflag != tar.TypeSymlink || e.Linkname != target {
			t.Errorf("the link %q is %+v in the stream, want one to %q", name, e.Header, target)
		}
	}
	if e, ok := tree["/tmp/tree/fifo"]; ok && (e.Sum == special || e.Mode&fs.ModeIrregular != 0) && got["tmp/tree/fifo"].Typeflag != tar.TypeFifo {
		t.Errorf("the pipe is %+v in the stream", got["tmp/tree/fifo"].Header)
	}
	for name, mode := range map[string]int64{"setuid": 0o4755, "private": 0o1700, "no-mode": 0, "owned": 0o640} {
		if e := got["tmp/tree/"+name]; e.Header == nil || e.Mode&0o7777 != mode {
			t.Errorf("%q is %+v in the stream, want mode %#o", name, e.Header, mode)
		}
	}
	if len(links) != 2 {
		t.Errorf("%d hard links in the stream, want 2 to the third", len(links))
	}
	if e := got["tmp/tree/owned"]; e.Header != nil && !s.OneOwner && (e.Uid != 12345 || e.Gid != 23456) {
		t.Errorf("the owner is %d:%d in the stream", e.Uid, e.Gid)
	}
	for name, e := range got {
		if strings.HasPrefix(name, "tmp/tree/") && tree["/"+name].Mode == 0 && name != "tmp/tree/no-mode" {
			t.Errorf("%q (%c) is in the stream, but not in the sandbox", name, e.Typeflag)
		}
	}
}

// wantTarChanges checks a stream's entries for the template's own files.
func wantTarChanges(t testing.TB, got map[string]entry, c templateChanges) {
	t.Helper()
	rel := func(p string) string { return strings.TrimPrefix(p, "/") }
	if !got[rel(c.removed)].whiteout() {
		t.Errorf("the removed %s is no whiteout in the stream: %+v", c.removed, got[rel(c.removed)].Header)
	}
	if e := got[rel(c.changed)]; e.Header == nil || e.Mode&0o7777 != 0o700 || e.Size == 0 {
		t.Errorf("the changed %s: %+v", c.changed, e.Header)
	}
	if e, ok := got[rel(c.kept)]; ok {
		t.Errorf("%s, which nobody touched, is in the stream: %+v", c.kept, e.Header)
	}
	if e := got[rel(c.replaced)+"/new"]; e.Header == nil || e.Typeflag != tar.TypeReg {
		t.Errorf("the new file in %s: %+v", c.replaced, e.Header)
	}
	for _, name := range c.hidden {
		if p := rel(c.replaced) + "/" + name; !got[rel(c.replaced)].opaque() && !got[p].whiteout() {
			t.Errorf("%s was removed with its directory; the stream says %+v", p, got[p].Header)
		}
	}
}

// testTarClosedEarly checks that a reader who closes the stream early leaves nothing behind.
func (s *suite) testTarClosedEarly(t *testing.T, d driver.Driver, b *box) {
	b.load(t, 16)
	m := b.snapshot(t, driver.SnapshotOptions{})
	warm := s.files(t, d, m) // the first one sets up lasting objects
	if len(warm) == 0 {
		t.Error("no files")
	}
	before := s.trace(t, d)
	for _, n := range []int64{0, 1, 512, 100_000, 5 << 20} {
		spec := s.spec(t)
		rc, err := restorer(t, d).SnapshotFiles(t.Context(), m.dir, m.info, spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, rc, n); err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes: %v", n, err)
		}
		for range 2 {
			if err := rc.Close(); err != nil {
				t.Errorf("close after %d bytes: %v", n, err)
			}
		}
		if k, err := rc.Read(make([]byte, 1)); err == nil && k > 0 {
			t.Error("a closed stream goes on")
		}
		s.wantGone(t, spec)
	}
	before.wantSame(t)
}
