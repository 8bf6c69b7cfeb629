package service

import (
	"context"
	"io"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/warm"
)

// templates is what sandboxes are made from.
type templates struct {
	opts    *Options
	table   *table
	gates   *gates
	warm    *warm.Pool[*prepared]
	goldens *golden.Starts
}

// ListTemplates implements carrel.Templates.
func (t *templates) ListTemplates(ctx context.Context) ([]carrel.Template, error) {
	images, err := t.opts.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]carrel.Template, len(images))
	for i, img := range images {
		out[i] = t.goldens.Marked(img.Template)
	}
	return out, nil
}

// GetTemplate implements carrel.Templates.
func (t *templates) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	img, err := t.opts.Images.Get(ctx, nameOrID)
	return t.goldens.Marked(img.Template), err
}

// ImportTemplate implements carrel.Templates.
func (t *templates) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	pass, err := t.gates.enterBuild(ctx, "import template")
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	img, err := t.opts.Images.Import(ctx, name, archive, progress)
	t.templatesChanged()
	return img.Template, err
}

// PullTemplate implements carrel.Templates.
func (t *templates) PullTemplate(ctx context.Context, name, ref string, progress func(carrel.Progress)) (carrel.Template, error) {
	pass, err := t.gates.enterBuild(ctx, "pull template")
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	img, err := t.opts.Images.Pull(ctx, name, ref, progress)
	t.templatesChanged()
	return img.Template, err
}

// UpdateTemplate implements carrel.Templates.
func (t *templates) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (carrel.Template, error) {
	img, err := t.opts.Images.Update(ctx, nameOrID, u)
	t.templatesChanged()
	return t.goldens.Marked(img.Template), err
}

// DeleteTemplate implements carrel.Templates.
func (t *templates) DeleteTemplate(ctx context.Context, nameOrID string) error {
	defer t.templatesChanged()
	return t.opts.Images.Delete(ctx, nameOrID)
}

// template finds a template. Base is packed from this machine's tools when it is
// first wanted; a tier without real processes could run none of them, and gets its
// own template under that name at once.
func (t *templates) template(ctx context.Context, name string, tier carrel.Tier) (image.Image, error) {
	if tier == "" {
		tier = t.opts.DefaultTier
	}
	if name == image.Base {
		if d, err := t.opts.Drivers.Get(tier); err == nil && !d.Info().Capabilities.RealProcesses {
			if img, err := t.opts.Images.Get(ctx, image.Sim); err == nil {
				img.Name = image.Base
				return img, nil
			}
		}
	}
	return t.opts.Images.Get(ctx, name)
}

// templatesChanged has what was made of templates looked at again.
func (t *templates) templatesChanged() {
	t.warm.Recheck()
	t.table.spawn(func() { t.goldens.Sweep(t.table.ctx) })
}
