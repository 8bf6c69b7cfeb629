package service

import (
	"context"
	"io"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/warm"
)

// templates manages the templates that sandboxes are made from.
type templates struct {
	opts     *Options
	table    *table
	resolver *resolver
	gates    *gates
	warm     *warm.Pool[*prepared]
	goldens  *golden.Starts
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
	found, err := t.resolver.template(ctx, "get template", nameOrID)
	if err != nil {
		return carrel.Template{}, err
	}
	if !found.BuiltIn || found.Lazy != nil { // Get would make it ready to boot, or wants it whole
		return t.goldens.Marked(found), nil
	}
	img, err := t.opts.Images.Get(ctx, found.ID)
	if img.StandIn != "" {
		img.ID = found.ID // not that of the stand-in, on whose image its sandboxes lie
	}
	return t.goldens.Marked(img.Template), err
}

// ImportTemplate implements carrel.Templates.
func (t *templates) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	if err := t.opts.Images.CheckName("import template", name); err != nil {
		return carrel.Template{}, err
	}
	pass, err := t.gates.enterBuild(ctx, "import template")
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	img, err := t.opts.Images.Import(ctx, name, archive, progress)
	t.templatesChanged()
	return img.Template, err
}

// PullImage implements carrel.Registries.
func (t *templates) PullImage(ctx context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (carrel.Template, error) {
	if opts.Image != "" { // else it is the name of a built-in template
		if err := t.opts.Images.CheckName("pull template", name); err != nil {
			return carrel.Template{}, err
		}
	}
	if opts.Image == "" && name == image.Kernel && t.opts.GetKernel != nil {
		return t.opts.GetKernel(ctx, progress)
	}
	pass, err := t.gates.enterBuild(ctx, "pull template")
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	img, err := t.made(ctx, name, opts, progress)
	t.templatesChanged()
	return img.Template, err
}

// made pulls an image, or makes a built-in template if there is no image.
func (t *templates) made(ctx context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (image.Image, error) {
	if opts.Image == "" {
		return t.opts.Images.Make(ctx, name, progress)
	}
	return t.opts.Images.Pull(ctx, name, opts, progress)
}

// push sends the template with an ID to a registry.
func (t *templates) push(ctx context.Context, id string, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	pass, err := t.gates.enterBuild(ctx, opPush)
	if err != nil {
		return carrel.Pushed{}, err
	}
	defer pass.Done(nil)
	return t.opts.Images.Push(ctx, id, opts, progress)
}

// UpdateTemplate implements carrel.Templates.
func (t *templates) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (carrel.Template, error) {
	found, err := t.resolver.template(ctx, "update template", nameOrID)
	if err != nil {
		return carrel.Template{}, err
	}
	img, err := t.opts.Images.Update(ctx, found.ID, u)
	t.templatesChanged()
	return t.goldens.Marked(img.Template), err
}

// DeleteTemplate implements carrel.Templates.
func (t *templates) DeleteTemplate(ctx context.Context, nameOrID string) error {
	found, err := t.resolver.template(ctx, "delete template", nameOrID)
	if err != nil {
		return err
	}
	defer t.templatesChanged()
	return t.opts.Images.Delete(ctx, found.ID)
}

// ResolveTemplate finds the template or the snapshot that a reference means to the caller. For a
// snapshot, it returns only the ID. It makes nothing.
func (t *templates) ResolveTemplate(ctx context.Context, op string, ref carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error) {
	m, err := t.resolver.resolve(ctx, op, ref)
	if err != nil || m.moment == nil {
		return m.template, "", err
	}
	return carrel.Template{}, m.moment.Snapshot.ID, nil
}

// image makes a template ready for a tier. The templates host and base have real programs. A tier
// without real processes can't run those. There, the template sim stands for them and is ready at
// once. get returns the image of another template.
func (t *templates) image(ctx context.Context, found carrel.Template, tier carrel.Tier,
	get func(ctx context.Context, id string) (image.Image, error)) (image.Image, error) {
	if tier == "" {
		tier = t.opts.DefaultTier
	}
	if found.BuiltIn && (found.Name == image.Base || found.Name == image.Host) {
		if d, err := t.opts.Drivers.Get(tier); err == nil && !d.Info().Capabilities.RealProcesses {
			if sim, ok := t.opts.Images.Named("", image.Sim); ok {
				img, err := t.opts.Images.Get(ctx, sim.ID)
				img.Name = found.Name
				return img, err
			}
		}
	}
	return get(ctx, found.ID)
}

// templatesChanged makes the pool and the goldens check again everything that was made from
// templates.
func (t *templates) templatesChanged() {
	t.warm.Recheck()
	t.table.spawn(func() { t.goldens.Sweep(t.table.ctx) })
}
