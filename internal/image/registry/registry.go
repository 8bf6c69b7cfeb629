// Package registry pulls images. It resolves a name, downloads the layers in parallel into files
// and hands them to package archive, lowest first.
//
// It checks every part against its digest while it reads it. So a registry, or an attacker between,
// can refuse an image but can't change one that is named by digest. Layers wait on disk, never in
// memory. Credentials come from the caller's keychain and go only to the registry that they belong
// to.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

const op = "pull template"

// Options configure a pull.
type Options struct {
	// Keychain finds credentials; nil uses the docker configuration.
	Keychain authn.Keychain
	// Transport carries the requests; nil uses the default one, with its proxies.
	Transport http.RoundTripper
	// NewFile makes a file for a downloaded layer.
	NewFile func() (*os.File, error)
	// MaxBytes bounds the downloaded size of the layers; 0 is 64 GiB.
	MaxBytes int64
	Meter    *image.Meter
}

// Pull downloads an image for this machine. The returned function removes the
// files. Errors: Invalid (the name, a wrong digest), NotFound, Unauthenticated,
// Unsupported (no image for this machine), Exhausted, Unavailable.
func Pull(ctx context.Context, ref string, opts Options) (_ *archive.Source, release func(), err error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "image", Err: err,
			Hint: "an image is named like python:3.12-slim or registry.example.com/team/app@sha256:…"}
	}
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = archive.Limits{}.WithDefaults().MaxBytes
	}
	remoteOpts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(opts.Keychain), remote.WithUserAgent("carrel")}
	if opts.Transport != nil {
		remoteOpts = append(remoteOpts, remote.WithTransport(opts.Transport))
	}
	img, digest, err := resolve(r, remoteOpts)
	if err != nil {
		return nil, nil, classify(ref, err)
	}
	d := &download{opts: opts}
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	src, err := d.image(ctx, img)
	if err != nil {
		return nil, nil, classify(ref, err)
	}
	src.Digest = digest.String()
	return src, d.release, nil
}

// resolve finds the image for this machine, through an index if there is one.
func resolve(r name.Reference, opts []remote.Option) (v1.Image, v1.Hash, error) {
	desc, err := remote.Get(r, opts...)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	if !desc.MediaType.IsIndex() {
		img, err := desc.Image()
		return img, desc.Digest, err
	}
	index, err := desc.ImageIndex()
	for err == nil {
		var m *v1.IndexManifest
		var d v1.Descriptor
		if m, err = index.IndexManifest(); err != nil {
			break
		}
		if d, err = archive.ChoosePlatform(m.Manifests); err != nil {
			break
		}
		if !d.MediaType.IsIndex() {
			img, err := index.Image(d.Digest)
			return img, d.Digest, err
		}
		index, err = index.ImageIndex(d.Digest)
	}
	return nil, v1.Hash{}, err
}

// download is the download of one image's layers into files.
type download struct {
	opts  Options
	files []*os.File
}

// parallelLayers is the number of layers that are downloaded at once.
const parallelLayers = 3

func (d *download) image(ctx context.Context, img v1.Image) (*archive.Source, error) {
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	sizes, total := make([]int64, len(layers)), int64(0)
	for i, l := range layers {
		if sizes[i], err = l.Size(); err != nil {
			return nil, err
		}
		if sizes[i] < 0 || sizes[i] > d.opts.MaxBytes-total {
			return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "MaxBytes",
				Err: fmt.Errorf("the image's layers have more than %d bytes, the limit MaxBytes", d.opts.MaxBytes)}
		}
		total += sizes[i]
	}
	d.opts.Meter.Stage(image.StagePull, total)
	src := &archive.Source{Config: cfg, Layers: make([]archive.Layer, len(layers))}
	for range layers {
		f, err := d.opts.NewFile()
		if err != nil {
			return nil, err
		}
		d.files = append(d.files, f)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLayers)
	for i, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		src.Layers[i] = archive.Layer{Digest: digest, Open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(d.files[i], 0, sizes[i])), nil
		}}
		g.Go(func() error { return d.fetch(gctx, l, d.files[i], sizes[i]) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	d.opts.Meter.Flush()
	return src, nil
}

// fetch copies one layer to its file; the reader checks size and digest.
func (d *download) fetch(ctx context.Context, l v1.Layer, f *os.File, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rc, err := l.Compressed()
	if err != nil {
		return err
	}
	defer rc.Close()
	n, err := io.Copy(f, io.TeeReader(io.LimitReader(rc, size+1), meterWriter{d.opts.Meter}))
	if err == nil && n != size {
		err = fmt.Errorf("a layer of %d bytes gave %d", size, n)
	}
	return err
}

type meterWriter struct{ m *image.Meter }

func (w meterWriter) Write(p []byte) (int, error) {
	w.m.Add(int64(len(p)))
	return len(p), nil
}

func (d *download) release() {
	for _, f := range d.files {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	d.files = nil
}

// classify turns a failure of the registry into an error with a Kind.
func classify(ref string, err error) error {
	var ce *carrel.Error
	if errors.As(err, &ce) {
		return err
	}
	e := &carrel.Error{Op: op, Kind: carrel.Unavailable, Field: "image", Err: fmt.Errorf("%s: %w", ref, err),
		Hint: "check the network, then try again"}
	var te *transport.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind, e.Hint = carrel.TimedOut, ""
	case errors.As(err, &te) && te.StatusCode == http.StatusNotFound:
		e.Kind, e.Hint = carrel.NotFound, "check the image's name and tag"
	case errors.As(err, &te) && (te.StatusCode == http.StatusUnauthorized || te.StatusCode == http.StatusForbidden):
		e.Kind, e.Hint = carrel.Unauthenticated, "the registry wants credentials, or has no such image: docker login REGISTRY"
	case errors.As(err, &te) && te.StatusCode == http.StatusTooManyRequests:
		e.Hint = "the registry limits how often you may pull: log in or wait"
	case hasNoPlatform(err):
		e.Kind, e.Hint = carrel.Unsupported, "this machine needs an image for linux/"+runtime.GOARCH
	case isVerification(err):
		e.Kind, e.Hint = carrel.Invalid, "what the registry sent is not what the digest names: do not use it"
	}
	var pe *os.PathError
	if errors.As(err, &pe) {
		return archive.Classify(op, err)
	}
	return e
}

// hasNoPlatform reports whether an index has no image for the requested platform. The library has
// no error type for that, so the text is compared. TestIndex fails when the text changes.
func hasNoPlatform(err error) bool { return strings.Contains(err.Error(), "no child with platform") }

// isVerification reports whether contents did not match a digest. The library exports no error type
// for that, so the text is compared.
func isVerification(err error) bool {
	return strings.Contains(err.Error(), "error verifying") || strings.Contains(err.Error(), "does not match requested digest")
}
