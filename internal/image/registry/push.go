package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// Upload is an image that is to be pushed: one layer and how its processes start.
type Upload struct {
	Config v1.Config
	// Layer describes the compressed layer.
	Layer v1.Descriptor
	// DiffID is the digest of the layer, unpacked.
	DiffID v1.Hash
	// Open opens the layer. It is called only if the registry lacks it.
	Open func(context.Context) (Content, error)
}

// Content is what is uploaded. It may be read several times.
type Content interface {
	io.ReaderAt
	io.Closer
}

// memory is a Content in memory.
type memory struct{ *bytes.Reader }

// Close implements io.Closer.
func (memory) Close() error { return nil }

// Push sends an image. It sends no part that the registry has. Errors: Invalid, Unauthenticated,
// Forbidden (an address), Unsupported (offline), Unavailable.
func (c *Client) Push(ctx context.Context, opts carrel.PushOptions, req Request,
	up Upload) (carrel.Pushed, error) {
	ref, err := c.parse(opPush, opts.Image)
	if err != nil {
		return carrel.Pushed{}, err
	}
	tag, ok := ref.(name.Tag)
	if !ok {
		return carrel.Pushed{}, &carrel.Error{Op: opPush, Kind: carrel.Invalid, Field: "image",
			Err:  fmt.Errorf("%s names a digest: an image is pushed to a tag", opts.Image),
			Hint: "give NAME:TAG"}
	}
	if c.cfg.Offline {
		return carrel.Pushed{}, &carrel.Error{Op: opPush, Kind: carrel.Unsupported, Field: "image",
			Err: errors.New("this service is offline")}
	}
	p := &push{client: c, req: req, tag: tag, key: mountKey{req.Project, tag.RegistryStr(),
		up.Layer.Digest.String()}}
	out, err := p.run(ctx, opts, up)
	if err != nil {
		return carrel.Pushed{}, classify(opPush, opts.Image, tag.RegistryStr(), err)
	}
	return out, nil
}

// push is one push.
type push struct {
	client *Client
	req    Request
	tag    name.Tag
	key    mountKey
	at     *remote
	sent   int64
}

func (p *push) run(ctx context.Context, opts carrel.PushOptions, up Upload) (carrel.Pushed, error) {
	config, manifest, err := assemble(up)
	if err != nil {
		return carrel.Pushed{}, err
	}
	repo := p.tag.Repository
	from := p.client.moved.find(p.key, repo.RepositoryStr())
	scopes := []string{repo.Scope(transport.PushScope)}
	if from != "" {
		scopes = append(scopes, repo.Registry.Repo(from).Scope(transport.PullScope))
	}
	p.at = p.client.remote(ctx, repo, scopes, func() (authn.Authenticator, error) {
		return p.client.authenticator(ctx, opPush, repo.Registry, opts.Credentials, p.client.keys(p.req))
	})
	var m v1.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return carrel.Pushed{}, err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(manifest))
	if err != nil {
		return carrel.Pushed{}, err
	}
	size := m.Config.Size + m.Layers[0].Size + int64(len(manifest))
	p.req.Meter.Stage(image.StagePush, size)
	if err := p.blob(ctx, up.Layer, from, up.Open); err != nil {
		return carrel.Pushed{}, err
	}
	p.client.moved.add(p.key, repo.RepositoryStr())
	err = p.blob(ctx, m.Config, "", func(context.Context) (Content,
		error) {
		return memory{bytes.NewReader(config)}, nil
	})
	if err != nil {
		return carrel.Pushed{}, err
	}
	if err := p.manifest(ctx, digest, manifest); err != nil {
		return carrel.Pushed{}, err
	}
	p.req.Meter.Flush()
	return carrel.Pushed{Image: p.tag.Name(), Digest: digest.String(), Size: size, Sent: p.sent}, nil
}

// assemble makes the configuration and the manifest. They hold no time and nothing else that
// differs between two pushes.
func assemble(up Upload) (config, manifest []byte, err error) {
	epoch := v1.Time{Time: time.Unix(0, 0).UTC()}
	config, err = json.Marshal(v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", Created: epoch, Config: up.Config,
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{up.DiffID}},
		History: []v1.History{{Created: epoch, CreatedBy: "carrel template push"}},
	})
	if err != nil {
		return nil, nil, err
	}
	sum, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, nil, err
	}
	manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: size, Digest: sum},
		Layers: []v1.Descriptor{up.Layer},
	})
	return config, manifest, err
}

// has reports whether the registry has a part.
func (p *push) has(ctx context.Context, kind string, h v1.Hash) (bool, error) {
	resp, err := p.at.do(ctx, http.MethodHead, p.at.url(kind, h.String()),
		http.Header{"Accept": {accepted}}, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return false, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK, nil
}

// blob sends one part, unless the registry has it or takes it from another repository.
func (p *push) blob(ctx context.Context, d v1.Descriptor, from string,
	open func(context.Context) (Content, error)) error {
	has, err := p.has(ctx, "blobs", d.Digest)
	if err != nil {
		return err
	}
	if has {
		p.req.Meter.Add(d.Size)
		return nil
	}
	start := p.at.url("blobs", "uploads") + "/"
	if from != "" {
		start += "?" + url.Values{"mount": {d.Digest.String()}, "from": {from}}.Encode()
	}
	for try := 1; ; try++ {
		resp, err := p.at.do(ctx, http.MethodPost, start, nil, http.StatusAccepted, http.StatusCreated)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusCreated {
			p.req.Meter.Add(d.Size)
			return nil
		}
		if err = p.upload(ctx, resp, d, open); err == nil {
			p.sent += d.Size
			return nil
		}
		if try >= tries || ctx.Err() != nil || !isCut(err) {
			return err
		}
		start = p.at.url("blobs", "uploads") + "/"
	}
}

// upload sends the content of a part to the place that the registry gave.
func (p *push) upload(ctx context.Context, begun *http.Response, d v1.Descriptor,
	open func(context.Context) (Content, error)) error {
	to, err := begun.Location()
	if err != nil {
		return &contentError{fmt.Errorf("no place to send a layer to: %w", err)}
	}
	q := to.Query()
	q.Set("digest", d.Digest.String())
	to.RawQuery = q.Encode()
	f, err := open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	return p.put(ctx, to.String(), "application/octet-stream", d.Size,
		func() io.Reader { return io.NewSectionReader(f, 0, d.Size) })
}

// manifest sends the manifest, unless the tag has it.
func (p *push) manifest(ctx context.Context, digest v1.Hash, raw []byte) error {
	resp, err := p.at.do(ctx, http.MethodHead, p.at.url("manifests", p.tag.TagStr()),
		http.Header{"Accept": {accepted}}, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusOK && resp.Header.Get(
		"Docker-Content-Digest") == digest.String() {
		p.req.Meter.Add(int64(len(raw)))
		return nil
	}
	err = p.put(ctx, p.at.url("manifests", p.tag.TagStr()), string(types.OCIManifestSchema1),
		int64(len(raw)), func() io.Reader { return bytes.NewReader(raw) })
	if err == nil {
		p.sent += int64(len(raw))
	}
	return err
}

// put sends a body. A registry that stops reading it ends the push.
func (p *push) put(ctx context.Context, to, kind string, size int64, body func() io.Reader) error {
	client, err := p.at.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	window := p.client.cfg.StallTime
	timer := time.AfterFunc(window, func() { cancel(&stallError{p.tag.RegistryStr(), -1, window}) })
	defer timer.Stop()
	watched := func() io.ReadCloser {
		r, left := body(), size
		return io.NopCloser(readerFunc(func(b []byte) (int, error) {
			timer.Reset(window)
			n, err := r.Read(b)
			p.req.Meter.Add(int64(n))
			if left -= int64(n); left <= 0 { // it has all; the time for its answer begins
				timer.Stop()
			}
			return n, err
		}))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, watched())
	if err != nil {
		return err
	}
	req.GetBody = func() (io.ReadCloser, error) { return watched(), nil }
	req.ContentLength = size
	req.Header.Set("Content-Type", kind)
	resp, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if err := check(resp, http.StatusCreated, http.StatusAccepted, http.StatusNoContent); err != nil {
		return err
	}
	return resp.Body.Close()
}

// readerFunc makes a function an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// mounts remembers where layers were sent to, so that a registry can take one from another of its
// repositories.
type mounts struct {
	mu    sync.Mutex
	repos map[mountKey]string
}

// maxMounts bounds the layers that are remembered.
const maxMounts = 10_000

// mountKey is a layer in a registry, as a project sent it.
type mountKey struct{ project, registry, digest string }

func newMounts() *mounts { return &mounts{repos: map[mountKey]string{}} }

// find returns a repository that has the layer, other than the given one; "" for none.
func (m *mounts) find(k mountKey, but string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if repo := m.repos[k]; repo != but {
		return repo
	}
	return ""
}

func (m *mounts) add(k mountKey, repo string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.repos) >= maxMounts {
		clear(m.repos)
	}
	m.repos[k] = repo
}
