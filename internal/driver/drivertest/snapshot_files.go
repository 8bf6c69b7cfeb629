package drivertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// treeScript makes the same files as the attack program's part "tree". It is for shells that have
// tools but can't run real programs.
const treeScript = `set -e
mkdir -p /tmp/tree/deep/er/est /tmp/tree/empty-dir /tmp/tree/private
cd /tmp/tree
echo deep > deep/er/est/file
: > empty
echo 'no writing' > read-only; chmod 444 read-only
echo none > no-mode; chmod 0 no-mode
echo suid > setuid; chmod 4755 setuid
echo 'by others' > owned; chmod 640 owned; chown 12345:23456 owned
echo linked > hard-1; ln hard-1 deep/hard-2; ln hard-1 deep/er/hard-3
ln -s deep/er/est/file sym; ln -s /nowhere/at/all dangling; ln -s .. up
for n in -rf ' space ' 'new
line' 'ünï-✓' 'back\slash' "quote'\"" '*' ..dots; do printf %s "$n" > "./$n"; done
printf begin > sparse; truncate -s 20971520 sparse; printf middle >> sparse; truncate -s 41943040 sparse
i=0; while [ $i -lt 4000 ]; do echo "line $i of a file that is larger than one block of anything"; i=$((i+1)); done > big
chmod 1700 private
touch -d '2001-02-03 04:05:06' owned deep`

// makeTree fills /tmp/tree.
func (b *box) makeTree(t testing.TB) {
	t.Helper()
	if b.s.attack == "" {
		b.must(t, treeScript)
		return
	}
	b.upload(t)
	b.run(t, time.Minute, nil, "tree", "/tmp/tree").wantControl(t, "tree")
}

// seen is the guest's description of a file.
type seen struct {
	Mode         fs.FileMode
	Owner, Group string
	Modified     time.Time
	Target       string
	Metadata     string
	Size         int64
	Sum          string // of a file's contents
}

// special stands for the contents of files that the guest does not read: pipes, sockets and
// devices. Otherwise the guest describes them as files.
const special = "special"

// tree describes everything below a directory through the guest.
func (b *box) tree(t testing.TB, dir string) map[string]seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	files := b.conn.Files("root")
	list, err := files.List(ctx, dir, 50)
	if err != nil {
		t.Fatalf("list %s: %v", dir, err)
	}
	out := make(map[string]seen, len(list))
	for _, f := range list {
		s := seen{Mode: f.Mode, Owner: f.Owner, Group: f.Group, Modified: f.Modified.UTC(), Target: f.Target, Metadata: fmt.Sprint(f.Metadata)}
		if f.Mode.IsRegular() {
			s.Size = f.Size
			s.Sum, err = b.sum(ctx, files, f.Path)
			if carrel.KindOf(err) == carrel.Invalid && f.Size == 0 {
				s.Sum, err = special, nil
			}
			if err != nil {
				t.Errorf("read %q: %v", f.Path, err)
			}
		}
		out[f.Path] = s
	}
	return out
}

// sum hashes a file inside.
func (b *box) sum(ctx context.Context, files carrel.Files, name string) (string, error) {
	rc, err := files.Read(ctx, name)
	if err != nil {
		return "", err
	}
	defer rc.Close()
	h := sha256.New()
	if _, err := io.Copy(h, rc); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// wantTree compares two descriptions.
func wantTree(t testing.TB, got, want map[string]seen) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(want)) {
		g, ok := got[p]
		switch w := want[p]; {
		case !ok:
			t.Errorf("%q is missing", p)
		case !g.Modified.Equal(w.Modified):
			t.Errorf("%q was changed at %v, want %v", p, g.Modified, w.Modified)
		default:
			if g.Modified = w.Modified; g != w {
				t.Errorf("%q is %+v, want %+v", p, g, w)
			}
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%q was not there before", p)
		}
	}
}

// modes are the ways in which a snapshot may be taken and restored.
func (s *suite) modes() map[string]driver.SnapshotOptions {
	m := map[string]driver.SnapshotOptions{"files only": {FilesOnly: true}}
	if s.info.Capabilities.MemorySnapshot {
		m["with memory"] = driver.SnapshotOptions{}
	}
	return m
}

func (s *suite) testFilesSurvive(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.makeTree(t)
	before := b.tree(t, "/tmp/tree")
	if len(before) < 25 || before["/tmp/tree/big"].Size < 100_000 || before["/tmp/tree/sparse"].Size != 40<<20 {
		t.Fatalf("the tree was not made: %v", slices.Sorted(maps.Keys(before)))
	}
	if f := before["/tmp/tree/owned"]; !s.OneOwner && (f.Owner != "12345" || f.Group != "23456") || f.Modified.Year() != 2001 {
		t.Errorf("the tree was not made as said: %+v", f)
	}
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			r := s.restore(t, d, b.snapshot(t, opts), driver.RestoreOptions{})
			wantTree(t, r.tree(t, "/tmp/tree"), before)
			r.must(t, "cd /tmp/tree && [ -u setuid ] && [ -k private ] && [ ! -k deep ]")
			// Hard links are still one file, and separate from the original's.
			r.must(t, "cd /tmp/tree && echo more >> deep/hard-2")
			r.want(t, "cd /tmp/tree && cat hard-1 deep/er/hard-3", "linked\nmore\nlinked\nmore")
			r.want(t, "cd /tmp/tree && rm deep/hard-2 && cat hard-1 deep/er/hard-3", "linked\nmore\nlinked\nmore")
		})
	}
	wantTree(t, b.tree(t, "/tmp/tree"), before)
}

func (s *suite) testManyFiles(t *testing.T) {
	n := 5000
	if testing.Short() || s.Slow {
		n = 1000
	}
	d := s.open(t)
	b := s.box(t, d)
	if s.attack == "" {
		b.must(t, fmt.Sprintf(`mkdir /tmp/many; i=0; while [ $i -lt %d ]; do echo "number $i" > /tmp/many/f$((10000+i)); i=$((i+1)); done`, n))
	} else {
		b.upload(t)
		b.run(t, 2*time.Minute, nil, "many", "/tmp/many", fmt.Sprint(n)).wantControl(t, "many")
	}
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "number %d\n", i)
	}
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			r := s.restore(t, d, b.snapshot(t, opts), driver.RestoreOptions{})
			r.want(t, "cd /tmp/many && set -- * && echo $#", fmt.Sprint(n))
			r.want(t, "cd /tmp/many && cat *", strings.TrimSpace(want.String()))
			r.must(t, "rm -r /tmp/many && mkdir /tmp/many && echo new > /tmp/many/new")
			again := s.restore(t, d, r.snapshot(t, opts), driver.RestoreOptions{})
			again.want(t, "cd /tmp/many && cat *", "new")
		})
	}
}

// templateChanges lists the changes that cases make to the template's own files.
type templateChanges struct {
	removed  string   // the path of a program, resolved
	changed  string   // one whose mode was changed
	kept     string   // an unchanged one
	replaced string   // a directory that was removed and made again with one file, "new"
	hidden   []string // its former content, by name
}

// changeTemplate removes, changes and replaces files of the template.
func (b *box) changeTemplate(t testing.TB) templateChanges {
	t.Helper()
	lines := strings.Fields(b.must(t, `for n in touch env wc; do p=$(command -v $n); (cd -P "${p%/*}" && echo "$(pwd -P)/$n"); done`))
	if len(lines) != 3 {
		t.Fatalf("the tools are at %q", lines)
	}
	c := templateChanges{removed: lines[0], changed: lines[1], kept: lines[2]}
	files := b.conn.Files("root")
	c.replaced = "/opt"                            // newly made, if the template has none of these
	for _, dir := range []string{"/opt", "/srv"} { // the guest itself writes to other directories
		if list, err := files.List(t.Context(), dir, 1); err == nil && len(list) > 0 {
			c.replaced = dir
			for _, f := range list {
				c.hidden = append(c.hidden, path.Base(f.Path))
			}
			break
		}
	}
	b.must(t, fmt.Sprintf("rm %s && chmod 700 %s && rm -rf %s && mkdir %[3]s && echo new > %[3]s/new", c.removed, c.changed, c.replaced))
	return c
}

func (s *suite) testTemplateChanges(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	c := b.changeTemplate(t)
	mode, err := b.conn.Files("root").Stat(t.Context(), c.changed)
	if err != nil || mode.Mode.Perm() != 0o700 {
		t.Fatalf("%s: %v, %v", c.changed, mode.Mode, err)
	}
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			r := s.restore(t, d, b.snapshot(t, opts), driver.RestoreOptions{})
			r.want(t, fmt.Sprintf("[ ! -e %s ] && ls %s", c.removed, c.replaced), "new")
			if f, err := r.conn.Files("root").Stat(t.Context(), c.changed); err != nil || f.Mode.Perm() != 0o700 {
				t.Errorf("%s: %v, %v", c.changed, f.Mode, err)
			}
			r.want(t, "echo one | wc -l | while read n; do echo $n; done", "1")
			// A second generation: removed files stay removed, files made again are new.
			r.must(t, "echo back > "+c.removed+" && rm "+c.replaced+"/new")
			again := s.restore(t, d, r.snapshot(t, opts), driver.RestoreOptions{})
			again.want(t, fmt.Sprintf("cat %s; ls %s", c.removed, c.replaced), "back")
		})
	}
}

// fill writes MiB blocks until the disk is full, and prints how many fitted.
const fill = `i=0; mkdir -p /fill; while [ $i -lt %d ] && cat /block > /fill/$i; do i=$((i+1)); done 2>/dev/null; echo $i`

func (s *suite) testDiskAfterRestore(t *testing.T) {
	if !s.info.Capabilities.DiskLimit {
		testenv.Inapplicable(t, "the disk is not limited on this host")
	}
	d := s.open(t)
	b := s.box(t, d)
	half := s.Limits.DiskMB / 2
	if _, err := b.conn.Files("root").Write(t.Context(), "/block", strings.NewReader(strings.Repeat("0123456789abcdef", 1<<16))); err != nil {
		t.Fatal(err)
	}
	b.want(t, fmt.Sprintf(fill, half), fmt.Sprint(half))
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			r := s.restore(t, d, b.snapshot(t, opts), driver.RestoreOptions{})
			st, err := r.in.Stats(t.Context())
			if err != nil || st.Disk < int64(half)<<20 || st.DiskLimit != int64(s.Limits.DiskMB)<<20 {
				t.Errorf("the restored sandbox uses %d of %d bytes, %v", st.Disk, st.DiskLimit, err)
			}
			var n int
			more := strings.ReplaceAll(fmt.Sprintf(fill, 2*s.Limits.DiskMB), "/fill", "/more")
			if _, err := fmt.Sscan(r.must(t, more), &n); err != nil || n < 1 || n > s.Limits.DiskMB-half {
				t.Errorf("%d MiB more fitted into the %d that were left, %v", n, s.Limits.DiskMB-half, err)
			}
			r.want(t, "rm -r /more && echo again > /again && cat /again", "again")
		})
	}
	t.Run("higher limits", func(t *testing.T) {
		spec := s.spec(t)
		spec.Limits.DiskMB *= 2
		spec.Limits.MemoryMB += 64
		r, err := s.tryRestore(t, d, b.snapshot(t, driver.SnapshotOptions{FilesOnly: true}), spec, driver.RestoreOptions{})
		if err != nil {
			t.Fatalf("restore with higher limits: %v", err)
		}
		defer r.destroy(t)
		st, err := r.in.Stats(t.Context())
		if err != nil || st.DiskLimit != int64(spec.Limits.DiskMB)<<20 {
			t.Errorf("the disk limit is %d, %v; want %d MiB", st.DiskLimit, err, spec.Limits.DiskMB)
		}
		if want := int64(spec.Limits.MemoryMB) << 20; s.info.Capabilities.MemoryLimit && st.MemoryLimit != want {
			t.Errorf("the memory limit is %d, want %d", st.MemoryLimit, want)
		}
		more := strings.ReplaceAll(fmt.Sprintf(fill, s.Limits.DiskMB), "/fill", "/more")
		r.want(t, more, fmt.Sprint(s.Limits.DiskMB)) // half of the old limit was full before
	})
}
