package agent_test

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestDownload(t *testing.T) {
	d := newDisk(t)
	d.put("dir/a b.txt", "hello world")
	a := d.call("GET", query("path", "dir/a b.txt"), nil, nil)
	if a.status != 200 || a.body != "hello world" {
		t.Fatalf("answer: %+v", a)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Content-Length": "11", "Vary": "Accept-Encoding",
		"Content-Disposition": `inline; filename="a b.txt"`, "Accept-Ranges": "bytes",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	d.put("文档.bin", "\x00\x01")
	a = d.call("GET", query("path", "文档.bin"), nil, nil)
	if got := a.header.Get("Content-Disposition"); got != "inline; filename*=utf-8''%E6%96%87%E6%A1%A3.bin" {
		t.Errorf("Content-Disposition: %q", got)
	}
	a = d.call("HEAD", query("path", "dir/a b.txt"), nil, nil)
	if a.status != 200 || a.body != "" || a.header.Get("Content-Length") != "11" {
		t.Errorf("HEAD: %+v", a)
	}
	d.put("empty", "")
	if a = d.call("GET", query("path", "empty"), nil, nil); a.status != 200 || a.body != "" || a.header.Get("Content-Length") != "0" {
		t.Errorf("empty: %+v", a)
	}
}

func TestDownloadErrors(t *testing.T) {
	d := newDisk(t)
	d.put("dir/file", "x")
	if err := syscall.Mkfifo(d.path("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", d.path("loop")); err != nil {
		t.Fatal(err)
	}
	get := func(pairs ...string) answer { return d.call("GET", query(pairs...), nil, nil) }
	d.isError(get("path", "dir"), 400, "path '"+d.path("dir")+"' is a directory")
	d.isError(get("path", "absent"), 404, "path '"+d.path("absent")+"' does not exist")
	d.isError(get("path", "dir/file/x"), 400, "error checking if path exists '"+d.path("dir/file/x")+"'")
	d.isError(get("path", "loop"), 400, "error checking if path exists")
	d.isError(get("path", "fifo"), 400, "is not a regular file")
	d.isError(get(), 400, "is a directory")
	d.isError(get("path", "x", "username", "bob"), 401, "error looking up user 'bob'")
}

func TestDownloadRanges(t *testing.T) {
	d := newDisk(t)
	d.put("a", "0123456789")
	tests := []struct {
		name   string
		header http.Header
		status int
		body   string
	}{
		{"first", http.Header{"Range": {"bytes=0-3"}}, 206, "0123"},
		{"middle", http.Header{"Range": {"bytes=4-5"}}, 206, "45"},
		{"suffix", http.Header{"Range": {"bytes=-2"}}, 206, "89"},
		{"open", http.Header{"Range": {"bytes=8-"}}, 206, "89"},
		{"past the end", http.Header{"Range": {"bytes=8-100"}}, 206, "89"},
		{"outside", http.Header{"Range": {"bytes=10-11"}}, 416, ""},
		{"nonsense", http.Header{"Range": {"bytes=b-a"}}, 416, ""},
		{"with gzip", http.Header{"Range": {"bytes=0-1"}, "Accept-Encoding": {"gzip"}}, 206, "01"},
		{"not changed", http.Header{"If-Modified-Since": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}, 304, ""},
	}
	for _, tt := range tests {
		a := d.call("GET", query("path", "a"), tt.header, nil)
		if a.status != tt.status || tt.body != "" && a.body != tt.body || a.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %+v", tt.name, a)
		}
	}
}

func TestDownloadEncodings(t *testing.T) {
	d := newDisk(t)
	text := strings.Repeat("hello world ", 200_000)
	d.put("a.txt", text)
	for accept, want := range map[string]string{
		"": "", "identity": "", "gzip": "gzip", "GZIP;q=0.5": "gzip", "br": "", "*": "", "gzip, deflate": "gzip",
		"identity;q=0.5, gzip;q=1": "gzip", "gzip;q=0.2, identity;q=0.7": "", "gzip;q=0": "",
		"identity;q=0, *": "gzip", "*;q=0, gzip": "gzip", "br;q=1, gzip;q=0.1": "gzip",
	} {
		a := d.call("GET", query("path", "a.txt"), http.Header{"Accept-Encoding": {accept}}, nil)
		if a.status != 200 || a.header.Get("Content-Encoding") != want || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%q: %d %v", accept, a.status, a.header)
		}
		body := a.body
		if want == "gzip" {
			body = gunzipped(t, body)
		}
		if body != text {
			t.Errorf("%q: the contents differ", accept)
		}
	}
	for accept, message := range map[string]string{
		"identity;q=0":                  "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]",
		"*;q=0":                         "no acceptable encoding found",
		"br, identity;q=0, gzip;q=0, *": "no acceptable encoding found",
	} {
		d.isError(d.call("GET", query("path", "a.txt"), http.Header{"Accept-Encoding": {accept}}, nil), 406, message)
	}
	h := http.Header{"Accept-Encoding": {"gzip; q=1,*; q=0"}, "Range": {"bytes=0-4"}}
	d.isError(d.call("GET", query("path", "a.txt"), h, nil), 406, "identity encoding not acceptable for Range or conditional request")
}

func TestDownloadOfProc(t *testing.T) {
	d := newDisk(t)
	want, err := os.ReadFile("/proc/version")
	testenv.Need(t, "proc", err)
	if a := d.call("GET", query("path", "/proc/version"), nil, nil); a.status != 200 || a.body != string(want) {
		t.Errorf("answer: %+v", a)
	}
}
