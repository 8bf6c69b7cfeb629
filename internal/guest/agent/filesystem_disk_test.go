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

// diskSystem is this machine with one extra account, whose home is a directory of the test. Hooks
// cause events that do not happen on a test machine by themselves.
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

// disk is a running guest whose files are in a directory of the test.
type disk struct {
	testing.TB
	url   string
	home  string
	sys   *diskSystem
	agent *agent.Agent
	fs    filesystemconnect.FilesystemClient
}

// newDisk starts a guest. Its user is "ann", with uid 1000 if the test may set that.
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
	return &disk{TB: t, url: srv.URL, home: home, sys: sys, agent: a, fs: filesystemconnect.NewFilesystemClient(srv.Client(), srv.URL, connect.WithProtoJSON())}
}

// path returns a path in the user's home.
func (d *disk) path(name string) string { return filepath.Join(d.home, name) }

// put makes a file directly on the disk, without the guest.
func (d *disk) put(name, contents string) {
	d.Helper()
	if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(d.path(name), []byte(contents), 0o644); err != nil {
		d.Fatal(err)
	}
}

// has checks a file's contents directly on the disk, without the guest.
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

// call makes an HTTP request with exactly these headers.
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

// query builds a target of /files.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "/files?" + v.Encode()
}
