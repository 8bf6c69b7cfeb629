package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/carrel-dev/carrel/internal/sh/tool"
)

// way is the key of the process in a context.
type way struct{}

// transports replaces those of go-git, once for all: what goes over http finds its process in the context, paths find theirs
// by the number in place of a host, and nothing else goes anywhere.
var transports = sync.OnceFunc(func() {
	web := githttp.NewClient(&http.Client{Transport: roundTripper{}})
	for scheme := range client.Protocols {
		client.InstallProtocol(scheme, nil)
	}
	client.InstallProtocol("http", web)
	client.InstallProtocol("https", web)
	client.InstallProtocol("file", server.NewServer(paths{}))
})

// roundTripper sends a request through the process's tool.HTTP.
type roundTripper struct{}

// RoundTrip implements http.RoundTripper.
func (roundTripper) RoundTrip(q *http.Request) (*http.Response, error) {
	g, _ := q.Context().Value(way{}).(*git)
	if g == nil || g.HTTP() == nil {
		return nil, errors.New("this machine has no way out: the sandbox has no network")
	}
	if !g.Step(100) {
		return nil, tool.ErrStop
	}
	req := &tool.Request{Method: q.Method, URL: q.URL.String(), Header: q.Header, Length: q.ContentLength}
	if q.Body != nil && q.Body != http.NoBody {
		req.Body = q.Body
		defer func() { _ = q.Body.Close() }() // it was read
		if req.Length == 0 {
			req.Length = -1
		}
	}
	for _, s := range g.config(nil).values("http.extraheader") {
		if k, v, ok := strings.Cut(s.value, ":"); ok {
			q.Header[http.CanonicalHeaderKey(k)] = []string{strings.TrimSpace(v)}
		}
	}
	req.Insecure = g.config(nil).get("http.sslverify") == "false"
	resp, err := g.HTTP().Do(q.Context(), req)
	if err != nil {
		return nil, err
	}
	head := http.Header{}
	for k, vs := range resp.Header {
		for _, v := range vs {
			head.Add(k, v)
		}
	}
	length := int64(-1)
	if n, err := strconv.ParseInt(head.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{Status: fmt.Sprintf("%d %s", resp.Status, resp.Reason), StatusCode: resp.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: head, Body: &paidBody{resp.Body, g, 0}, ContentLength: length, Request: q}, nil
}

// paidBody pays for what comes in, and for memory until it is closed.
type paidBody struct {
	io.ReadCloser
	g *git
	n int64
}

// Read implements io.Reader.
func (p *paidBody) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	p.n += int64(n)
	if perr := p.g.Pay(int64(n)); perr != nil {
		return n, perr
	}
	if !p.g.Step(1 + n>>7) {
		return n, tool.ErrStop
	}
	return n, err
}

// Close implements io.Closer.
func (p *paidBody) Close() error {
	_ = p.g.Pay(-p.n)
	p.n = 0
	return p.ReadCloser.Close()
}

// paths finds repositories of the machine's disk.
type paths struct{}

var (
	processes   sync.Map // number → *git
	lastProcess atomic.Int64
)

// Load implements server.Loader.
func (paths) Load(e *transport.Endpoint) (storer.Storer, error) {
	x, _ := processes.Load(e.Host)
	g, _ := x.(*git)
	if g == nil {
		return nil, transport.ErrRepositoryNotFound
	}
	dir := path.Clean("/" + e.Path)
	for _, d := range []string{dir, dir + "/.git", dir + ".git"} {
		if g.isRepo(d) {
			return filesystem.NewStorage(&disk{g.Call, d}, cache.NewObjectLRU(4<<20)), nil
		}
	}
	return nil, transport.ErrRepositoryNotFound
}

// link is the connection to a remote repository.
type link struct {
	g      *git
	url    string
	number string
	remote *gogit.Remote
	ctx    context.Context
}

// dial prepares a connection.
func (g *git) dial(store storage.Storer, name, url string, fetch []string) (*link, error) {
	transports()
	l := &link{g: g, ctx: context.WithValue(g.Ctx, way{}, g)}
	target := url
	switch {
	case strings.HasPrefix(url, "http://"), strings.HasPrefix(url, "https://"):
	case strings.HasPrefix(url, "file://"), !strings.Contains(url, "://") && !scpLike(url):
		l.number = "p" + strconv.FormatInt(lastProcess.Add(1), 10)
		processes.Store(l.number, g)
		dir := g.path(strings.TrimPrefix(url, "file://"))
		target = "file://" + l.number + dir
	case strings.HasPrefix(url, "git://"):
		return nil, fatalf("unable to connect: git:// is not available on this machine; use https://")
	default:
		return nil, fatalf("ssh is not available on this machine; use https:// (%s)", url)
	}
	c := &config.RemoteConfig{Name: name, URLs: []string{target}}
	for _, f := range fetch {
		c.Fetch = append(c.Fetch, config.RefSpec(f))
	}
	l.remote = gogit.NewRemote(store, c)
	l.url = url
	return l, nil
}

func (l *link) close() {
	if l.number != "" {
		processes.Delete(l.number)
	}
}

// scpLike reports whether a name is HOST:PATH.
func scpLike(s string) bool {
	i := strings.IndexByte(s, ':')
	return i > 0 && !strings.Contains(s[:i], "/")
}

// words explains an error of a connection as git does.
func (l *link) words(err error) error {
	var denied *tool.Denied
	switch {
	case err == nil:
		return nil
	case errors.As(err, &denied):
		return fatalf("unable to access '%s/': denied by the sandbox's policy: %s", strings.TrimSuffix(l.url, "/"), denied.Reason)
	case errors.Is(err, transport.ErrRepositoryNotFound) && l.number != "":
		return fatalf("'%s' does not appear to be a git repository\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.", l.url)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fatalf("repository '%s/' not found", strings.TrimSuffix(l.url, "/"))
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return fatalf("could not read Username for '%s': terminal prompts disabled", l.url)
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return fatalf("Authentication failed for '%s/'", strings.TrimSuffix(l.url, "/"))
	case l.g.Stopped(err):
		return err
	}
	return fatalf("unable to access '%s/': %s", strings.TrimSuffix(l.url, "/"), strings.TrimPrefix(err.Error(), "Get "))
}

// advertised lists what the remote has; an empty repository has nothing.
func (l *link) advertised() ([]*plumbing.Reference, error) {
	refs, err := l.remote.ListContext(l.ctx, &gogit.ListOptions{})
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return nil, nil
	}
	return refs, l.words(err)
}
