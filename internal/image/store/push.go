package store

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/registry"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// packed describes a template's files as a layer.
type packed struct {
	layer  v1.Descriptor
	diffID v1.Hash
}

// Push sends a template to a registry, as an image of one layer.
func (s *Store) Push(ctx context.Context, id string, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	const op = "push template"
	img, err := s.Get(ctx, id)
	if err != nil {
		return carrel.Pushed{}, err
	}
	if img.Path == "" {
		return carrel.Pushed{}, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "template",
			Err: fmt.Errorf("%q has no files", img.Name)}
	}
	meter := image.NewMeter(progress)
	s.mu.Lock()
	known, have := s.packed[img.ID]
	s.mu.Unlock()
	var file *os.File
	defer func() {
		if file != nil {
			_ = file.Close()
		}
	}()
	if !have || img.BuiltIn { // a built-in template may be made anew under its ID
		meter.Stage(image.StagePack, 0)
		if file, known, err = s.pack(ctx, img, meter); err != nil {
			return carrel.Pushed{}, archive.Classify(op, err)
		}
		s.mu.Lock()
		s.packed[img.ID] = known
		s.mu.Unlock()
	}
	up := registry.Upload{Config: startOf(img.Template), Layer: known.layer, DiffID: known.diffID}
	up.Open = func(ctx context.Context) (registry.Content, error) {
		if file == nil {
			again, p, err := s.pack(ctx, img, nil)
			if err != nil {
				return nil, archive.Classify(op, err)
			}
			file = again
			if p.diffID != known.diffID || p.layer.Digest != known.layer.Digest {
				return nil, &carrel.Error{Op: op, Kind: carrel.Internal,
					Err: errors.New("the same template gave another layer")}
			}
		}
		return borrowed{file}, nil
	}
	return s.registries.Push(ctx, opts, s.request(ctx, meter), up)
}

// borrowed is a file that its user does not close.
type borrowed struct{ io.ReaderAt }

// Close implements io.Closer.
func (borrowed) Close() error { return nil }

// startOf is how processes of a template start, in the form of an image's configuration.
func startOf(t carrel.Template) v1.Config {
	c := v1.Config{User: t.User, WorkingDir: t.WorkDir, Cmd: t.Start, Labels: t.Labels}
	for _, k := range slices.Sorted(maps.Keys(t.Env)) {
		c.Env = append(c.Env, k+"="+t.Env[k])
	}
	return c
}

// pack writes the files of a template as a compressed layer into a file without a name.
func (s *Store) pack(ctx context.Context, img image.Image,
	meter *image.Meter) (_ *os.File, p packed, err error) {
	files, err := s.Files(ctx, img.Path)
	if err != nil {
		return nil, p, err
	}
	defer files.Close()
	f, err := s.scratchFile()
	if err != nil {
		return nil, p, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	p, err = packInto(ctx, f, files, meter, true)
	if _, odd := errors.AsType[*stargz.NameError](err); odd {
		// Without a table of contents it is an ordinary layer, which every client fetches whole.
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			err = f.Truncate(0)
		}
		if err == nil {
			p, err = packInto(ctx, f, files, nil, false)
		}
	}
	return f, p, err
}

// packInto writes the files of a template as a compressed layer into an empty file, with or without
// a table of contents.
func packInto(ctx context.Context, f *os.File, files image.Files, meter *image.Meter,
	withTOC bool) (p packed, err error) {
	small, plain := sha256.New(), sha256.New()
	out, seen := io.MultiWriter(f, small), io.MultiWriter(plain, meterWriter{meter})
	var w archive.TarWriter
	var z *stargz.Writer
	if withTOC {
		z, err = stargz.NewWriter(out, seen)
		w = z
	} else {
		w, err = newPlainLayer(out, seen)
	}
	if err != nil {
		return p, err
	}
	if err := archive.Export(ctx, files, w); err != nil {
		return p, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return p, err
	}
	p.diffID = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(plain.Sum(nil))}
	p.layer = v1.Descriptor{MediaType: types.OCILayer, Size: size,
		Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(small.Sum(nil))}}
	if z != nil {
		p.layer.Annotations = map[string]string{stargz.Annotation: z.TOCDigest(),
			stargz.SizeAnnotation: strconv.FormatInt(z.PlainSize(), 10)}
	}
	return p, nil
}

// plainLayer writes a compressed layer without a table of contents.
type plainLayer struct {
	*tar.Writer
	zip *gzip.Writer
}

func newPlainLayer(out, plain io.Writer) (*plainLayer, error) {
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &plainLayer{tar.NewWriter(io.MultiWriter(zip, plain)), zip}, nil
}

// Close ends the archive and its compression.
func (l *plainLayer) Close() error { return errors.Join(l.Writer.Close(), l.zip.Close()) }

// scratchFile makes a file without a name on the disk of the cache.
func (s *Store) scratchFile() (*os.File, error) {
	dir := filepath.Join(s.opts.CacheDir, "layers")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "push-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// meterWriter counts bytes.
type meterWriter struct{ m *image.Meter }

func (w meterWriter) Write(p []byte) (int, error) {
	w.m.Add(int64(len(p)))
	return len(p), nil
}
