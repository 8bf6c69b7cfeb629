package service_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
)

// file is one file of a fake image, or of a tar stream.
type file struct {
	tar.Header
	data string
}

func reg(name, data string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}, data}
}
func dir(name string) file {
	return file{tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}
func gone(name string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeChar}, ""}
}
func link(name, target string, kind byte) file {
	return file{tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o777}, ""}
}
func opaque(name string) file {
	f := dir(name)
	f.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}
	return f
}
func with(f file, change func(*file)) file {
	change(&f)
	return f
}

func stream(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// imageFiles is an image.Files of a few files.
type imageFiles map[string]file

func (m imageFiles) Lstat(name string) (image.File, error) {
	f, ok := m[name]
	if !ok {
		return image.File{}, fs.ErrNotExist
	}
	return image.File{Mode: f.FileInfo().Mode(), UID: uint32(f.Uid), GID: uint32(f.Gid), Size: f.Header.Size, Target: f.Linkname}, nil
}

func (m imageFiles) List(name string) (out []string, err error) {
	if _, ok := m[name]; !ok {
		return nil, fs.ErrNotExist
	}
	for k := range m {
		if k != "." && path.Dir(k) == name {
			out = append(out, path.Base(k))
		}
	}
	return out, nil
}

func (m imageFiles) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(m[name].data)), nil
}
func (m imageFiles) Close() error { return nil }

// diffImages has one template, with an image of these files.
type diffImages struct {
	fakeImages
	files imageFiles
}

func (d diffImages) Files(context.Context, string) (image.Files, error) { return d.files, nil }

// template returns the files of the root image that these tests use.
func template() imageFiles {
	out := imageFiles{}
	for _, f := range []file{dir("."), dir("etc"), reg("etc/hosts", "localhost"), reg("etc/passwd", "root"), dir("usr"), dir("usr/bin"), reg("usr/bin/a", "AAAA"),
		reg("usr/bin/b", "BBBB"), dir("usr/bin/deep"), reg("usr/bin/deep/c", "C"), link("bin", "usr/bin", tar.TypeSymlink)} {
		out[path.Clean(f.Name)] = f
	}
	return out
}

// diff compares two snapshots made of the tar streams a and b.
func diff(t *testing.T, d *den, a, b []byte) ([]carrel.FileChange, error) {
	t.Helper()
	sb := d.create(t, carrel.CreateOptions{})
	d.moments.set(func() { d.moments.files = a })
	from := d.snap(t, sb.ID, carrel.CauseRequest)
	d.moments.set(func() { d.moments.files = b })
	to := d.snap(t, sb.ID, carrel.CauseRequest)
	defer func() {
		entries, err := os.ReadDir(d.dir)
		for _, e := range entries {
			if _, known := d.Get(t.Context(), carrel.ID(e.Name())); known != nil && e.Name() != ".roots" {
				t.Errorf("left behind: %s", e.Name())
			}
		}
		if err != nil {
			t.Error(err)
		}
	}()
	return d.Diff(t.Context(), from, to)
}

func told(changes []carrel.FileChange) string {
	var out []string
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%s %s", c.Kind, c.Path))
	}
	return strings.Join(out, ", ")
}

func TestDiff(t *testing.T) {
	mode := func(m int64) func(*file) { return func(f *file) { f.Mode = m } }
	now := time.Now()
	for name, c := range map[string]struct {
		a, b []file
		want string
	}{
		"nothing":             {nil, nil, ""},
		"same":                {[]file{reg("x", "1")}, []file{reg("x", "1")}, ""},
		"new":                 {nil, []file{dir("home"), reg("home/x", "1")}, "added /home, added /home/x"},
		"away":                {[]file{dir("home"), reg("home/x", "1")}, nil, "removed /home, removed /home/x"},
		"content":             {[]file{reg("x", "1")}, []file{reg("x", "2")}, "modified /x"},
		"time only":           {[]file{reg("x", "1")}, []file{with(reg("x", "1"), func(f *file) { f.ModTime = now })}, ""},
		"mode":                {[]file{reg("x", "1")}, []file{with(reg("x", "1"), mode(0o4755))}, "mode /x"},
		"owner":               {[]file{reg("x", "1")}, []file{with(reg("x", "1"), func(f *file) { f.Gid = 70000 })}, "mode /x"},
		"content and mode":    {[]file{reg("x", "1")}, []file{with(reg("x", "2"), mode(0o600))}, "modified /x"},
		"type":                {[]file{reg("x", "")}, []file{dir("x"), reg("x/y", "")}, "modified /x, added /x/y"},
		"target":              {[]file{link("x", "a", tar.TypeSymlink)}, []file{link("x", "b", tar.TypeSymlink)}, "modified /x"},
		"hard link":           {[]file{reg("x", "1")}, []file{reg("x", "1"), link("y", "x", tar.TypeLink)}, "added /y"},
		"hard link, other":    {[]file{reg("x", "1"), reg("y", "2")}, []file{reg("x", "1"), link("y", "x", tar.TypeLink)}, "modified /y"},
		"copied up":           {nil, []file{dir("etc"), reg("etc/hosts", "localhost")}, ""},
		"template's content":  {nil, []file{reg("etc/hosts", "LOCALHOST")}, "modified /etc/hosts"},
		"and back":            {[]file{reg("etc/hosts", "LOCALHOST")}, nil, "modified /etc/hosts"},
		"template's mode":     {nil, []file{with(reg("etc/hosts", "localhost"), mode(0o666))}, "mode /etc/hosts"},
		"template's file":     {nil, []file{gone("etc/hosts")}, "removed /etc/hosts"},
		"two files, one link": {nil, []file{gone("etc/hosts"), link("etc/passwd", "etc/hosts", tar.TypeLink)}, "removed /etc/hosts, removed /etc/passwd"},
		"came back":           {[]file{gone("etc/hosts")}, nil, "added /etc/hosts"},
		"no such file":        {nil, []file{gone("etc/nothing")}, ""},
		"template's tree":     {nil, []file{gone("usr/bin")}, "removed /usr/bin, removed /usr/bin/a, removed /usr/bin/b, removed /usr/bin/deep, removed /usr/bin/deep/c"},
		"hidden tree":         {nil, []file{opaque("usr/bin"), reg("usr/bin/a", "AAAA")}, "removed /usr/bin/b, removed /usr/bin/deep, removed /usr/bin/deep/c"},
		"hidden by both":      {[]file{opaque("usr/bin")}, []file{gone("usr/bin")}, "removed /usr/bin"},
		"hidden inside":       {[]file{opaque("usr/bin/deep")}, []file{opaque("usr")}, "removed /usr/bin, removed /usr/bin/a, removed /usr/bin/b, removed /usr/bin/deep"},
		"tree turned file":    {nil, []file{reg("usr/bin", "x")}, "modified /usr/bin, removed /usr/bin/a, removed /usr/bin/b, removed /usr/bin/deep, removed /usr/bin/deep/c"},
		"link turned tree":    {nil, []file{dir("bin"), reg("bin/a", "AAAA")}, "modified /bin, added /bin/a"},
		"root's mode":         {nil, []file{with(dir("."), mode(0o700))}, "mode /"},
		"order":               {nil, []file{reg("a-b", ""), dir("a"), reg("a/c", ""), reg("a.b", "")}, "added /a, added /a-b, added /a.b, added /a/c"},
		"names that climb":    {nil, []file{reg("../../x", "1"), reg("/abs/../y", "1")}, "added /x, added /y"},
		"below a file":        {nil, []file{reg("etc/hosts/x", "1")}, ""},
		"below a removed one": {nil, []file{gone("etc"), reg("etc/x", "1")}, "removed /etc, removed /etc/hosts, removed /etc/passwd"},
		"twice":               {[]file{reg("x", "2")}, []file{reg("x", "1"), reg("x", "2")}, ""},
		"a kind of two minds": {[]file{reg("x", "1")}, []file{with(reg("x", "2"), mode(0o40644))}, "modified /x"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDen(t, func(o *service.Options) { o.Images = diffImages{files: template()} })
			got, err := diff(t, d, stream(t, c.a...), stream(t, c.b...))
			if err != nil {
				t.Fatal(err)
			}
			if told(got) != c.want {
				t.Errorf("got  %s\nwant %s", told(got), c.want)
			}
			for _, x := range got {
				if (x.Before == nil) != (x.Kind == carrel.ChangeAdded) || (x.After == nil) != (x.Kind == carrel.ChangeRemoved) {
					t.Errorf("%s %s: before %+v, after %+v", x.Kind, x.Path, x.Before, x.After)
				}
			}
		})
	}
}

// TestDiffWithoutImage compares snapshots whose root image is unknown, as in tier sim.
func TestDiffWithoutImage(t *testing.T) {
	for name, c := range map[string]struct {
		a, b []file
		want string
	}{
		"new":       {[]file{dir(".")}, []file{dir("."), dir("home"), reg("home/x", "1")}, "added /home/x"},
		"directory": {nil, []file{dir("."), dir("home"), dir("home/new")}, "added /home/new"},
		"away":      {[]file{reg("x", "1")}, nil, "removed /x"},
		"removed":   {nil, []file{gone("etc/hosts")}, "removed /etc/hosts"},
		"changed":   {[]file{dir("home"), reg("home/x", "1")}, []file{dir("home"), reg("home/x", "2")}, "modified /home/x"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDen(t, func(o *service.Options) { o.Images = pathless{} })
			got, err := diff(t, d, stream(t, c.a...), stream(t, c.b...))
			if err != nil || told(got) != c.want {
				t.Errorf("got %s, %v, want %s", told(got), err, c.want)
			}
		})
	}
}

// TestHostileStreams gives the comparison streams that no driver should produce.
func TestHostileStreams(t *testing.T) {
	good := stream(t, reg("x", strings.Repeat("x", 2000)))
	deep := stream(t, reg(strings.Repeat("d/", 600)+"x", ""))
	var many bytes.Buffer
	w := tar.NewWriter(&many)
	for i := range 800 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("x", 90_000)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		files []byte
		kind  carrel.Kind
	}{
		"cut off":        {good[:1000], carrel.Invalid},
		"junk":           {bytes.Repeat([]byte("junk"), 1000), carrel.Invalid},
		"deep":           {deep, carrel.Exhausted},
		"many":           {many.Bytes(), carrel.Exhausted},
		"link to none":   {stream(t, link("y", "nope", tar.TypeLink)), carrel.Invalid},
		"link to itself": {stream(t, link("y", "y", tar.TypeLink)), carrel.Invalid},
		"link to a tree": {stream(t, dir("d"), link("y", "d", tar.TypeLink)), carrel.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDen(t, func(o *service.Options) { o.Images = diffImages{files: template()} })
			if got, err := diff(t, d, stream(t), c.files); !errors.Is(err, c.kind) || len(err.Error()) > 500 {
				t.Errorf("%d changes, %v, want %v", len(got), err, c.kind)
			}
		})
	}
}

// sparse returns a tar stream with one sparse file, in GNU format. The file is one large hole.
func sparse(t *testing.T, hole string, at time.Time) []byte {
	t.Helper()
	body := "1\n0\n0\n"
	body += strings.Repeat("\x00", 512-len(body))
	b := stream(t, with(reg("GNUSparseFile.0/big", body), func(f *file) {
		f.Format, f.ModTime = tar.FormatPAX, at
		f.PAXRecords = map[string]string{"XNU.sparse.major": "1", "XNU.sparse.minor": "0", "XNU.sparse.name": "big", "XNU.sparse.realsize": hole}
	}))
	return bytes.ReplaceAll(b, []byte("XNU.sparse"), []byte("GNU.sparse"))
}

// TestDiffOfHoles compares sparse files of a petabyte, which cost a sandbox nothing to make. The
// comparison ends at once, and only their size and time decide.
func TestDiffOfHoles(t *testing.T) {
	const petabyte = "1125899906842624"
	then := time.Unix(1700000000, 0)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"same":  {sparse(t, petabyte, then), ""},
		"later": {sparse(t, petabyte, then.Add(time.Second)), "modified /big"},
		"other": {sparse(t, petabyte[:15]+"5", then), "modified /big"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDen(t, func(o *service.Options) { o.Images = diffImages{files: template()} })
			got, err := diff(t, d, sparse(t, petabyte, then), c.b)
			if err != nil || told(got) != c.want {
				t.Errorf("got %s, %v, want %s", told(got), err, c.want)
			}
		})
	}
}

// TestDiffFaults compares snapshots that can't be compared.
func TestDiffFaults(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.Images = diffImages{files: template()} })
	sb := d.create(t, carrel.CreateOptions{})
	d.moments.set(func() { d.moments.files = stream(t, reg("x", "1")) })
	a, b := d.snap(t, sb.ID, carrel.CauseRequest), d.snap(t, sb.ID, carrel.CauseRequest)
	if got, err := d.Diff(t.Context(), a, a); err != nil || len(got) != 0 {
		t.Errorf("with itself: %v, %v", got, err)
	}
	if _, err := d.Diff(t.Context(), a, carrel.NewSnapshotID()); !errors.Is(err, carrel.NotFound) {
		t.Errorf("with none: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Diff(ctx, a, b); err == nil {
		t.Error("with a context that had ended it worked")
	}
	d.snaps.VerifyFn = func(id carrel.SnapshotID) error {
		if id == b {
			return &carrel.Error{Op: "verify", Kind: carrel.Invalid, Err: errors.New("memory: its checksum is another")}
		}
		return nil
	}
	if _, err := d.Diff(t.Context(), a, b); !errors.Is(err, carrel.Invalid) || !strings.Contains(err.Error(), "checksum") || !strings.Contains(err.Error(), string(b)) {
		t.Errorf("with a damaged one: %v", err)
	}
	if entries, err := os.ReadDir(d.dir); err != nil || len(entries) != 2 { // .roots and the sandbox
		t.Errorf("left behind: %v, %v", entries, err)
	}
	// A snapshot can't be deleted while it is read, and a deletion stops waiting when its context
	// ends.
	d.snaps.VerifyFn = func(id carrel.SnapshotID) error {
		impatient, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := d.DeleteSnapshot(impatient, string(id)); !errors.Is(err, carrel.Conflict) {
			t.Errorf("deleted while it is read: %v", err)
		}
		return nil
	}
	if _, err := d.Diff(t.Context(), a, b); err != nil {
		t.Error(err)
	}
	d.snaps.VerifyFn = nil
	recs, err := d.store.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A deletion that was requested during the read happens after the read.
	deleted := make(chan error, 1)
	d.snaps.VerifyFn = func(id carrel.SnapshotID) error {
		if id == b {
			go func() { deleted <- d.DeleteSnapshot(context.Background(), string(id)) }()
		}
		return nil
	}
	if _, err := d.Diff(t.Context(), a, b); err != nil {
		t.Error(err)
	}
	if err := <-deleted; err != nil {
		t.Errorf("deleted after it was read: %v", err)
	}
	d.snaps.VerifyFn = nil
	other := recs[0]
	other.Snapshot.ID, other.Snapshot.Template, other.Record.Root = carrel.NewSnapshotID(), "other", "other.erofs"
	e := newDen(t, func(o *service.Options) { o.Images = diffImages{files: template()} }, recs[0], other)
	for _, r := range []carrel.SnapshotID{recs[0].Snapshot.ID, other.Snapshot.ID} {
		if err := os.MkdirAll(e.snaps.dir+"/"+string(r), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(e.snaps.dir+"/"+string(r)+"/files", stream(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Diff(t.Context(), recs[0].Snapshot.ID, other.Snapshot.ID); !errors.Is(err, carrel.Invalid) {
		t.Errorf("of two templates: %v", err)
	}
}
