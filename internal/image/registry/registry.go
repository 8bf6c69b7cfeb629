package registry

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

const (
	opPull = "pull template"
	opPush = "push template"
)

// Config configures a Client. The zero Config reaches public registries.
type Config struct {
	// Keychain has the operator's credentials; nil is the docker configuration of this process's
	// user. Only callers that [Request].Operator marks use it.
	Keychain authn.Keychain
	// Allow are hosts that may have private addresses: HOST or HOST:PORT, or http://HOST:PORT for
	// one without TLS. Those of this machine (localhost, 127.0.0.1) need no TLS.
	Allow []string
	// Mirrors are asked before the registries that they stand for.
	Mirrors []Mirror
	// Offline forbids all connections: images come from Layout only.
	Offline bool
	// Layout is a directory with an OCI image layout. Images are first looked up there.
	Layout string
	// Cache keeps layers. Required for a pull.
	Cache *Cache

	// MinBytes is what an answer must bring in each StallTime; 0 is 32 KiB in 30 seconds.
	MinBytes  int64
	StallTime time.Duration
	// MaxWait bounds how long one request waits for a server that asks for patience; 0 is a minute.
	MaxWait time.Duration

	// The rest replaces parts of the network, for tests and unusual networks.
	Resolve     func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	Proxy       func(*http.Request) (*url.URL, error)
	RootCAs     *x509.CertPool
	AWSEndpoint string // of Amazon ECR's API

	Logger *slog.Logger
}

// Mirror stands for a registry. URL is https://HOST or https://HOST/PREFIX; the prefix comes before
// the names of repositories.
type Mirror struct{ Host, URL string }

// Client pulls and pushes. It is safe for concurrent use.
type Client struct {
	cfg   Config
	guard *guard
	carry http.RoundTripper // all requests
	moved *mounts
}

// New returns a Client. Errors: Invalid.
func New(cfg Config) (*Client, error) {
	if cfg.Keychain == nil {
		cfg.Keychain = authn.DefaultKeychain
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StallTime <= 0 {
		cfg.StallTime = 30 * time.Second
	}
	if cfg.MinBytes <= 0 {
		cfg.MinBytes = 32 << 10
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = time.Minute
	}
	g, err := newGuard(cfg, cfg.StallTime)
	if err != nil {
		return nil, &carrel.Error{Op: "open registries", Kind: carrel.Invalid, Err: err}
	}
	for i, m := range cfg.Mirrors {
		reg, err := name.NewRegistry(m.Host)
		if err != nil {
			return nil, &carrel.Error{Op: "open registries", Kind: carrel.Invalid,
				Err: fmt.Errorf("the mirror of %q: %w", m.Host, err)}
		}
		cfg.Mirrors[i].Host = reg.RegistryStr()
	}
	return &Client{cfg: cfg, guard: g, moved: newMounts(),
			carry: &patient{inner: g, maxWait: cfg.MaxWait, window: cfg.StallTime, minBytes: cfg.MinBytes}},
		nil
}

// Close closes idle connections.
func (c *Client) Close() { c.guard.close() }

// Request is who pulls or pushes, and its bounds.
type Request struct {
	// Project owns the kept layers.
	Project string
	// Operator lets the request use Config.Keychain.
	Operator bool
	// MaxBytes bounds the downloaded size of the layers; 0 is 64 GiB.
	MaxBytes int64
	Meter    *image.Meter
}

// keys are the credentials that a request may use beside its own.
func (c *Client) keys(r Request) authn.Keychain {
	if r.Operator {
		return c.cfg.Keychain
	}
	return nil
}

// parse reads an image's name.
func (c *Client) parse(op, ref string) (name.Reference, error) {
	r, err := name.ParseReference(ref)
	if err == nil && c.guard.plainHTTP(r.Context().RegistryStr()) {
		r, err = name.ParseReference(ref, name.Insecure)
	}
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "image", Err: err,
			Hint: "an image is named like python:3.12-slim or registry.example.com/team/app@sha256:…"}
	}
	return r, nil
}

// Pull finds an image for this machine and begins to download its layers. The layers of the
// returned Source wait for their own download. release ends the downloads and gives up the files.
// Errors: Invalid (the name, a wrong digest), NotFound, Unauthenticated, Forbidden (an address),
// Unsupported (no image for this machine), Exhausted, Unavailable. Layers fail with the same.
func (c *Client) Pull(ctx context.Context, opts carrel.PullOptions,
	req Request) (_ *archive.Source, release func(), err error) {
	found, err := c.find(ctx, opts, req)
	if err != nil {
		return nil, nil, err
	}
	if req.MaxBytes <= 0 {
		req.MaxBytes = archive.Limits{}.WithDefaults().MaxBytes
	}
	d := &download{client: c, req: req, ref: opts.Image, found: found}
	src, err := d.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return src, d.release, nil
}

// Digest asks for the digest of an image for this machine. It is that of the Source which Pull
// returns. Errors: as Pull.
func (c *Client) Digest(ctx context.Context, opts carrel.PullOptions, req Request) (string, error) {
	found, err := c.find(ctx, opts, req)
	if err != nil {
		return "", err
	}
	return found.digest.String(), nil
}

// find finds an image for this machine.
func (c *Client) find(ctx context.Context, opts carrel.PullOptions, req Request) (*found, error) {
	if !isOurPlatform(opts.Platform) {
		return nil, platformError(opPull, opts.Platform)
	}
	ref, err := c.parse(opPull, opts.Image)
	if err != nil {
		return nil, err
	}
	host := ref.Context().RegistryStr()
	origins, err := c.origins(ctx, ref, opts, req)
	if err != nil {
		return nil, classify(opPull, opts.Image, host, err)
	}
	f, err := resolve(ctx, origins, ref)
	if err != nil {
		return nil, classify(opPull, opts.Image, host, err)
	}
	f.host = host
	return f, nil
}

// isOurPlatform reports whether a platform is this machine's. The variant, as in linux/arm64/v8,
// may be there.
func isOurPlatform(p string) bool {
	parts := strings.Split(p, "/")
	return p == "" || len(parts) >= 2 && len(parts) <= 3 && parts[0] == "linux" &&
		parts[1] == runtime.GOARCH
}

// origins returns the places of an image, in the order in which they are asked.
func (c *Client) origins(ctx context.Context, ref name.Reference, opts carrel.PullOptions,
	req Request) ([]origin, error) {
	var all []origin
	if c.cfg.Layout != "" {
		all = append(all, &layout{c.cfg.Layout, ref})
	}
	if c.cfg.Offline {
		if len(all) == 0 {
			return nil, &carrel.Error{Op: opPull, Kind: carrel.Unsupported, Field: "image",
				Err:  errors.New("this service is offline and has no image store"),
				Hint: "start it with --image-store DIR, or without --offline"}
		}
		return all, nil
	}
	repo := ref.Context()
	for _, m := range c.cfg.Mirrors {
		if m.Host != repo.RegistryStr() {
			continue
		}
		place, err := c.mirrored(m, repo)
		if err != nil {
			return nil, err
		}
		// The caller's credentials are for the registry, not for its mirror. And the operator's are
		// not for every caller: they may open images that the caller can't pull himself.
		all = append(all, c.remote(ctx, place, []string{place.Scope(transport.PullScope)},
			func() (authn.Authenticator, error) {
				return c.authenticator(ctx, opPull, place.Registry, nil, c.keys(req))
			}))
	}
	return append(all, c.remote(ctx, repo, []string{repo.Scope(transport.PullScope)},
		func() (authn.Authenticator, error) {
			return c.authenticator(ctx, opPull, repo.Registry, opts.Credentials, c.keys(req))
		})), nil
}

// mirrored is the repository in a mirror.
func (c *Client) mirrored(m Mirror, repo name.Repository) (name.Repository, error) {
	u, err := url.Parse(m.URL)
	if err != nil {
		return repo, err
	}
	full := u.Host + "/" + strings.Trim(strings.Trim(u.Path, "/")+"/"+repo.RepositoryStr(), "/")
	if u.Scheme == "http" {
		return name.NewRepository(full, name.Insecure)
	}
	return name.NewRepository(full)
}

// found is an image for this machine.
type found struct {
	host     string   // of the registry
	origins  []origin // those that may have its parts, the best first
	digest   v1.Hash
	manifest *v1.Manifest
	config   *v1.ConfigFile
}

// resolve asks one origin after the other for the image. The last error counts, because the last
// origin is the registry itself.
func resolve(ctx context.Context, origins []origin, ref name.Reference) (*found, error) {
	var err error
	for i, o := range origins {
		var f *found
		if f, err = resolveAt(ctx, o, ref.Identifier()); err == nil {
			f.origins = origins[i:]
			return f, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if _, isLayout := o.(*layout); isLayout && len(origins) == 1 {
			return nil, &carrel.Error{Op: opPull, Kind: carrel.NotFound, Field: "image",
				Err:  fmt.Errorf("%s: %s: %w", ref, o, err),
				Hint: "this service is offline: add the image to its image store"}
		}
	}
	return nil, err
}

// maxIndexes bounds how many indexes lead to a manifest.
const maxIndexes = 4

// resolveAt finds the image at one origin, through an index if there is one.
func resolveAt(ctx context.Context, o origin, id string) (*found, error) {
	want, err := v1.NewHash(id)
	byTag := err != nil
	for range maxIndexes {
		raw, err := o.manifest(ctx, id)
		if err != nil {
			return nil, err
		}
		if byTag {
			if want, _, err = v1.SHA256(bytes.NewReader(raw)); err != nil {
				return nil, err
			}
			byTag = false
		} else if err := sameDigest(raw, want); err != nil {
			return nil, err
		}
		m, index, err := parseManifest(raw)
		if err != nil {
			return nil, err
		}
		if index == nil {
			f := &found{digest: want, manifest: m}
			f.config, err = readConfig(ctx, o, m.Config)
			return f, err
		}
		d, err := archive.ChoosePlatform(index.Manifests)
		if err != nil {
			return nil, err
		}
		want, id = d.Digest, d.Digest.String()
	}
	return nil, &contentError{fmt.Errorf("indexes nested more than %d deep", maxIndexes)}
}

// parseManifest reads a manifest or an index: one of the results is not nil.
func parseManifest(raw []byte) (*v1.Manifest, *v1.IndexManifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, &contentError{fmt.Errorf("its manifest: %w", err)}
	}
	if m.Config.Digest == (v1.Hash{}) {
		index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil || len(index.Manifests) == 0 {
			return nil, nil, &contentError{errors.New("it is neither an image nor an index of images")}
		}
		return nil, index, nil
	}
	if len(m.Layers) > maxLayers {
		return nil, nil, &contentError{fmt.Errorf("it has %d layers, at most %d can be", len(m.Layers),
			maxLayers)}
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if d.Digest.Algorithm != "sha256" {
			return nil, nil, &contentError{fmt.Errorf("the digest %q is of another kind than sha256",
				d.Digest)}
		}
		if d.Size < 0 {
			return nil, nil, &contentError{fmt.Errorf("a part of %d bytes", d.Size)}
		}
	}
	return m, nil, nil
}

// maxLayers bounds the layers of one image. Docker makes at most 127.
const maxLayers = 1000

// readConfig reads an image's configuration.
func readConfig(ctx context.Context, o origin, d v1.Descriptor) (*v1.ConfigFile, error) {
	if d.MediaType != "" && !d.MediaType.IsConfig() {
		return nil, &contentError{fmt.Errorf("it is no image of a computer, but %.100q", d.MediaType)}
	}
	rc, _, err := o.blob(ctx, d.Digest, 0)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	raw, err := readAll(rc, "configuration")
	if err == nil {
		err = sameDigest(raw, d.Digest)
	}
	if err != nil {
		return nil, err
	}
	cfg, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, &contentError{fmt.Errorf("its configuration: %w", err)}
	}
	return cfg, nil
}
