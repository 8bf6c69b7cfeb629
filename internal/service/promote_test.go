package service

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestSift copies streams with hostile and ordinary names. The old tier's files are left out, no
// name points outside the archive, and a damaged stream is an error instead of a shorter archive.
func TestSift(t *testing.T) {
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	put := func(h tar.Header, body string) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	const mark = "\x7fMARK\n"
	put(tar.Header{Name: "home/user/f", Typeflag: tar.TypeReg, Mode: 0o640, Uid: 1000}, "hello")
	put(tar.Header{Name: "home/user/empty", Typeflag: tar.TypeReg, Mode: 0o600}, "")
	put(tar.Header{Name: "home/user/short", Typeflag: tar.TypeReg, Mode: 0o600}, "\x7f")
	put(tar.Header{Name: "../../etc/x", Typeflag: tar.TypeReg}, "up")
	put(tar.Header{Name: "/root/abs", Typeflag: tar.TypeReg}, "abs")
	put(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg}, "root::0:0")
	put(tar.Header{Name: "home/../etc/group", Typeflag: tar.TypeReg}, "root::0")
	put(tar.Header{Name: "proc/1/x", Typeflag: tar.TypeReg}, "")
	put(tar.Header{Name: "run/carrel/token", Typeflag: tar.TypeReg}, "")
	put(tar.Header{Name: "run/carrelling", Typeflag: tar.TypeReg}, "")
	put(tar.Header{Name: "home/user/stub", Typeflag: tar.TypeReg}, mark+"sort\n")
	put(tar.Header{Name: "usr/local/bin/deploy", Typeflag: tar.TypeReg, Mode: 0o755}, mark+"/deploy\n") // of its owner's
	put(tar.Header{Name: "home/user/stub2", Typeflag: tar.TypeLink, Linkname: "home/user/stub"}, "")
	put(tar.Header{Name: "home/user/hard", Typeflag: tar.TypeLink, Linkname: "/../home/user/f"}, "")
	put(tar.Header{Name: "home/user/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}, "")
	put(tar.Header{Name: "etc/gone", Typeflag: tar.TypeChar}, "")
	put(tar.Header{Name: "usr/bin/jq", Typeflag: tar.TypeChar}, "")
	put(tar.Header{Name: "home/dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}, "")
	put(tar.Header{Name: "home/disk", Typeflag: tar.TypeBlock, Devmajor: 8}, "")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := in.Bytes()
	var out bytes.Buffer
	gone, err := sift(&out, bytes.NewReader(whole), sieve{mark: mark})
	if err != nil || !slices.Equal(gone, []string{"/etc/gone"}) {
		t.Errorf("gone %q, %v", gone, err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimRight(h.Name+" "+h.Linkname+" "+string(b), " "))
	}
	want := []string{"home/user/f  hello", "home/user/empty", "home/user/short  \x7f", "etc/x  up", "root/abs  abs", "run/carrelling", "home/user/hard home/user/f", "home/user/link /etc/shadow"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, n := range []int{100, 513, 515, len(whole) / 2} {
		if _, err := sift(io.Discard, bytes.NewReader(whole[:n]), sieve{mark: mark}); n%512 != 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("of %d bytes: %v", n, err)
		}
	}
}

// TestSiftOfRealPrograms copies the stream of a tier that runs real programs: its users and the
// attributes that programs set come along. A directory that hides the template's begins another
// stream, after the template's was removed.
func TestSiftOfRealPrograms(t *testing.T) {
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range []tar.Header{
		{Name: "etc/passwd", Typeflag: tar.TypeReg},
		{Name: "etc/hosts", Typeflag: tar.TypeReg},
		{Name: "usr/bin/ping", Typeflag: tar.TypeReg, PAXRecords: map[string]string{recordAttr + "security.capability": "\x01", recordAttr + "user.x": "y", recordAttr + "trusted.overlay.origin": "z"}},
		{Name: "etc/apt/", Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{recordOpaque: "y"}},
		{Name: "etc/apt/only", Typeflag: tar.TypeReg},
		{Name: "usr/bin/jq", Typeflag: tar.TypeChar},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	streams := []*bytes.Buffer{{}}
	var cleared []string
	how := sieve{real: true, clear: func(dir string) (io.Writer, error) {
		cleared, streams = append(cleared, dir), append(streams, &bytes.Buffer{})
		return streams[len(streams)-1], nil
	}}
	gone, err := sift(streams[0], &in, how)
	if err != nil || !slices.Equal(gone, []string{"/usr/bin/jq"}) || !slices.Equal(cleared, []string{"/etc/apt"}) {
		t.Fatalf("gone %q, cleared %q, %v", gone, cleared, err)
	}
	want := []string{"etc/passwd usr/bin/ping", "etc/apt etc/apt/only"}
	for i, stream := range streams {
		var names []string
		r := tar.NewReader(stream)
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if names = append(names, h.Name); h.Name == "usr/bin/ping" && (len(h.PAXRecords) != 2 || h.PAXRecords[recordAttr+"user.x"] != "y") {
				t.Errorf("its attributes are %q", h.PAXRecords)
			}
		}
		if got := strings.Join(names, " "); got != want[i] {
			t.Errorf("stream %d has %q, want %q", i, got, want[i])
		}
	}
	how.clear = func(string) (io.Writer, error) { return nil, errors.New("tar is dead") }
	in.Reset()
	w = tar.NewWriter(&in)
	_ = w.WriteHeader(&tar.Header{Name: "d/", Typeflag: tar.TypeDir, PAXRecords: map[string]string{recordOpaque: "y"}})
	if _, err := sift(io.Discard, &in, how); err == nil || !strings.Contains(err.Error(), "tar is dead") {
		t.Errorf("a directory that can't be cleared gives %v", err)
	}
}
