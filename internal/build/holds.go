package build

import (
	"context"
	"sync"

	"github.com/carrel-dev/carrel/internal/image"
)

// holds keep the layers and images that a build names until the build ends. Without them, a
// collection of caches could take a layer between the moment that the build finds it and the moment
// that a workshop is made from it.
type holds struct {
	mu       sync.Mutex
	releases []func()
}

// add takes over a hold.
func (h *holds) add(release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, release)
}

// release ends all holds.
func (h *holds) release() {
	h.mu.Lock()
	all := h.releases
	h.releases = nil
	h.mu.Unlock()
	for _, release := range all {
		release()
	}
}

// hold finds an image and holds it. If a collection takes the image in between, find is called
// again, and makes the image anew.
func (r *run) hold(ctx context.Context, find func() (image.Image, error)) (image.Image, error) {
	for ctx.Err() == nil {
		img, err := find()
		if err != nil {
			return image.Image{}, err
		}
		if release, ok := r.e.opts.Images.Hold(img.ID); ok {
			r.holds.add(release)
			return img, nil
		}
	}
	return image.Image{}, context.Cause(ctx)
}
