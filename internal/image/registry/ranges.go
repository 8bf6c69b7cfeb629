package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// Ranges reads parts of an image's layers. It is safe for concurrent use. It checks nothing of what
// it reads.
type Ranges struct {
	client *Client
	ctx    context.Context // of the log-in, which may be repeated at any time
	opts   carrel.PullOptions
	req    Request

	mu      sync.Mutex
	origins []origin // nil before the first use and after a failure
}

// Ranges returns the layers of an image. It sends nothing. It can be used until ctx ends.
func (c *Client) Ranges(ctx context.Context, opts carrel.PullOptions, req Request) *Ranges {
	return &Ranges{client: c, ctx: ctx, opts: opts, req: req}
}

// places returns the places of the image. After a failure it begins anew: an origin logs in once.
func (r *Ranges) places() ([]origin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.origins != nil {
		return r.origins, nil
	}
	ref, err := r.client.parse(opPull, r.opts.Image)
	if err == nil {
		r.origins, err = r.client.origins(r.ctx, ref, r.opts, r.req)
	}
	return r.origins, err
}

func (r *Ranges) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.origins = nil
}

// Open opens n bytes of a layer from an offset on, at the first origin that gives them. try picks
// another first origin, for one that gives wrong bytes.
func (r *Ranges) Open(ctx context.Context, layer v1.Hash, off, n int64, try int) (io.ReadCloser,
	error) {
	all, err := r.places()
	if err != nil {
		return nil, err
	}
	err = errNoRanges // if each origin says it
	for i := range all {
		rc, perr := all[(i+try)%len(all)].piece(ctx, layer, off, n)
		if perr == nil {
			return rc, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(perr, errNoRanges) {
			err = perr
		}
	}
	r.forget()
	host := r.opts.Image
	if ref, perr := r.client.parse(opPull, host); perr == nil {
		host = ref.Context().RegistryStr()
	}
	return nil, classify(opPull, r.opts.Image, host, err)
}

// errNoRanges says that an origin sends layers only as a whole.
var errNoRanges = errors.New("the registry does not give parts of a layer")

func (r *remote) piece(ctx context.Context, h v1.Hash, off, n int64) (io.ReadCloser, error) {
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+n-1)}}
	resp, err := r.do(ctx, http.MethodGet, r.url("blobs", h.String()), header, http.StatusOK,
		http.StatusPartialContent)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		err = errNoRanges
	case !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", off)):
		err = &contentError{fmt.Errorf("bytes from %d were asked for, and %.100q came", off,
			resp.Header.Get("Content-Range"))}
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return limited(resp.Body, n), nil
}

func (l *layout) piece(ctx context.Context, h v1.Hash, off, n int64) (io.ReadCloser, error) {
	rc, _, err := l.blob(ctx, h, 0)
	if err != nil {
		return nil, err
	}
	f, ok := rc.(io.Seeker)
	if !ok {
		_ = rc.Close()
		return nil, errNoRanges
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		_ = rc.Close()
		return nil, err
	}
	return limited(rc, n), nil
}

// limited reads at most n bytes.
func limited(rc io.ReadCloser, n int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(rc, n), rc}
}

// Late is an image whose layers need not come whole.
type Late struct {
	Source *archive.Source
	// Layers are the digests of the layers, as in Source.
	Layers []v1.Hash
	// Whole says, for each layer that comes whole, why.
	Whole map[int]string
}

// tocTime bounds how long the table of contents of one layer is waited for.
const tocTime = 2 * time.Minute

// PullLate is Pull, but reads only the tables of contents of the layers that have one. It downloads
// the other layers whole. If no layer can come late, late is nil, and whole says why.
func (c *Client) PullLate(ctx context.Context, opts carrel.PullOptions, req Request) (late *Late,
	release func(), whole string, err error) {
	found, err := c.find(ctx, opts, req)
	if err != nil {
		return nil, nil, "", err
	}
	if req.MaxBytes <= 0 {
		req.MaxBytes = archive.Limits{}.WithDefaults().MaxBytes
	}
	ranges := c.Ranges(ctx, opts, req)
	late = &Late{Whole: map[int]string{}}
	tocs := map[int]*stargz.TOC{}
	for i, l := range found.manifest.Layers {
		late.Layers = append(late.Layers, l.Digest)
		digest := l.Annotations[stargz.Annotation]
		if digest == "" {
			late.Whole[i] = "it has no table of contents"
			continue
		}
		tocs[i], err = readTOC(ctx, ranges, l, digest)
		_, bad := errors.AsType[*stargz.UnusableError](err)
		switch {
		case bad, errors.Is(err, errNoRanges):
			late.Whole[i] = err.Error()
			if bad {
				late.Whole[i] = "of " + err.Error()
			} else {
				late.Whole[i] = errNoRanges.Error()
			}
		case err != nil:
			return nil, nil, "", classify(opPull, opts.Image, found.host, err)
		}
	}
	if len(late.Whole) == len(late.Layers) {
		whole = "no layer of the image has a table of contents"
		for _, why := range late.Whole {
			if why != "it has no table of contents" {
				whole = "a layer can't come in parts: " + why
			}
		}
		return nil, nil, whole, nil
	}
	d := &download{client: c, req: req, ref: opts.Image, found: found, late: tocs}
	if late.Source, err = d.start(ctx); err != nil {
		return nil, nil, "", err
	}
	for i, toc := range tocs {
		if toc == nil {
			continue
		}
		late.Source.Layers[i].TOC = toc
		late.Source.Layers[i].Chunk = func(ctx context.Context, chunk stargz.Chunk) ([]byte, error) {
			return Fetch(ctx, ranges, late.Layers[i], chunk)
		}
	}
	return late, d.release, "", nil
}

// readTOC reads the table of contents of a layer.
func readTOC(ctx context.Context, r *Ranges, l v1.Descriptor, digest string) (*stargz.TOC, error) {
	ctx, cancel := context.WithTimeout(ctx, tocTime)
	defer cancel()
	if l.Size < stargz.FooterSize {
		return nil, &stargz.UnusableError{Why: "the layer is too short"}
	}
	var err error
	for try := range fetchTries {
		var toc *stargz.TOC
		if toc, err = readTOCOnce(ctx, r, l, digest, try); err == nil {
			return toc, nil
		}
		if ctx.Err() != nil || errors.Is(err, errNoRanges) || carrel.KindOf(err) == carrel.Forbidden {
			break
		}
	}
	return nil, err
}

func readTOCOnce(ctx context.Context, r *Ranges, l v1.Descriptor, digest string,
	try int) (*stargz.TOC, error) {
	footer, err := readPiece(ctx, r, l.Digest, l.Size-stargz.FooterSize, stargz.FooterSize, try)
	if err != nil {
		return nil, err
	}
	at, err := stargz.Footer(footer, l.Size)
	if err != nil {
		return nil, err
	}
	rc, err := r.Open(ctx, l.Digest, at, l.Size-stargz.FooterSize-at, try)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return stargz.ReadTOC(rc, at, digest)
}

// readPiece reads a small part of a layer.
func readPiece(ctx context.Context, r *Ranges, layer v1.Hash, off, n int64, try int) ([]byte, error) {
	rc, err := r.Open(ctx, layer, off, n, try)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	b := make([]byte, n)
	_, err = io.ReadFull(rc, b)
	return b, err
}

const (
	// fetchTries is how often one part is asked for.
	fetchTries = 4
	fetchPause = 100 * time.Millisecond
)

// Fetch fetches one chunk of a layer and checks it. It tries several times, and several origins.
func Fetch(ctx context.Context, r *Ranges, layer v1.Hash, chunk stargz.Chunk) ([]byte, error) {
	var err error
	for try := range fetchTries {
		var content []byte
		if content, err = fetchOnce(ctx, r, layer, chunk, try); err == nil {
			return content, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, errNoRanges) {
			break
		}
		select {
		case <-time.After(fetchPause << try):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if stargz.IsWrongContent(err) {
		err = &carrel.Error{Op: opPull, Kind: carrel.Invalid, Field: "image",
			Err:  fmt.Errorf("%s: layer %s: %w", r.opts.Image, layer, err),
			Hint: "what the registry sent is not the image that was asked for: do not use it"}
	}
	return nil, err
}

func fetchOnce(ctx context.Context, r *Ranges, layer v1.Hash, chunk stargz.Chunk,
	try int) ([]byte, error) {
	rc, err := r.Open(ctx, layer, chunk.Offset, chunk.Packed, try)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	content, err := stargz.ReadChunk(rc, chunk)
	if err == nil {
		// A connection serves the next request only if its answer was read to the end.
		_, _ = io.CopyN(io.Discard, rc, 16<<10)
	}
	return content, err
}
