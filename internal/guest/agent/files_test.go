package agent_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// uploaded is one file in the answer to an upload.
type uploaded struct {
	Name, Path, Type string
	Metadata         map[string]string
}

// octets returns the header for a body that is the file.
func octets() http.Header { return http.Header{"Content-Type": {"application/octet-stream"}} }

// post uploads a file as the body and returns the only entry of the answer.
func (d *disk) post(name, contents string, h http.Header) uploaded {
	d.Helper()
	a := d.call("POST", query("path", name), h, strings.NewReader(contents))
	files := d.filesOf(a)
	if len(files) != 1 {
		d.Fatalf("answer: %s", a.body)
	}
	return files[0]
}

// filesOf reads the answer to an upload.
func (d *disk) filesOf(a answer) []uploaded {
	d.Helper()
	var files []uploaded
	if err := json.Unmarshal([]byte(a.body), &files); err != nil || a.status != 200 {
		d.Fatalf("answered %d %q", a.status, a.body)
	}
	return files
}

// formFile is one part of a form.
type formFile struct{ field, name, contents string }

// form makes a multipart body and its header.
func (d *disk) form(files ...formFile) (http.Header, *bytes.Buffer) {
	d.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, f := range files {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {mime.FormatMediaType("form-data", map[string]string{"name": f.field, "filename": f.name})}})
		if err != nil {
			d.Fatal(err)
		}
		if _, err := io.WriteString(part, f.contents); err != nil {
			d.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		d.Fatal(err)
	}
	return http.Header{"Content-Type": {w.FormDataContentType()}}, &body
}

func gzipped(t testing.TB, s string) string {
	var b bytes.Buffer
	z := stdgzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gunzipped(t testing.TB, s string) string {
	z, err := stdgzip.NewReader(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestUploadAsBody(t *testing.T) {
	d := newDisk(t)
	got := d.post("new/dir/a.txt", "hello", octets())
	if got.Name != "a.txt" || got.Path != d.path("new/dir/a.txt") || got.Type != "file" || got.Metadata != nil {
		t.Errorf("answer: %+v", got)
	}
	d.has("new/dir/a.txt", "hello")
	for _, name := range []string{"new", "new/dir", "new/dir/a.txt"} {
		d.owned(name)
	}
	h := octets()
	h.Set("Content-Encoding", "gzip")
	d.post("~/z", gzipped(t, "plain"), h)
	d.has("z", "plain")
	d.post("empty", "", octets())
	d.has("empty", "")
}

func TestUploadOverwrites(t *testing.T) {
	d := newDisk(t)
	d.put("a", "a long old text")
	if err := os.Chmod(d.path("a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(d.path("a"), d.path("hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", d.path("soft")); err != nil {
		t.Fatal(err)
	}
	d.post("soft", "new", octets())
	d.has("a", "new")
	d.has("hard", "new")
	d.owned("a")
	if info, err := os.Lstat(d.path("soft")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is now %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(d.path("a")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode is now %v, %v", info.Mode(), err)
	}
}

func TestUploadForm(t *testing.T) {
	d := newDisk(t)
	big := strings.Repeat("0123456789abcdef", 200_000) // 3.2 MB: several chunks
	h, body := d.form(
		formFile{"file", "one.txt", "1"},
		formFile{"note", "ignored.txt", "no"},
		formFile{"file", "sub/dir/two.txt", big},
		formFile{"file", d.path("naïve file.txt"), "3"},
		formFile{"file", "~/four", ""},
	)
	files := d.filesOf(d.call("POST", "/files", h, body))
	for i, want := range []string{"one.txt", "sub/dir/two.txt", "naïve file.txt", "four"} {
		if files[i].Path != d.path(want) || files[i].Name != filepath.Base(want) {
			t.Errorf("file %d: %+v", i, files[i])
		}
	}
	d.has("one.txt", "1")
	d.has("sub/dir/two.txt", big)
	d.has("naïve file.txt", "3")
	d.has("four", "")
	if _, err := os.Stat(d.path("ignored.txt")); err == nil {
		t.Error("a part that is no file was stored")
	}
}

func TestUploadFormWithPath(t *testing.T) {
	d := newDisk(t)
	h, body := d.form(formFile{"file", "other.txt", "1"})
	files := d.filesOf(d.call("POST", query("path", "given.txt"), h, body))
	if len(files) != 1 || files[0].Path != d.path("given.txt") {
		t.Errorf("files: %+v", files)
	}
	h, body = d.form(formFile{"file", "x", "1"}, formFile{"file", "y", "2"})
	a := d.call("POST", query("path", "given.txt"), h, body)
	d.isError(a, 400, "you cannot upload multiple files to the same path '"+d.path("given.txt")+"' in one upload request, only the first specified file was uploaded")
	h, body = d.form()
	if a := d.call("POST", "/files", h, body); a.status != 200 || strings.TrimSpace(a.body) != "[]" {
		t.Errorf("no files: %d %s", a.status, a.body)
	}
	h, body = d.form(formFile{"file", "a", "1"}, formFile{"file", "b", "2"}, formFile{"file", "c", "3"}, formFile{"file", "./a", "4"})
	d.isError(d.call("POST", "/files", h, body), 400, "also the following files were uploaded: "+d.path("b")+", "+d.path("c"))
	d.has("a", "1")
}

func TestUploadGzipForm(t *testing.T) {
	d := newDisk(t)
	h, body := d.form(formFile{"file", "a", "1"}, formFile{"file", "b", "2"})
	h.Set("Content-Encoding", "gzip")
	if files := d.filesOf(d.call("POST", "/files", h, strings.NewReader(gzipped(t, body.String())))); len(files) != 2 {
		t.Errorf("files: %+v", files)
	}
	d.has("b", "2")
}

func TestUploadErrors(t *testing.T) {
	d := newDisk(t)
	d.put("dir/file", "x")
	if err := syscall.Mkfifo(d.path("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", d.path("loop")); err != nil {
		t.Fatal(err)
	}
	with := func(pairs ...string) http.Header {
		h := octets()
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	tests := []struct {
		name, target string
		header       http.Header
		body         string
		status       int
		message      string
	}{
		{"no path", "/files", octets(), "x", 400, "path query parameter is required for raw body upload"},
		{"a directory", query("path", "dir"), octets(), "x", 400, "path is a directory: " + d.path("dir")},
		{"the home", query("path", ""), octets(), "x", 400, "path is a directory: " + d.home},
		{"below a file", query("path", "dir/file/x"), octets(), "x", 400, "error ensuring directories: path is a file: " + d.path("dir/file")},
		{"a pipe", query("path", "fifo"), octets(), "x", 400, "path is not a regular file"},
		{"a loop of links", query("path", "loop"), octets(), "x", 400, "error getting file info"},
		{"a type", query("path", "x"), with("Content-Type", "application/json"), "{}", 400, "unsupported content type: application/json, expected multipart/form-data or application/octet-stream"},
		{"no type", query("path", "x"), http.Header{"Content-Type": nil}, "{}", 400, "unsupported content type: ,"},
		{"no boundary", query("path", "x"), with("Content-Type", "multipart/form-data"), "x", 400, "error parsing multipart form: no multipart boundary"},
		{"a broken form", query("path", "x"), with("Content-Type", "multipart/form-data; boundary=b"), "--b\r\nContent-Di", 400, "error reading form"},
		{"an encoding", query("path", "x"), with("Content-Encoding", "br"), "x", 400, "error decompressing request body: unsupported Content-Encoding: br, supported: [gzip]"},
		{"no gzip", query("path", "x"), with("Content-Encoding", "gzip"), "plain text here", 400, "error decompressing request body"},
		{"cut gzip", query("path", "x"), with("Content-Encoding", "gzip"), gzipped(t, "hello")[:15], 400, "error writing file"},
		{"a user", query("path", "x", "username", "bob"), octets(), "x", 401, "error looking up user 'bob': user: unknown user bob"},
		{"a query", "/files?path=%zz", octets(), "x", 400, "invalid query"},
		{"an expiry", query("path", "x", "signature_expiration", "soon"), octets(), "x", 400, "signature_expiration is not a number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d.TB = t
			d.isError(d.call("POST", tt.target, tt.header, strings.NewReader(tt.body)), tt.status, tt.message)
		})
	}
	d.TB = t
	badPaths(t, func(name, want string) {
		d.isError(d.call("POST", query("path", name), octets(), strings.NewReader("x")), 400, want)
		d.isError(d.call("GET", query("path", name), nil, nil), 400, want)
	})
	noName := "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n"
	a := d.call("POST", "/files", http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, strings.NewReader(noName))
	d.isError(a, 400, "error getting multipart custom part file name: filename not found in Content-Disposition header")
	a = d.call("PUT", "/files", nil, nil)
	d.isError(a, 405, "method PUT is not allowed here")
	if a.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
}

// fullDisk is a file on a disk with room for n more bytes.
type fullDisk struct {
	agent.File
	n int
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if len(p) > f.n {
		return 0, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	}
	f.n -= len(p)
	return f.File.Write(p)
}

func TestFullDisk(t *testing.T) {
	d := newDisk(t)
	d.sys.create = func(f agent.File) agent.File { return &fullDisk{f, 10} }
	a := d.call("POST", query("path", "x"), octets(), strings.NewReader("more than ten bytes"))
	d.isError(a, 507, "attempted to write 19 bytes: not enough disk space available")
	a = d.call("POST", query("path", "x"), octets(), io.MultiReader(strings.NewReader("more than ten bytes"))) // chunked
	d.isError(a, 507, "not enough disk space available")
	d.put("part", "more than ten bytes")
	a = d.call("POST", "/files/compose", nil, strings.NewReader(`{"source_paths":["part"],"destination":"whole"}`))
	d.isError(a, 507, "not enough disk space available")
	d.has("part", "more than ten bytes")
	if names, _ := filepath.Glob(d.path(".carrel-*")); names != nil {
		t.Errorf("left behind: %q", names)
	}
}

func TestAbortedUploadLeavesNothing(t *testing.T) {
	d := newDisk(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\nhalf", query("path", "x"))
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(reply), "400 Bad Request") || !strings.Contains(string(reply), "error writing file: unexpected EOF") {
		t.Fatalf("answer: %q, %v", reply, err)
	}
	_ = conn.Close()
	if names, err := os.ReadDir(d.home); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

func TestMetadata(t *testing.T) {
	d := newDisk(t)
	d.put("probe", "")
	testenv.Need(t, "xattr", d.sys.System.SetAttrs(d.path("probe"), map[string]string{"a": "b"}))
	h := octets()
	h.Set("X-Metadata-Author", "ann")
	h.Set("x-metadata-Purpose", "a test, here")
	h.Set("X-Metadata-", "dropped")
	got := d.post("m", "x", h)
	if fmt.Sprint(got.Metadata) != "map[author:ann purpose:a test, here]" {
		t.Errorf("answer: %v", got.Metadata)
	}
	e, err := d.stat("m")
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(e.Metadata) != "map[author:ann purpose:a test, here]" {
		t.Errorf("stat: %v", e.Metadata)
	}
	_, entries, err := d.list("", 1)
	if err != nil || fmt.Sprint(entries[0].Metadata) != "map[author:ann purpose:a test, here]" {
		t.Errorf("list: %v, %v", entries, err)
	}
	if err := d.sys.System.SetAttrs(d.path("probe"), map[string]string{"good": "yes", "bad": "\xff"}); err != nil {
		t.Fatal(err)
	}
	if e, err = d.stat("probe"); err != nil || fmt.Sprint(e.Metadata) != "map[good:yes]" {
		t.Errorf("a value that is no text: %v, %v", e, err)
	}
	if got := d.post("m", "x", octets()); got.Metadata != nil {
		t.Errorf("an upload without metadata kept %v", got.Metadata)
	}
	fh, body := d.form(formFile{"file", "f1", "1"}, formFile{"file", "f2", "2"})
	fh.Set("X-Metadata-K", "v")
	for _, f := range d.filesOf(d.call("POST", "/files", fh, body)) {
		if f.Metadata["k"] != "v" {
			t.Errorf("%s: %v", f.Name, f.Metadata)
		}
	}
	if _, err := d.move("f1", "f3"); err != nil {
		t.Fatal(err)
	}
	if e, err = d.stat("f3"); err != nil || e.Metadata["k"] != "v" {
		t.Errorf("after a move: %v, %v", e, err)
	}
}

func TestMetadataErrors(t *testing.T) {
	d := newDisk(t)
	for _, tt := range []struct{ key, value, want string }{
		{strings.Repeat("k", 247), "v", "exceeds 246 bytes"},
		{"k", "naïve", "metadata value for key \"k\" contains non-printable-ASCII byte 0xc3 at offset 2"},
		{"k", "a\tb", "contains non-printable-ASCII byte 0x09"},
		{"k", strings.Repeat("v", 4096), "total metadata size 4106 exceeds 4096 bytes"},
	} {
		h := octets()
		h.Set("X-Metadata-"+tt.key, tt.value)
		d.isError(d.call("POST", query("path", "x"), h, strings.NewReader("x")), 400, "invalid metadata: ")
		d.isError(d.call("POST", query("path", "x"), h, strings.NewReader("x")), 400, tt.want)
	}
	if _, err := os.Stat(d.path("x")); err == nil {
		t.Error("a refused upload was stored")
	}
	h := octets()
	h.Set("X-Metadata-K", "v")
	d.sys.attrs = syscall.ENOTSUP
	if got := d.post("x", "x", h); got.Metadata != nil {
		t.Errorf("a file system without attributes kept %v", got.Metadata)
	}
	d.sys.attrs = syscall.ENOSPC
	d.isError(d.call("POST", query("path", "x"), h, strings.NewReader("x")), 507, "not enough space for file metadata")
}
