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
	gone, err := sift(&out, bytes.NewReader(whole), mark)
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
		if _, err := sift(io.Discard, bytes.NewReader(whole[:n]), mark); n%512 != 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("of %d bytes: %v", n, err)
		}
	}
}
