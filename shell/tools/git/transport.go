package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage"

	"github.com/carrel-dev/carrel/shell/tool"
)

// way is the context key of the process.
type way struct{}

// transports replaces go-git's transports, once per process. Requests over http find their
// machine's process in the context. Paths need no transport. All other transports are removed.
var transports = sync.OnceFunc(func() {
	web := githttp.NewClient(&http.Client{Transport: roundTripper{}})
	for scheme := range client.Protocols {
		client.InstallProtocol(scheme, nil)
	}
	client.InstallProtocol("http", web)
	client.InstallProtocol("https", web)
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

// paidBody pays for the bytes it reads, and for their memory until it is closed.
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

// link is the connection to a remote repository, over http or on the machine's own disk.
type link struct {
	g      *git
	store  storage.Storer // ours
	url    string
	remote *gogit.Remote
	near   *repo // on the disk
	ctx    context.Context
}

// dial prepares a connection.
func (g *git) dial(store storage.Storer, url string) (*link, error) {
	transports()
	l := &link{g: g, store: store, url: url, ctx: context.WithValue(g.Ctx, way{}, g)}
	switch {
	case strings.HasPrefix(url, "http://"), strings.HasPrefix(url, "https://"):
		l.remote = gogit.NewRemote(store, &config.RemoteConfig{Name: "origin", URLs: []string{url}})
	case strings.HasPrefix(url, "file://"), !strings.Contains(url, "://") && !scpLike(url):
		dir := g.path(strings.TrimPrefix(url, "file://"))
		for _, d := range []string{dir + "/.git", dir, dir + ".git"} {
			if g.isRepo(d) {
				top := ""
				if strings.HasSuffix(d, "/.git") {
					top = dir
				}
				l.near = g.at(d, top)
				return l, nil
			}
		}
		return nil, fatalf("'%s' does not appear to be a git repository\nhint: git remote -v lists the remotes and where they are", url)
	case strings.HasPrefix(url, "git://"):
		return nil, fatalf("unable to connect: git:// is not available on this machine; use https://")
	default:
		return nil, fatalf("ssh is not available on this machine; use https:// (%s)", url)
	}
	return l, nil
}

// scpLike reports whether a name is HOST:PATH.
func scpLike(s string) bool {
	i := strings.IndexByte(s, ':')
	return i > 0 && !strings.Contains(s[:i], "/")
}

// words converts a connection error to git's words.
func (l *link) words(err error) error {
	var denied *tool.Denied
	switch {
	case err == nil:
		return nil
	case errors.As(err, &denied):
		return fatalf("unable to access '%s/': denied by the sandbox's policy: %s", strings.TrimSuffix(l.url, "/"), denied.Reason)
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

// advertised lists the remote's references, and the targets of tags. An empty repository has none.
func (l *link) advertised() ([]*plumbing.Reference, error) {
	if l.near != nil {
		var out []*plumbing.Reference
		if branch, at := l.near.head(); !at.IsZero() {
			out = append(out, plumbing.NewHashReference(plumbing.HEAD, at))
			if branch != "" {
				out[0] = plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName(branch))
			}
		}
		for _, ref := range l.near.refs("refs/") {
			h, ok := l.near.ref(string(ref.Name()))
			if !ok || strings.HasPrefix(string(ref.Name()), "refs/carrel/") {
				continue
			}
			out = append(out, plumbing.NewHashReference(ref.Name(), h))
			if p, err := l.near.peel(h, plumbing.CommitObject); err == nil && p != h {
				out = append(out, plumbing.NewHashReference(ref.Name()+"^{}", p))
			}
		}
		return out, nil
	}
	refs, err := l.remote.ListContext(l.ctx, &gogit.ListOptions{PeelingOption: gogit.AppendPeeled})
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return nil, nil
	}
	return refs, l.words(err)
}

// get copies objects here, with all objects that they need.
func (l *link) get(names []string, has map[string]plumbing.Hash, depth int) error {
	if l.near != nil {
		var want []plumbing.Hash
		for _, n := range names {
			want = append(want, has[n])
		}
		return l.g.copyObjects(l.near.store, l.store, want, depth)
	}
	// The fetched references get temporary names, which are removed afterwards.
	const scratch = "refs/carrel/fetch/"
	var specs []config.RefSpec
	for i, n := range names {
		specs = append(specs, config.RefSpec(fmt.Sprintf("+%s:%s%d", n, scratch, i)))
	}
	err := l.remote.FetchContext(l.ctx, &gogit.FetchOptions{RefSpecs: specs, Depth: depth, Tags: gogit.NoTags, Force: true})
	if errors.Is(err, gogit.NoErrAlreadyUpToDate) {
		err = nil
	}
	for i := range names {
		_ = l.store.RemoveReference(plumbing.ReferenceName(fmt.Sprintf("%s%d", scratch, i))) // it need not be there
	}
	return l.words(err)
}

// put sends objects and changes the remote's references. A zero hash removes a reference.
func (l *link) put(refs map[string]plumbing.Hash) error {
	if l.near != nil {
		for n, h := range refs {
			if n == l.near.branchName() && l.near.top != "" && l.near.conf.get("receive.denyCurrentBranch") != "ignore" {
				return fmt.Errorf("command error on %s: branch is currently checked out", n)
			}
			if h.IsZero() {
				if err := l.near.store.RemoveReference(plumbing.ReferenceName(n)); err != nil {
					return err
				}
				continue
			}
			if err := l.g.copyObjects(l.store, l.near.store, []plumbing.Hash{h}, 0); err != nil {
				return err
			}
			if err := l.near.setRef(plumbing.ReferenceName(n), h); err != nil {
				return err
			}
		}
		return nil
	}
	var specs []config.RefSpec
	for n, h := range refs {
		if h.IsZero() {
			specs = append(specs, config.RefSpec(":"+n))
			continue
		}
		tmp := plumbing.ReferenceName(fmt.Sprintf("refs/carrel/push/%d", len(specs)))
		if err := l.store.SetReference(plumbing.NewHashReference(tmp, h)); err != nil {
			return err
		}
		defer func() { _ = l.store.RemoveReference(tmp) }() // its own
		specs = append(specs, config.RefSpec("+"+string(tmp)+":"+n))
	}
	err := l.remote.PushContext(l.ctx, &gogit.PushOptions{RemoteName: "origin", RefSpecs: specs, Force: true})
	if errors.Is(err, gogit.NoErrAlreadyUpToDate) {
		return nil
	}
	return err
}

// copyObjects copies objects from one store to another, with all their dependencies that the other
// one lacks.
func (g *git) copyObjects(from, to storage.Storer, want []plumbing.Hash, depth int) error {
	type item struct {
		h     plumbing.Hash
		depth int
	}
	var todo []item
	for _, h := range want {
		todo = append(todo, item{h, 1})
	}
	var shallow, order []plumbing.Hash
	seen := map[plumbing.Hash]bool{}
	for len(todo) > 0 {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[it.h] || to.HasEncodedObject(it.h) == nil {
			continue
		}
		seen[it.h] = true
		o, err := from.EncodedObject(plumbing.AnyObject, it.h)
		if err != nil {
			return fatalf("unable to read %s", it.h)
		}
		if !g.Step(50+int(o.Size()>>8)) || g.Pay(64) != nil {
			return tool.ErrStop
		}
		switch o.Type() {
		case plumbing.CommitObject:
			c, err := object.DecodeCommit(from, o)
			if err != nil {
				return err
			}
			todo = append(todo, item{c.TreeHash, 0})
			if depth > 0 && it.depth >= depth && len(c.ParentHashes) > 0 {
				shallow = append(shallow, it.h)
				break
			}
			for _, p := range c.ParentHashes {
				todo = append(todo, item{p, it.depth + 1})
			}
		case plumbing.TreeObject:
			t, err := object.DecodeTree(from, o)
			if err != nil {
				return err
			}
			for _, e := range t.Entries {
				if e.Mode != filemode.Submodule {
					todo = append(todo, item{e.Hash, 0})
				}
			}
		case plumbing.TagObject:
			t, err := object.DecodeTag(from, o)
			if err != nil {
				return err
			}
			todo = append(todo, item{t.Target, it.depth})
		}
		order = append(order, it.h)
	}
	for _, h := range slices.Backward(order) { // store dependencies first, so that an incomplete copy never looks complete
		o, err := from.EncodedObject(plumbing.AnyObject, h)
		if err == nil {
			_, err = to.SetEncodedObject(o)
		}
		if err != nil {
			return err
		}
		if !g.Step(50 + int(o.Size()>>7)) {
			return tool.ErrStop
		}
	}
	if len(shallow) > 0 {
		old, err := to.Shallow()
		if err != nil {
			return err
		}
		return to.SetShallow(append(old, shallow...))
	}
	return nil
}
