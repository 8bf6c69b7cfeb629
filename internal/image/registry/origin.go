package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxJSON bounds a manifest, an index or a configuration.
const maxJSON = 8 << 20

// origin is a place that images come from.
type origin interface {
	// manifest reads a manifest or an index by tag or digest. The caller checks a digest.
	manifest(ctx context.Context, id string) ([]byte, error)
	// blob opens a part, from an offset on if the origin can. start says where it begins.
	blob(ctx context.Context, h v1.Hash, offset int64) (rc io.ReadCloser, start int64, err error)
	// piece opens n bytes of a part from an offset on. Error: errNoRanges, among others.
	piece(ctx context.Context, h v1.Hash, offset, n int64) (io.ReadCloser, error)
	// String names the origin in errors.
	String() string
}

// remote is a repository in a registry.
type remote struct {
	repo    name.Repository
	connect func() (*http.Client, error) // logs in once
}

// accepted are the kinds of manifests that a pull understands.
var accepted = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex),
	string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ", ")

// remote returns the origin for a repository. Nothing is sent before its first use.
func (c *Client) remote(ctx context.Context, repo name.Repository, scopes []string,
	auth func() (authn.Authenticator, error)) *remote {
	return &remote{repo: repo, connect: sync.OnceValues(func() (*http.Client, error) {
		a, err := auth()
		if err != nil {
			return nil, err
		}
		rt, err := transport.NewWithContext(ctx, repo.Registry, a, c.carry, scopes)
		if err != nil {
			return nil, err
		}
		return &http.Client{Transport: rt, CheckRedirect: func(_ *http.Request,
			via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			return nil
		}}, nil
	})}
}

func (r *remote) String() string { return r.repo.RegistryStr() }

// url is the address of a part of the repository.
func (r *remote) url(parts ...string) string {
	u := url.URL{Scheme: r.repo.Scheme(), Host: r.repo.RegistryStr(),
		Path: "/v2/" + r.repo.RepositoryStr() + "/" + strings.Join(parts, "/")}
	return u.String()
}

// do sends a request. Another status than the wanted ones is an error.
func (r *remote) do(ctx context.Context, method, url string, header http.Header,
	want ...int) (*http.Response, error) {
	client, err := r.connect()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if err := check(resp, want...); err != nil {
		return nil, err
	}
	return resp, nil
}

// check turns an unwanted answer into an error, and closes it.
func check(resp *http.Response, want ...int) error {
	for _, code := range want {
		if resp.StatusCode == code {
			return nil
		}
	}
	defer resp.Body.Close()
	after, _ := retryAfter(resp.Header)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, 64<<10), resp.Body}
	return &statusError{code: resp.StatusCode, retryAfter: after,
		err: transport.CheckError(resp, want...)}
}

func (r *remote) manifest(ctx context.Context, id string) ([]byte, error) {
	resp, err := r.do(ctx, http.MethodGet, r.url("manifests", id), http.Header{"Accept": {accepted}},
		http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAll(resp.Body, "manifest")
}

func readAll(r io.Reader, what string) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxJSON+1))
	if err == nil && len(raw) > maxJSON {
		err = &contentError{fmt.Errorf("a %s of more than %d bytes", what, maxJSON)}
	}
	return raw, err
}

func (r *remote) blob(ctx context.Context, h v1.Hash, offset int64) (io.ReadCloser, int64, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := r.do(ctx, http.MethodGet, r.url("blobs", h.String()), header, http.StatusOK,
		http.StatusPartialContent)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, 0, nil
	}
	// "bytes 100-199/200"
	text, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Content-Range"), "bytes "), "-")
	start, err := strconv.ParseInt(text, 10, 64)
	if err != nil || start != offset {
		_ = resp.Body.Close()
		return nil, 0, &contentError{fmt.Errorf("bytes from %d were asked for, and %q came", offset,
			resp.Header.Get("Content-Range"))}
	}
	return resp.Body, start, nil
}

// layout is an OCI image layout in a directory of this machine.
type layout struct {
	dir string
	ref name.Reference
}

func (l *layout) String() string { return "the image store " + l.dir }

// errNotStored says that a layout does not have the image.
var errNotStored = errors.New("it has no such image")

func (l *layout) manifest(_ context.Context, id string) ([]byte, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	h, err := v1.NewHash(id)
	if err != nil {
		if h, err = l.find(root); err != nil {
			return nil, err
		}
	}
	f, err := root.Open("blobs/" + h.Algorithm + "/" + h.Hex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotStored
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := readAll(f, "manifest")
	if err != nil {
		return nil, err
	}
	return raw, sameDigest(raw, h)
}

// refNames are the annotations in which tools write an image's name.
var refNames = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// find looks the reference up in the layout's index.
func (l *layout) find(root *os.Root) (v1.Hash, error) {
	f, err := root.Open("index.json")
	if err != nil {
		return v1.Hash{}, err
	}
	defer f.Close()
	raw, err := readAll(f, "index")
	if err != nil {
		return v1.Hash{}, err
	}
	var index v1.IndexManifest
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&index); err != nil {
		return v1.Hash{}, &contentError{err}
	}
	for _, d := range index.Manifests {
		for _, key := range refNames {
			named, err := name.ParseReference(d.Annotations[key])
			if err == nil && named.Name() == l.ref.Name() {
				return d.Digest, nil
			}
		}
	}
	return v1.Hash{}, errNotStored
}

func (l *layout) blob(_ context.Context, h v1.Hash, _ int64) (io.ReadCloser, int64, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	f, err := root.Open("blobs/" + h.Algorithm + "/" + h.Hex)
	return f, 0, err
}

// sameDigest checks a small part against its digest.
func sameDigest(raw []byte, want v1.Hash) error {
	got, _, err := v1.SHA256(bytes.NewReader(raw))
	if err == nil && got != want {
		err = &contentError{fmt.Errorf("its content does not match the digest %s", want)}
	}
	return err
}
