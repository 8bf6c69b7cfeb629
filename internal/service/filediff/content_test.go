package filediff_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/carrel-dev/carrel/internal/service/filediff"
)

// TestFile reads single files of a layer over an image.
func TestFile(t *testing.T) {
	base := tree{".": {mode: fs.ModeDir | 0o755}, "etc": {mode: fs.ModeDir | 0o755}, "etc/hosts": {mode: 0o644, content: "of the image"},
		"etc/gone": {mode: 0o644, content: "removed"}, "old": {mode: fs.ModeDir | 0o755}, "old/x": {mode: 0o644, content: "hidden"}}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "./etc/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	add(tar.Header{Name: "./etc/motd", Typeflag: tar.TypeReg, Mode: 0o600}, "of the layer")
	add(tar.Header{Name: "etc/gone", Typeflag: tar.TypeChar}, "")
	add(tar.Header{Name: "etc/twin", Typeflag: tar.TypeLink, Linkname: "etc/motd"}, "")
	add(tar.Header{Name: "etc/way", Typeflag: tar.TypeSymlink, Linkname: "/etc/motd"}, "")
	add(tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, "")
	add(tar.Header{Name: "old/", Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}}, "")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"/etc/motd": "of the layer", "/etc/../etc/./motd": "of the layer", "/../../etc/motd": "of the layer", "/etc/hosts": "of the image",
		"/etc/gone": "none", "/old/x": "none", "/nothing": "none", "/etc/motd/x": "none",
		"/out/motd": "none", // no link is followed
		"/etc/way":  "→ /etc/motd", "/etc": "", "/": "",
		"/etc/twin": "at etc/motd",
	} {
		l, err := filediff.ReadKeeping(t.Context(), bytes.NewReader(b.Bytes()), 1<<20, name, 100)
		if err != nil {
			t.Fatal(err)
		}
		f, ok, err := l.File(t.Context(), base, name, 100)
		got := string(f.Content)
		switch e, elsewhere := errors.AsType[filediff.ErrElsewhere](err); {
		case elsewhere:
			got = "at " + e.Name
		case err != nil:
			got = err.Error()
		case !ok:
			got = "none"
		case f.Info.Target != "":
			got = "→ " + f.Info.Target
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// Of a twin, the content is where the stream has it. Of a long file, only the beginning is kept.
	l, err := filediff.ReadKeeping(t.Context(), bytes.NewReader(b.Bytes()), 1<<20, "etc/motd", 6)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok, err := l.File(t.Context(), base, "/etc/twin", 6); err != nil || !ok || string(f.Content) != "of the" || f.Whole || f.Info.Size != 12 {
		t.Errorf("%+v, %v, %v", f, ok, err)
	}
}
