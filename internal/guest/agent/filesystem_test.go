package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/filesystem"
	"github.com/carrel-dev/carrel/internal/guest/filesystem/filesystemconnect"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
)

// diskSystem is this machine with one account of its own, whose home is a
// directory of the test. Hooks make what a test machine does not do by itself.
type diskSystem struct {
	*oshost.System
	user    agent.User
	network func(string) bool
	create  func(agent.File) agent.File
	attrs   error
}

func (s *diskSystem) User(name string) (agent.User, error) {
	if name != s.user.Name {
		return agent.User{}, fs.ErrNotExist
	}
	return s.user, nil
}

func (s *diskSystem) IsNetworkMount(name string) (bool, error) {
	if s.network != nil {
		return s.network(name), nil
	}
	return s.System.IsNetworkMount(name)
}

func (s *diskSystem) Create(name string, u agent.User) (agent.File, error) {
	f, err := s.System.Create(name, u)
	if err == nil && s.create != nil {
		f = s.create(f)
	}
	return f, err
}

func (s *diskSystem) SetAttrs(name string, attrs map[string]string) error {
	if s.attrs != nil {
		return s.attrs
	}
	return s.System.SetAttrs(name, attrs)
}

// disk is a served guest whose files are in a directory of the test.
type disk struct {
	testing.TB
	url  string
	home string
	sys  *diskSystem
	fs   filesystemconnect.FilesystemClient
}

// newDisk serves a guest. Its user is "ann", with uid 1000 where that is allowed.
func newDisk(t testing.TB) *disk {
	t.Helper()
	home := t.TempDir()
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 1000, 1000
	}
	sys := &diskSystem{
		System: oshost.New(oshost.Options{}),
		user:   agent.User{Name: "ann", UID: uint32(uid), GID: uint32(gid), Home: home},
	}
	a := agent.New(agent.Config{System: sys, DefaultUser: "ann", Trusted: func(net.Addr) bool { return true }})
	srv := httptest.NewServer(a.Handler())
	t.Cleanup(func() {
		a.Close()
		srv.Close()
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return &disk{TB: t, url: srv.URL, home: home, sys: sys, fs: filesystemconnect.NewFilesystemClient(srv.Client(), srv.URL, connect.WithProtoJSON())}
}

// path is a path in the user's home.
func (d *disk) path(name string) string { return filepath.Join(d.home, name) }

// put makes a file behind the guest's back.
func (d *disk) put(name, contents string) {
	d.Helper()
	if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(d.path(name), []byte(contents), 0o644); err != nil {
		d.Fatal(err)
	}
}

// has checks a file's contents behind the guest's back.
func (d *disk) has(name, want string) {
	d.Helper()
	got, err := os.ReadFile(d.path(name))
	if err != nil {
		d.Fatal(err)
	}
	if string(got) != want {
		d.Fatalf("%s holds %q, want %q", name, got, want)
	}
}

// owned checks that a file belongs to the user.
func (d *disk) owned(name string) {
	d.Helper()
	info, err := os.Lstat(d.path(name))
	if err != nil {
		d.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != d.sys.user.UID || st.Gid != d.sys.user.GID {
		d.Fatalf("%s belongs to %d:%d, want %d:%d", name, st.Uid, st.Gid, d.sys.user.UID, d.sys.user.GID)
	}
}

// setToken sets the access token as the host does.
func (d *disk) setToken(token string) {
	d.Helper()
	body, err := json.Marshal(guest.InitRequest{AccessToken: token})
	if err != nil {
		d.Fatal(err)
	}
	resp, err := http.Post(d.url+"/init", "application/json", bytes.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		d.Fatalf("/init answered %s", resp.Status)
	}
}

// answer is an HTTP answer, read.
type answer struct {
	status int
	header http.Header
	body   string
}

// call makes an HTTP request; nothing is added to its headers.
func (d *disk) call(method, target string, h http.Header, body io.Reader) answer {
	d.Helper()
	req, err := http.NewRequest(method, d.url+target, body)
	if err != nil {
		d.Fatal(err)
	}
	if h != nil {
		req.Header = h.Clone()
	}
	client := http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		d.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// isError checks an answer for envd's error body.
func (d *disk) isError(a answer, status int, message string) {
	d.Helper()
	var e struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		d.Fatalf("answer %d %q: %v", a.status, a.body, err)
	}
	if a.status != status || e.Code != status || !strings.Contains(e.Message, message) {
		d.Fatalf("answered %d {%d %q}, want %d with %q", a.status, e.Code, e.Message, status, message)
	}
}

// fails checks a Connect error.
func (d *disk) fails(err error, code connect.Code, message string) {
	d.Helper()
	if connect.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), message) {
		d.Fatalf("error is %v, want %v with %q", err, code, message)
	}
}

func (d *disk) stat(name string) (*filesystem.EntryInfo, error) {
	resp, err := d.fs.Stat(context.Background(), connect.NewRequest(&filesystem.StatRequest{Path: name}))
	if err != nil {
		return nil, err
	}
	return resp.Msg.GetEntry(), nil
}

func (d *disk) mkdir(name string) error {
	_, err := d.fs.MakeDir(context.Background(), connect.NewRequest(&filesystem.MakeDirRequest{Path: name}))
	return err
}

func (d *disk) move(from, to string) (*filesystem.EntryInfo, error) {
	resp, err := d.fs.Move(context.Background(), connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to}))
	if err != nil {
		return nil, err
	}
	return resp.Msg.GetEntry(), nil
}

func (d *disk) list(name string, depth uint32) ([]string, []*filesystem.EntryInfo, error) {
	resp, err := d.fs.ListDir(context.Background(), connect.NewRequest(&filesystem.ListDirRequest{Path: name, Depth: depth}))
	if err != nil {
		return nil, nil, err
	}
	var paths []string
	for _, e := range resp.Msg.GetEntries() {
		rel, err := filepath.Rel(d.home, e.GetPath())
		if err != nil {
			d.Fatal(err)
		}
		paths = append(paths, rel)
	}
	return paths, resp.Msg.GetEntries(), nil
}

func (d *disk) remove(name string) error {
	_, err := d.fs.Remove(context.Background(), connect.NewRequest(&filesystem.RemoveRequest{Path: name}))
	return err
}

func TestStatDescribesAFile(t *testing.T) {
	d := newDisk(t)
	d.put("dir/a.txt", "hello")
	if err := os.Chmod(d.path("dir/a.txt"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir/a.txt", d.path("dir/a.txt"), "~/dir/a.txt", d.path("dir/../dir//a.txt")} {
		e, err := d.stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name != "a.txt" || e.Path != d.path("dir/a.txt") || e.Type != filesystem.FileType_FILE_TYPE_FILE ||
			e.Size != 5 || e.Mode != 0o640 || e.Permissions != "-rw-r-----" || e.SymlinkTarget != nil {
			t.Errorf("%s: %v", name, e)
		}
		if os.Getuid() == 0 && (e.Owner != "root" || e.Group != "root") {
			t.Errorf("%s belongs to %s:%s", name, e.Owner, e.Group)
		}
		info, err := os.Stat(d.path("dir/a.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if !e.ModifiedTime.AsTime().Equal(info.ModTime()) {
			t.Errorf("modified %v, want %v", e.ModifiedTime.AsTime(), info.ModTime())
		}
	}
	e, err := d.stat("dir")
	if err != nil {
		t.Fatal(err)
	}
	if e.Type != filesystem.FileType_FILE_TYPE_DIRECTORY || e.Permissions != "drwxr-xr-x" {
		t.Errorf("dir: %v", e)
	}
}

func TestStatDescribesLinks(t *testing.T) {
	d := newDisk(t)
	d.put("real/a.txt", "hello")
	for link, target := range map[string]string{"dirlink": "real", "filelink": "real/a.txt", "nowhere": "absent", "loop": "loop"} {
		if err := os.Symlink(target, d.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		link   string
		kind   filesystem.FileType
		target string
		mode   uint32
	}{
		{"dirlink", filesystem.FileType_FILE_TYPE_DIRECTORY, "real", 0o755},
		{"filelink", filesystem.FileType_FILE_TYPE_FILE, "real/a.txt", 0o644},
		{"nowhere", filesystem.FileType_FILE_TYPE_UNSPECIFIED, "nowhere", 0},
		{"loop", filesystem.FileType_FILE_TYPE_UNSPECIFIED, "loop", 0},
	}
	for _, tt := range tests {
		e, err := d.stat(tt.link)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != tt.kind || e.GetSymlinkTarget() != d.path(tt.target) || e.Mode != tt.mode || e.Permissions != "Lrwxrwxrwx" {
			t.Errorf("%s: %v", tt.link, e)
		}
	}
}

func TestStatErrors(t *testing.T) {
	d := newDisk(t)
	d.put("file", "x")
	_, err := d.stat("absent")
	d.fails(err, connect.CodeNotFound, "file not found: lstat "+d.path("absent"))
	_, err = d.stat("file/below")
	d.fails(err, connect.CodeInvalidArgument, "not a directory")
	badPaths(t, func(name, want string) {
		_, err := d.stat(name)
		d.fails(err, connect.CodeInvalidArgument, want)
	})
}

// badPaths calls fn with paths that nothing can have, and what the error says.
func badPaths(t *testing.T, fn func(name, want string)) {
	t.Helper()
	fn("a\x00b", "path has a NUL byte at offset 1")
	fn("/"+strings.Repeat("d/", 2100), "path is 4201 bytes long, more than 4095")
	fn(strings.Repeat("n", 256), "path has a name of 256 bytes, more than 255")
	fn("~bob/x", "cannot expand user-specific home dir")
}

func TestUnknownUser(t *testing.T) {
	d := newDisk(t)
	req := connect.NewRequest(&filesystem.StatRequest{Path: "/"})
	req.Header().Set("Authorization", "Basic Ym9iOg==")
	_, err := d.fs.Stat(context.Background(), req)
	d.fails(err, connect.CodeUnauthenticated, "invalid username: 'bob'")
}

func TestMakeDir(t *testing.T) {
	d := newDisk(t)
	if err := d.mkdir("a/b/c"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		d.owned(dir)
	}
	d.fails(d.mkdir("a/b"), connect.CodeAlreadyExists, "directory already exists: "+d.path("a/b"))
	d.put("file", "x")
	d.fails(d.mkdir("file"), connect.CodeInvalidArgument, "path already exists but it is not a directory: "+d.path("file"))
	d.fails(d.mkdir("file/x/y"), connect.CodeInvalidArgument, "path is a file: "+d.path("file"))
	badPaths(t, func(name, want string) { d.fails(d.mkdir(name), connect.CodeInvalidArgument, want) })
	if err := os.Symlink("nowhere", d.path("dangling")); err != nil {
		t.Fatal(err)
	}
	if err := d.mkdir("dangling/x"); err == nil {
		t.Error("made a directory below a link that leads nowhere")
	}
}

func TestMove(t *testing.T) {
	d := newDisk(t)
	d.put("a.txt", "hello")
	e, err := d.move("a.txt", "new/dir/b.txt")
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != "b.txt" || e.Path != d.path("new/dir/b.txt") || e.Size != 5 {
		t.Errorf("moved: %v", e)
	}
	d.has("new/dir/b.txt", "hello")
	d.owned("new/dir")
	_, err = d.move("a.txt", "other/c.txt")
	d.fails(err, connect.CodeNotFound, "source file not found")
	if _, err := os.Stat(d.path("other")); err == nil {
		t.Error("a move of nothing made a directory")
	}
	d.put("over", "old")
	if _, err := d.move("new/dir/b.txt", "over"); err != nil {
		t.Fatal(err)
	}
	d.has("over", "hello")
	d.put("full/x", "x")
	_, err = d.move("new", "full")
	d.fails(err, connect.CodeAlreadyExists, "error renaming")
	_, err = d.move("new", "new/inside")
	d.fails(err, connect.CodeInvalidArgument, "error renaming")
	_, err = d.move("over", "full/x/y")
	d.fails(err, connect.CodeInvalidArgument, "path is a file: "+d.path("full/x"))
	_, err = d.move("over", "a\x00")
	d.fails(err, connect.CodeInvalidArgument, "destination has a NUL byte")
	_, err = d.move("a\x00", "over")
	d.fails(err, connect.CodeInvalidArgument, "source has a NUL byte")
}

func TestRemove(t *testing.T) {
	d := newDisk(t)
	d.put("dir/a/b", "x")
	d.put("file", "x")
	if err := os.Symlink("file", d.path("link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "link", "absent", "file/below"} {
		if err := d.remove(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.has("file", "x")
	if _, err := os.Lstat(d.path("dir")); err == nil {
		t.Error("dir is still there")
	}
	d.fails(d.remove("/tmp/.."), connect.CodeInvalidArgument, "path is the root directory")
	badPaths(t, func(name, want string) { d.fails(d.remove(name), connect.CodeInvalidArgument, want) })
}

func TestListDir(t *testing.T) {
	d := newDisk(t)
	d.put("top/dir/sub/deep.txt", "x")
	d.put("top/file.txt", "x")
	d.put("top/odd\xffname", "x")
	for link, target := range map[string]string{"top/link": "dir", "loop": "loop", "way": "top"} {
		if err := os.Symlink(target, d.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name  string
		depth uint32
		want  string
	}{
		{"top", 0, "top/dir top/file.txt top/link top/odd�name"},
		{"top", 1, "top/dir top/file.txt top/link top/odd�name"},
		{"top", 2, "top/dir top/dir/sub top/file.txt top/link top/odd�name"},
		{"top", 4294967295, "top/dir top/dir/sub top/dir/sub/deep.txt top/file.txt top/link top/odd�name"},
		{"way", 1, "way/dir way/file.txt way/link way/odd�name"},
		{"top/link", 1, "top/link/sub"},
	}
	for _, tt := range tests {
		got, _, err := d.list(tt.name, tt.depth)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s at depth %d: %q, want %q", tt.name, tt.depth, got, tt.want)
		}
	}
	_, entries, err := d.list("top", 1)
	if err != nil {
		t.Fatal(err)
	}
	if e := entries[2]; e.Type != filesystem.FileType_FILE_TYPE_DIRECTORY || e.GetSymlinkTarget() != d.path("top/dir") {
		t.Errorf("link: %v", e)
	}
	_, _, err = d.list("absent", 1)
	d.fails(err, connect.CodeNotFound, "path not found")
	_, _, err = d.list("top/file.txt", 1)
	d.fails(err, connect.CodeInvalidArgument, "path is not a directory: "+d.path("top/file.txt"))
	_, _, err = d.list("loop", 1)
	d.fails(err, connect.CodeFailedPrecondition, "cyclic symlink")
	badPaths(t, func(name, want string) {
		_, _, err := d.list(name, 1)
		d.fails(err, connect.CodeInvalidArgument, want)
	})
}

func TestEmptyPathIsTheWorkdir(t *testing.T) {
	d := newDisk(t)
	d.put("x", "x")
	got, _, err := d.list("", 1)
	if err != nil || len(got) != 1 || got[0] != "x" {
		t.Fatalf("home: %q, %v", got, err)
	}
}

func TestLargeRequestIsRefused(t *testing.T) {
	d := newDisk(t)
	_, err := d.stat(strings.Repeat("x", 1<<20))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("1 MiB of path: %v", err)
	}
}

// query builds a target of /files.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "/files?" + v.Encode()
}
