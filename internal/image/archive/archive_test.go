package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"
	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// entry is one entry of a test archive. Without a type it is a regular file.
type entry struct {
	name string
	typ  byte
	body string
	link string
	mode int64
	uid  int
	pax  map[string]string
	size int64 // written in the header instead of the body's size
}

var when = time.Unix(1_600_000_000, 987654321)

func tarball(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.typ, Linkname: e.link, Mode: e.mode, Uid: e.uid, Gid: e.uid,
			ModTime: when, PAXRecords: e.pax, Format: tar.FormatPAX}
		if e.typ == 0 {
			h.Typeflag = tar.TypeReg
			h.Size = int64(len(e.body))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if e.size != 0 {
			h.Size = e.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
		if e.size != 0 {
			return b.Bytes() // cut off where the body ends
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func importer(t testing.TB, limits archive.Limits) archive.Importer {
	dir := t.TempDir()
	return archive.Importer{Limits: limits, NewFile: func() (*os.File, error) { return os.CreateTemp(dir, "part-*") }}
}

// load imports a stream and opens the resulting image.
func load(t testing.TB, raw []byte) (fs.FS, *archive.Result, error) {
	t.Helper()
	f, res, err := importer(t, archive.Limits{}).Stream(context.Background(), bytes.NewReader(raw))
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { f.Close() })
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return img, res, nil
}

func mustLoad(t testing.TB, raw []byte) (fs.FS, *archive.Result) {
	t.Helper()
	img, res, err := load(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	return img, res
}

// listing renders a tree as text for comparing. It leaves out the files that complete adds.
func listing(t testing.TB, img fs.FS) string {
	t.Helper()
	var lines []string
	err := fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch p {
		case ".", "proc", "sys", "dev", "run", "tmp", "etc", "root", ".carrel", "etc/resolv.conf", "etc/hosts":
			return nil
		case "etc/passwd":
			if b, err := fs.ReadFile(img, p); err == nil && string(b) == "root:x:0:0:root:/root:/bin/sh\n" {
				return nil
			}
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := p
		switch {
		case d.IsDir():
			line += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := fs.ReadLink(img, p)
			if err != nil {
				return err
			}
			line += " -> " + to
		case d.Type().IsRegular():
			b, err := fs.ReadFile(img, p)
			if err != nil {
				return err
			}
			line += "=" + string(b)
			if n := info.Sys().(*goerofs.Stat).Nlink; n > 1 {
				line += fmt.Sprintf(" (%d)", n)
			}
		default:
			line += " " + d.Type().String()
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func TestRootFilesystem(t *testing.T) {
	raw := tarball(t,
		entry{name: "./", typ: tar.TypeDir, mode: 0o755},
		entry{name: "./bin/", typ: tar.TypeDir, mode: 0o711, uid: 7},
		entry{name: "./bin/sh", body: "#!", mode: 0o4755, uid: 70000},
		entry{name: "./bin/bash", typ: tar.TypeLink, link: "./bin/sh"},
		entry{name: "lib", typ: tar.TypeSymlink, link: "usr/lib"},
		entry{name: "lib/through", body: "x"},
		entry{name: "fifo", typ: tar.TypeFifo},
		entry{name: "null", typ: tar.TypeChar},
		entry{name: "caps", body: "c", pax: map[string]string{"SCHILY.xattr.security.capability": "\x01"}},
		entry{name: "twice", body: "old"},
		entry{name: "twice", body: "new"},
		entry{name: "etc/passwd", body: "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"},
		entry{name: "etc/resolv.conf", typ: tar.TypeSymlink, link: "../run/stub"},
		entry{name: "etc/hosts", body: "mine\n"},
	)
	img, res := mustLoad(t, raw)
	want := "bin/\nbin/bash=#! (2)\nbin/sh=#! (2)\ncaps=c\netc/passwd=root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n\n" +
		"fifo p---------\nlib -> usr/lib\ntwice=new\nusr/\nusr/lib/\nusr/lib/through=x"
	if got := listing(t, img); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if res.Format != "root filesystem" || res.User != "user" {
		t.Errorf("result %+v", res)
	}
	info, err := fs.Stat(img, "bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*goerofs.Stat); st.UID != 70000 || st.Mode&fs.ModeSetuid == 0 || !info.ModTime().Equal(when) {
		t.Errorf("bin/sh: %v, %+v", info.ModTime(), st)
	}
	resolv, err := fs.ReadFile(img, "etc/resolv.conf")
	if err != nil || !strings.Contains(string(resolv), "nameserver 10.73.0.1") {
		t.Errorf("resolv.conf: %q, %v", resolv, err)
	}
	if hosts, err := fs.ReadFile(img, "etc/hosts"); err != nil || string(hosts) != "mine\n" {
		t.Errorf("hosts: %q, %v", hosts, err)
	}
	for dir, perm := range map[string]fs.FileMode{"tmp": 0o777, ".carrel": 0o755, "proc": 0o555, "root": 0o700} {
		if info, err := fs.Stat(img, dir); err != nil || info.Mode().Perm() != perm {
			t.Errorf("%s: %v %v", dir, info, err)
		}
	}
}

func TestCompression(t *testing.T) {
	raw := tarball(t, entry{name: "f", body: strings.Repeat("text ", 10_000)})
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, _ = g.Write(raw)
	_ = g.Close()
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write(raw)
	_ = z.Close()
	for name, packed := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zs.Bytes()} {
		t.Run(name, func(t *testing.T) {
			img, _ := mustLoad(t, packed)
			if b, err := fs.ReadFile(img, "f"); err != nil || len(b) != 50_000 {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			for cut := range 4 {
				_, _, err := load(t, packed[:len(packed)*(cut+1)/5])
				refused(t, err, carrel.Invalid, "archive")
			}
			broken := bytes.Clone(packed)
			broken[len(broken)-3] ^= 0xff // the checksum
			_, _, err := load(t, broken)
			refused(t, err, carrel.Invalid, "damaged")
		})
	}
}

// refused checks that err has a kind and that its text contains words.
func refused(t testing.TB, err error, kind carrel.Kind, words ...string) {
	t.Helper()
	if carrel.KindOf(err) != kind {
		t.Errorf("error %v is of kind %q, want %q", err, carrel.KindOf(err), kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestHostileArchives(t *testing.T) {
	long := strings.Repeat("n", 256)
	for name, c := range map[string]struct {
		entries []entry
		says    []string
	}{
		"zip slip":              {[]entry{{name: "../../etc/cron.d/x", body: "x"}}, []string{`"../../etc/cron.d/x"`, ".."}},
		"zip slip inside":       {[]entry{{name: "a/../../x", body: "x"}}, []string{"a/../../x"}},
		"absolute":              {[]entry{{name: "/etc/passwd", body: "x"}}, []string{`"/etc/passwd"`, "absolute"}},
		"hard link out":         {[]entry{{name: "l", typ: tar.TypeLink, link: "../../etc/shadow"}}, []string{`"l"`, "hard link"}},
		"hard link absolute":    {[]entry{{name: "l", typ: tar.TypeLink, link: "/etc/shadow"}}, []string{`"l"`, "hard link"}},
		"hard link nowhere":     {[]entry{{name: "l", typ: tar.TypeLink, link: "etc/shadow"}}, []string{`"l"`, "etc/shadow"}},
		"hard link through out": {[]entry{{name: "s", typ: tar.TypeSymlink, link: "../../../../etc"}, {name: "l", typ: tar.TypeLink, link: "s/shadow"}}, []string{`"l"`}},
		"hard link to dir":      {[]entry{{name: "d", typ: tar.TypeDir}, {name: "l", typ: tar.TypeLink, link: "d"}}, []string{`"l"`, "directory"}},
		"hard link to root":     {[]entry{{name: "l", typ: tar.TypeLink, link: "."}}, []string{`"l"`, "root"}},
		"root a file":           {[]entry{{name: ".", body: "x"}}, []string{`"."`, "root"}},
		"through a file":        {[]entry{{name: "f", body: "x"}, {name: "f/g", body: "y"}}, []string{`"f/g"`, "no directory"}},
		"link circle":           {[]entry{{name: "a", typ: tar.TypeSymlink, link: "b"}, {name: "b", typ: tar.TypeSymlink, link: "a"}, {name: "a/x", body: "x"}}, []string{`"a/x"`, "links"}},
		"long name":             {[]entry{{name: long, body: "x"}}, []string{"256 bytes"}},
		"long target":           {[]entry{{name: "l", typ: tar.TypeSymlink, link: strings.Repeat("n", 4096)}}, []string{`"l"`, "4096"}},
		"no target":             {[]entry{{name: "l", typ: tar.TypeSymlink}}, []string{`"l"`}},
		"too deep":              {[]entry{{name: strings.Repeat("d/", 1500) + "f", body: "x"}}, []string{"deep"}},
		"cut off":               {[]entry{{name: "big", body: "x", size: 5000}}, []string{`"big"`, "ends in the middle"}},
		"etc a file":            {[]entry{{name: "etc", body: "x"}}, []string{"/etc"}},
		"nothing in it":         {nil, []string{"no files"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, tarball(t, c.entries...))
			refused(t, err, carrel.Invalid, c.says...)
		})
	}
	for name, raw := range map[string]string{"empty": "", "text": "hello, this is no archive at all" + strings.Repeat(" ", 600),
		"zip": "PK\x03\x04rest", "xz": "\xfd7zXZ\x00rest", "gzip of text": "\x1f\x8b\x08\x00xx"} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, []byte(raw))
			refused(t, err, carrel.Invalid)
		})
	}
}

// TestTricksStayInside shows the results of odd but harmless archives.
func TestTricksStayInside(t *testing.T) {
	img, _ := mustLoad(t, tarball(t,
		entry{name: "out", typ: tar.TypeSymlink, link: "../../../../tmp/out"},
		entry{name: "out/file", body: "inside"}, // above the root is the root
		entry{name: "abs", typ: tar.TypeSymlink, link: "/srv"},
		entry{name: "abs/file", body: "inside too"},
		entry{name: "dir/f", body: "1"},
		entry{name: "dir", body: "now a file"},
		entry{name: "self", body: "s"},
		entry{name: "self", typ: tar.TypeLink, link: "self"},
		entry{name: ".carrel", typ: tar.TypeSymlink, link: "etc"}, // would put the guest over /etc
		entry{name: "proc", body: "in the way"},
		entry{name: ".wh.literal", body: "no layer: a name like others"},
	))
	want := ".wh.literal=no layer: a name like others\nabs -> /srv\ndir=now a file\nout -> ../../../../tmp/out\nself=s\nsrv/\nsrv/file=inside too\n" +
		"tmp/out/\ntmp/out/file=inside"
	if got := listing(t, img); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for _, dir := range []string{".carrel", "proc"} {
		if entries, err := fs.ReadDir(img, dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
}

func TestLimits(t *testing.T) {
	many := make([]entry, 50)
	for i := range many {
		many[i] = entry{name: fmt.Sprintf("d%d/f", i), body: "0123456789"}
	}
	raw := tarball(t, many...)
	for name, c := range map[string]struct {
		limits archive.Limits
		field  string
	}{
		"bytes":   {archive.Limits{MaxBytes: 499}, "MaxBytes"},
		"entries": {archive.Limits{MaxEntries: 99}, "MaxEntries"}, // implied parent directories count too
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := importer(t, c.limits).Stream(context.Background(), bytes.NewReader(raw))
			refused(t, err, carrel.Exhausted, c.field)
		})
	}
	f, _, err := importer(t, archive.Limits{MaxBytes: 500, MaxEntries: 100}).Stream(context.Background(), bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("exactly at the limits: %v", err)
	}
	_ = f.Close()

	// A bomb in skipped content is bounded, too.
	var gz bytes.Buffer
	g, err := gzip.NewWriterLevel(&gz, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = g.Write(raw)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = g.Write(zeros)
	}
	_ = g.Close()
	_, _, err = importer(t, archive.Limits{MaxBytes: 1000, MaxEntries: 200}).Stream(context.Background(), &gz)
	refused(t, err, carrel.Exhausted, "MaxBytes")
}

// stream fails after its contents, like a broken connection.
type stream struct {
	r   io.Reader
	err error
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err == io.EOF {
		err = s.err
	}
	return n, err
}

func TestBrokenStream(t *testing.T) {
	raw := tarball(t, entry{name: "f", body: strings.Repeat("x", 100_000)})
	broken := fmt.Errorf("connection reset")
	_, _, err := importer(t, archive.Limits{}).Stream(context.Background(), &stream{bytes.NewReader(raw[:50_000]), broken})
	refused(t, err, carrel.Internal, "connection reset") // not the archive's fault
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = importer(t, archive.Limits{}).Stream(ctx, bytes.NewReader(raw))
	refused(t, err, carrel.TimedOut)
}

// sampleLayers returns the layers of an image, and the tree that they must give.
func sampleLayers(t testing.TB) ([][]byte, string) {
	return [][]byte{
			tarball(t,
				entry{name: "etc/passwd", body: "root:x:0:0::/:/bin/sh\napp:x:1234:1234::/:/bin/sh\n"},
				entry{name: "gone", body: "1"}, entry{name: "gonedir/a", body: "1"}, entry{name: "gonedir/b/c", body: "1"},
				entry{name: "kept", body: "1"}, entry{name: "opaque/-below", body: "1"}, entry{name: "opaque/zbelow", body: "1"},
				entry{name: "opaque/sub/below", body: "1"},
				entry{name: "replaced", body: "1"}, entry{name: "dirtofile/x", body: "1"}, entry{name: "filetodir", body: "1"},
				entry{name: "usr/lib/", typ: tar.TypeDir}, entry{name: "lib", typ: tar.TypeSymlink, link: "usr/lib"},
				entry{name: "both", body: "1"}, entry{name: "target", body: "linked"},
			),
			tarball(t,
				entry{name: "opaque/-mine", body: "2"},
				entry{name: "opaque/sub/mine", body: "2"},
				entry{name: "opaque/.wh..wh..opq"},
				entry{name: "opaque/zmine", body: "2"},
				entry{name: ".wh.gone"}, entry{name: ".wh.gonedir"}, entry{name: ".wh.never"},
				entry{name: "replaced", body: "2"}, entry{name: "dirtofile", body: "2"},
				entry{name: "filetodir/", typ: tar.TypeDir}, entry{name: "filetodir/x", body: "2"},
				entry{name: "lib/new", body: "2"},
				entry{name: "both", body: "2"}, entry{name: ".wh.both"}, // concerns the layer below only
				entry{name: "link", typ: tar.TypeLink, link: "target"},
				entry{name: ".wh..wh.plnk/", typ: tar.TypeDir},
			),
		}, "both=2\ndirtofile=2\netc/passwd=root:x:0:0::/:/bin/sh\napp:x:1234:1234::/:/bin/sh\n\nfiletodir/\nfiletodir/x=2\nkept=1\n" +
			"lib -> usr/lib\nlink=linked (2)\nopaque/\nopaque/-mine=2\nopaque/sub/\nopaque/sub/mine=2\nopaque/zmine=2\nreplaced=2\ntarget=linked (2)\nusr/\nusr/lib/\nusr/lib/new=2"
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func configJSON(t testing.TB, arch string, layers [][]byte) []byte {
	diffs := make([]string, len(layers))
	for i, l := range layers {
		diffs[i] = "sha256:" + sum(l)
	}
	raw, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": arch, "rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
		"config": map[string]any{"Env": []string{"PATH=/opt/bin:/bin", "EMPTY=", "A=b=c"}, "WorkingDir": "/srv/app", "User": "1234:99",
			"Entrypoint": []string{"/entry", "-x"}, "Cmd": []string{"serve"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// dockerSave returns an archive as "docker save" writes it, in the old form with links between
// layers.
func dockerSave(t testing.TB, layers [][]byte) []byte {
	cfg := configJSON(t, runtime.GOARCH, layers)
	var entries []entry
	var names []string
	for i, l := range layers {
		names = append(names, fmt.Sprintf("l%d/layer.tar", i))
		entries = append(entries, entry{name: fmt.Sprintf("store/l%d.tar", i), body: string(l)},
			entry{name: names[i], typ: tar.TypeSymlink, link: fmt.Sprintf("../store/l%d.tar", i)})
	}
	m, err := json.Marshal([]map[string]any{{"Config": sum(cfg) + ".json", "RepoTags": []string{"app:1"}, "Layers": names}})
	if err != nil {
		t.Fatal(err)
	}
	entries = append(entries, entry{name: sum(cfg) + ".json", body: string(cfg)}, entry{name: "manifest.json", body: string(m)})
	return tarball(t, entries...)
}

// ociLayout returns an OCI layout's files: an index of an index, for two platforms.
func ociLayout(t testing.TB, layers [][]byte) map[string][]byte {
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	blob := func(mediaType string, b []byte) map[string]any {
		files["blobs/sha256/"+sum(b)] = b
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + sum(b), "size": len(b)}
	}
	marshal := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var ls []map[string]any
	for i, l := range layers {
		var packed bytes.Buffer
		mt := "application/vnd.oci.image.layer.v1.tar+gzip"
		if i%2 == 0 {
			g := gzip.NewWriter(&packed)
			_, _ = g.Write(l)
			_ = g.Close()
		} else {
			mt = "application/vnd.oci.image.layer.v1.tar+zstd"
			z, _ := zstd.NewWriter(&packed)
			_, _ = z.Write(l)
			_ = z.Close()
		}
		ls = append(ls, blob(mt, packed.Bytes()))
	}
	manifest := func(arch string) map[string]any {
		d := blob("application/vnd.oci.image.manifest.v1+json", marshal(map[string]any{"schemaVersion": 2,
			"config": blob("application/vnd.oci.image.config.v1+json", configJSON(t, arch, layers)), "layers": ls}))
		d["platform"] = map[string]any{"os": "linux", "architecture": arch}
		return d
	}
	inner := blob("application/vnd.oci.image.index.v1+json", marshal(map[string]any{"schemaVersion": 2,
		"manifests": []any{manifest("s390x"), manifest(runtime.GOARCH)}}))
	files["index.json"] = marshal(map[string]any{"schemaVersion": 2, "manifests": []any{inner}})
	return files
}

func tarOf(t testing.TB, files map[string][]byte) []byte {
	var entries []entry
	for name, b := range files {
		entries = append(entries, entry{name: name, body: string(b)})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	return tarball(t, entries...)
}

func TestImages(t *testing.T) {
	layers, want := sampleLayers(t)
	check := func(t *testing.T, img fs.FS, res *archive.Result, format string) {
		t.Helper()
		if got := listing(t, img); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
		if res.Format != format || res.User != "app" || res.WorkDir != "/srv/app" || strings.Join(res.Start, " ") != "/entry -x serve" ||
			res.Env["PATH"] != "/opt/bin:/bin" || res.Env["A"] != "b=c" || !strings.HasPrefix(res.Digest, "sha256:") {
			t.Errorf("result %+v", res)
		}
		if v, ok := res.Env["EMPTY"]; !ok || v != "" {
			t.Errorf("EMPTY is %q, %v", v, ok)
		}
	}
	t.Run("docker archive", func(t *testing.T) {
		img, res := mustLoad(t, dockerSave(t, layers))
		check(t, img, res, "docker archive")
	})
	t.Run("OCI archive", func(t *testing.T) {
		img, res := mustLoad(t, tarOf(t, ociLayout(t, layers)))
		check(t, img, res, "OCI layout")
	})
	t.Run("OCI directory", func(t *testing.T) {
		dir := t.TempDir()
		for name, b := range ociLayout(t, layers) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f, res, err := importer(t, archive.Limits{}).Dir(context.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		img, err := goerofs.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		check(t, img, res, "OCI layout")
	})
}

// TestTablesOfContents leaves out the files that belong to a layer's format, and no others: only in
// layers of the format, and only at the root.
func TestTablesOfContents(t *testing.T) {
	names := []string{"stargz.index.json", ".no.prefetch.landmark", ".prefetch.landmark"}
	entries := []entry{{name: "dir/stargz.index.json", body: "mine"}}
	for _, n := range names {
		entries = append(entries, entry{name: n, body: "theirs"})
	}
	for _, isStargz := range []bool{true, false} {
		src := layersOf(t, tarball(t, entries...))
		src.Layers[0].Stargz = isStargz
		f, _, err := importer(t, archive.Limits{}).Image(context.Background(), src, "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		img, err := goerofs.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := fs.ReadFile(img, "dir/stargz.index.json"); err != nil || string(b) != "mine" {
			t.Errorf("a file of the image: %q %v", b, err)
		}
		for _, n := range names {
			if _, err := fs.Stat(img, n); errors.Is(err, fs.ErrNotExist) != isStargz {
				t.Errorf("a layer of the format: %v, %s: %v", isStargz, n, err)
			}
		}
	}
}

func TestBadImages(t *testing.T) {
	layers, _ := sampleLayers(t)
	with := func(change func(files map[string][]byte)) []byte {
		files := ociLayout(t, layers)
		change(files)
		return tarOf(t, files)
	}
	blobs := func(files map[string][]byte, holds string, change func(name string)) {
		for name, b := range files {
			if strings.HasPrefix(name, "blobs/") && bytes.Contains(b, []byte(holds)) {
				change(name)
			}
		}
	}
	for name, c := range map[string]struct {
		raw  []byte
		kind carrel.Kind
		says string
	}{
		"config missing": {with(func(f map[string][]byte) { blobs(f, `"rootfs"`, func(n string) { delete(f, n) }) }), carrel.Invalid, "missing"},
		"config changed": {with(func(f map[string][]byte) {
			blobs(f, `"rootfs"`, func(n string) { f[n] = bytes.ReplaceAll(f[n], []byte("/entry"), []byte("/other")) })
		}), carrel.Invalid, "match"},
		"layer changed": {with(func(f map[string][]byte) {
			blobs(f, "\x1f\x8b", func(n string) {
				if bytes.HasPrefix(f[n], []byte{0x1f, 0x8b}) {
					var b bytes.Buffer
					g := gzip.NewWriter(&b)
					_, _ = g.Write(tarball(t, entry{name: "evil", body: "x"}))
					_ = g.Close()
					f[n] = b.Bytes()
				}
			})
		}), carrel.Invalid, "digest"},
		"index broken":      {with(func(f map[string][]byte) { f["index.json"] = []byte("{") }), carrel.Invalid, "index.json"},
		"index empty":       {with(func(f map[string][]byte) { f["index.json"] = []byte(`{"schemaVersion":2,"manifests":[]}`) }), carrel.Unsupported, "without images"},
		"index without end": {with(func(f map[string][]byte) { delete(f, "index.json") }), carrel.Invalid, ""},
		"other platform": {tarOf(t, func() map[string][]byte {
			f := ociLayout(t, layers)
			var idx string
			blobs(f, "s390x", func(n string) {
				if bytes.Contains(f[n], []byte(`"manifests"`)) {
					idx = string(f[n])
				}
			})
			idx = strings.ReplaceAll(idx, `"architecture":"`+runtime.GOARCH+`"`, `"architecture":"riscv64"`)
			f["index.json"] = []byte(idx)
			return f
		}()), carrel.Unsupported, "riscv64"},
		"docker layer missing": {tarball(t, entry{name: "manifest.json", body: `[{"Config":"c.json","Layers":["nope"]}]`},
			entry{name: "c.json", body: string(configJSON(t, runtime.GOARCH, layers[:1]))}), carrel.Invalid, "nope"},
		"docker layer count": {tarball(t, entry{name: "manifest.json", body: `[{"Config":"c.json","Layers":[]}]`},
			entry{name: "c.json", body: string(configJSON(t, runtime.GOARCH, layers[:1]))}), carrel.Invalid, "layers"},
		"two images": {tarball(t, entry{name: "manifest.json", body: `[{"Config":"a","RepoTags":["one:1"]},{"Config":"b","RepoTags":["two:2"]}]`}), carrel.Invalid, "two:2"},
		"wrong machine": {tarball(t, entry{name: "manifest.json", body: `[{"Config":"c.json","Layers":[]}]`},
			entry{name: "c.json", body: string(configJSON(t, "s390x", nil))}), carrel.Unsupported, "s390x"},
		"layer outside": {tarball(t, entry{name: "manifest.json", body: `[{"Config":"c.json","Layers":["../../../etc/passwd"]}]`},
			entry{name: "c.json", body: string(configJSON(t, runtime.GOARCH, layers[:1]))}), carrel.Invalid, "etc/passwd"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, c.raw)
			if name == "index without end" { // then it is a root filesystem with odd names
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, err, c.kind, c.says)
		})
	}
}

// TestProgress checks that reports never go backwards and reach the end.
func TestProgress(t *testing.T) {
	layers, _ := sampleLayers(t)
	var seen []carrel.Progress
	imp := importer(t, archive.Limits{})
	imp.Meter = image.NewMeter(func(p carrel.Progress) { seen = append(seen, p) })
	f, _, err := imp.Stream(context.Background(), bytes.NewReader(dockerSave(t, layers)))
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	imp.Meter.Flush()
	last := carrel.Progress{}
	for _, p := range seen {
		if p.Stage == last.Stage && p.Done < last.Done && p.Done != 0 || p.Total > 0 && p.Done > p.Total {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
	}
	if last.Stage != image.StageWrite || last.Done == 0 {
		t.Errorf("last report is %+v", last)
	}
}

func FuzzImportTar(f *testing.F) {
	layers, _ := sampleLayers(f)
	for _, l := range layers {
		f.Add(l)
	}
	f.Add(dockerSave(f, layers))
	f.Add(tarOf(f, ociLayout(f, layers)))
	f.Add(tarball(f, entry{name: "../x", body: "x"}))
	f.Add(tarball(f, entry{name: "/x", body: "x"}, entry{name: "l", typ: tar.TypeLink, link: "/etc/shadow"}))
	f.Add(tarball(f, entry{name: "a", typ: tar.TypeSymlink, link: ".."}, entry{name: "a/a/b", typ: tar.TypeDir}, entry{name: "n", typ: tar.TypeBlock}))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		imp := importer(t, archive.Limits{MaxBytes: 1 << 20, MaxEntries: 1000})
		out, _, err := imp.Stream(context.Background(), bytes.NewReader(raw))
		if err != nil {
			if k := carrel.KindOf(err); k == carrel.Internal || k == "" {
				t.Fatalf("a bad archive is our fault: %v", err)
			}
			return
		}
		defer out.Close()
		img, err := goerofs.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		err = fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.Type()&fs.ModeDevice != 0 || strings.Contains("/"+p+"/", "/../") {
				return fmt.Errorf("%s is %v", p, d.Type())
			}
			if d.Type().IsRegular() {
				_, err = fs.ReadFile(img, p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestUsers shows the account that each kind of USER becomes.
func TestUsers(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/:/bin/sh"
	for _, c := range []struct{ passwd, spec, want, added string }{
		{passwd, "", "root", ""},
		{passwd, "0", "root", ""},
		{passwd, "0:0", "root", ""},
		{passwd, "app", "app", ""},
		{passwd, "app:staff", "app", ""},
		{passwd, "1234", "app", ""},
		{passwd, "77:88", "u77", "\nu77:x:77:88::/:/bin/sh\n"},
		{passwd, "nobody", "nobody", ""}, // the guest will report that it does not exist
		{passwd + "\nuser:x:1000:1000::/home/user:/bin/sh\n", "", "user", ""},
		{passwd + "\nuser:x:1000:1000::/home/user:/bin/sh\n", "0", "root", ""},
		{"", "", "root", "root:x:0:0:root:/root:/bin/sh\n"},
		{"", "65532:65532", "u65532", "root:x:0:0:root:/root:/bin/sh\nu65532:x:65532:65532::/:/bin/sh\n"},
	} {
		t.Run(c.spec, func(t *testing.T) {
			entries := []entry{{name: "bin/app", body: "x"}}
			if c.passwd != "" {
				entries = append(entries, entry{name: "etc/passwd", body: c.passwd})
			}
			layer := tarball(t, entries...)
			cfg := bytes.ReplaceAll(configJSON(t, runtime.GOARCH, [][]byte{layer}), []byte("1234:99"), []byte(c.spec))
			img, res := mustLoad(t, tarball(t, entry{name: "manifest.json", body: `[{"Config":"c.json","Layers":["l.tar"]}]`},
				entry{name: "c.json", body: string(cfg)}, entry{name: "l.tar", body: string(layer)}))
			got, err := fs.ReadFile(img, "etc/passwd")
			if err != nil || res.User != c.want || string(got) != c.passwd+c.added {
				t.Errorf("user %q, passwd %q, %v", res.User, got, err)
			}
		})
	}
}
