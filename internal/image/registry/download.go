package registry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

const (
	// parallelLayers is the number of layers that are downloaded at once.
	parallelLayers = 3
	// A download that is cut off goes on this often, unless it makes progress in between.
	maxCuts     = 5
	cutProgress = 256 << 10 // bytes
)

// download is the download of one image's layers into files.
type download struct {
	client *Client
	req    Request
	ref    string
	found  *found
	late   map[int]*stargz.TOC // layers that are not downloaded

	cancel context.CancelFunc
	wg     sync.WaitGroup
	hold   *image.Hold
	layers []*layerFile
}

// layerFile is a layer on the disk. The fields are set before done is closed.
type layerFile struct {
	desc v1.Descriptor
	done chan struct{}
	file *os.File
	err  error
}

// start begins the downloads and returns the image.
func (d *download) start(ctx context.Context) (*archive.Source, error) {
	total := int64(0)
	for i, l := range d.found.manifest.Layers {
		if d.late[i] != nil {
			continue
		}
		if l.Size > d.req.MaxBytes-total {
			return nil, &carrel.Error{Op: opPull, Kind: carrel.Exhausted, Field: "MaxBytes",
				Err: fmt.Errorf("the image's layers have more than %d bytes, the limit MaxBytes",
					d.req.MaxBytes)}
		}
		total += l.Size
	}
	ctx, d.cancel = context.WithCancel(ctx)
	d.hold = d.req.Meter.Hold(image.StagePull, total)
	src := &archive.Source{Config: d.found.config, Digest: d.found.digest.String()}
	todo := make(chan *layerFile, len(d.found.manifest.Layers))
	for i, desc := range d.found.manifest.Layers {
		if d.late[i] != nil {
			src.Layers = append(src.Layers, archive.Layer{Digest: desc.Digest})
			continue
		}
		l := &layerFile{desc: desc, done: make(chan struct{})}
		d.layers = append(d.layers, l)
		todo <- l
		src.Layers = append(src.Layers, archive.Layer{Digest: desc.Digest,
			Stargz: desc.Annotations[stargz.Annotation] != "",
			Open: func(ctx context.Context) (io.ReadCloser, error) {
				return d.open(ctx, l)
			}})
	}
	close(todo)
	for range parallelLayers {
		d.wg.Go(func() {
			for l := range todo {
				if l.file, l.err = d.layer(ctx, l.desc); l.err != nil {
					l.err = classify(opPull, d.ref, d.found.host, l.err)
				}
				close(l.done)
				if l.err != nil {
					d.cancel() // after done: the others look for this error
				}
			}
		})
	}
	d.wg.Go(func() {
		for _, l := range d.layers {
			<-l.done
		}
		d.hold.End()
	})
	return src, nil
}

// open waits for a layer and reads it.
func (d *download) open(ctx context.Context, l *layerFile) (io.ReadCloser, error) {
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.err != nil {
		return nil, d.failure()
	}
	return io.NopCloser(io.NewSectionReader(l.file, 0, l.desc.Size)), nil
}

// release ends the downloads and closes the files.
func (d *download) release() {
	d.cancel()
	d.wg.Wait()
	for _, l := range d.layers {
		if l.file != nil {
			_ = l.file.Close()
		}
	}
}

// failure returns the error because of which the downloads ended: one layer's fault ends all
// others.
func (d *download) failure() error {
	var first error
	for _, l := range d.layers {
		select {
		case <-l.done:
		default:
			continue
		}
		if l.err != nil && (first == nil || carrel.KindOf(first) == carrel.TimedOut) {
			first = l.err
		}
	}
	return first
}

// layer returns a file with the checked content of a layer.
func (d *download) layer(ctx context.Context, desc v1.Descriptor) (*os.File, error) {
	cache, project := d.client.cfg.Cache, d.req.Project
	free, ok := cache.claim(project, desc.Digest, ctx.Done())
	if !ok {
		return nil, ctx.Err()
	}
	defer free()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f := cache.open(project, desc.Digest, desc.Size); f != nil {
		d.hold.Add(desc.Size)
		return f, nil
	}
	p, err := cache.part(project, desc.Digest, desc.Size)
	if err != nil {
		return nil, archive.Classify(opPull, err)
	}
	d.hold.Add(p.have)
	for _, o := range d.found.origins {
		if err = d.fetchFrom(ctx, o, desc, p); err == nil {
			cache.keep(project, desc.Digest, p)
			return p.file, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	_, lies := errors.AsType[*contentError](err)
	_, disk := errors.AsType[*os.PathError](err)
	err = errors.Join(err, p.leave(lies || disk))
	cache.trim() // a row of pulls that break off must not fill the disk
	return nil, err
}

// fetchFrom fetches what is missing of a layer from one origin. Earlier bytes may be of another
// origin, or damaged. So the origin gets a chance to send the whole layer before it is blamed.
func (d *download) fetchFrom(ctx context.Context, o origin, desc v1.Descriptor, p *part) error {
	for {
		mixed := p.have > 0
		err := d.fetch(ctx, o, desc, p)
		_, lies := errors.AsType[*contentError](err)
		code, _ := statusOf(err)
		if !lies && !(mixed && code == http.StatusRequestedRangeNotSatisfiable) {
			return err
		}
		if rerr := p.reset(); rerr != nil {
			return rerr
		}
		if !mixed {
			return err
		}
	}
}

// fetch copies what is missing of a layer from an origin to its file. When the connection breaks it
// goes on where it was.
func (d *download) fetch(ctx context.Context, o origin, desc v1.Descriptor, p *part) error {
	cuts := 0
	for {
		before := p.have
		err := d.piece(ctx, o, desc, p)
		switch {
		case err == nil:
			if got := hex.EncodeToString(p.sum.Sum(nil)); got != desc.Digest.Hex {
				return &contentError{fmt.Errorf("a layer's content does not match its digest %s", desc.Digest)}
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !isCut(err):
			return err
		}
		if p.have-before >= cutProgress {
			cuts = 0
		}
		if cuts++; cuts > maxCuts {
			return fmt.Errorf("cut off %d times: %w", cuts, err)
		}
		select {
		case <-time.After(time.Duration(cuts) * 100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isCut reports whether a download may go on after an error.
func isCut(err error) bool {
	code, _ := statusOf(err)
	_, lies := errors.AsType[*contentError](err)
	_, file := errors.AsType[*os.PathError](err)
	_, known := errors.AsType[*carrel.Error](err)
	return code == 0 && !lies && !file && !known && !isFinal(err)
}

// piece copies what is missing of a layer.
func (d *download) piece(ctx context.Context, o origin, desc v1.Descriptor, p *part) error {
	if p.have == desc.Size && p.have > 0 {
		return nil // all of it was there
	}
	rc, start, err := o.blob(ctx, desc.Digest, p.have)
	if err != nil {
		return err
	}
	defer rc.Close()
	if start != p.have { // from the beginning: it knows no ranges
		if err := p.reset(); err != nil {
			return err
		}
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := rc.Read(buf)
		if int64(n) > desc.Size-p.have {
			return &contentError{fmt.Errorf("a layer of %d bytes gives more", desc.Size)}
		}
		if _, err := p.file.WriteAt(buf[:n], p.have); err != nil {
			return err
		}
		p.sum.Write(buf[:n])
		p.have += int64(n)
		d.hold.Add(int64(n))
		switch {
		case err == io.EOF && p.have == desc.Size:
			return nil
		case err == io.EOF:
			return fmt.Errorf("a layer of %d bytes ended after %d: %w", desc.Size, p.have,
				io.ErrUnexpectedEOF)
		case err != nil:
			return err
		}
	}
}
