package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/readiness"
)

// readyPoll is the wait between two looks at a template's start.
const readyPoll = 50 * time.Millisecond

// finish makes the template of the last stage's result.
func (r *run) finish(ctx context.Context, m made) error {
	b := r.j.public()
	t := r.describe(b, m.config)
	// The same layer gives an equal image. The step's key alone would not do: a forced step gives
	// other files under the same key. Without a layer, the key names the base's content.
	content := keyOf("build:"+m.image+string(m.layer), m.key)
	t.Key = image.TwoKeys(content, keyOf("settings", t.Env, t.User, t.WorkDir, t.Start, t.Entry,
		t.OnBuild, t.Ready, t.ReadyCheck, t.Labels, t.Limits))
	img, made, err := r.image(ctx, m, t, content)
	if err != nil {
		return err
	}
	if made {
		r.j.write(line(levelInfo, stepFinalize, fmt.Sprintf("the image has %d MiB", img.Size>>20)))
	}
	_ = failpoint.Hit(pointComposed)
	var first image.Image
	if err = r.start(ctx, img, made); err == nil {
		first, err = r.tag(ctx, img, t, b)
	}
	if made && first.ID != img.ID { // it failed, or an equal image has the name already
		_ = r.e.opts.Images.Delete(context.WithoutCancel(ctx), img.ID)
	}
	if err != nil {
		return err
	}
	r.e.opts.Sandboxes.TemplatesChanged()
	_ = failpoint.Hit(pointTagged)
	r.j.set(func(b *carrel.Build) { b.Image, b.Size = first.ID, first.Size })
	return nil
}

// describe is the template that a build makes.
func (r *run) describe(b carrel.Build, c plan.Config) carrel.Template {
	t := carrel.Template{Project: b.Project, Of: b.TemplateID, Build: b.ID, Source: "built",
		Public: r.spec.Public,
		User:   c.User, WorkDir: c.Workdir, Limits: carrel.Limits{CPUs: r.spec.CPUs,
			MemoryMB: r.spec.MemoryMB, DiskMB: r.diskMB()}}
	t.User = userOf(c)
	for _, v := range c.Env {
		if t.Env == nil {
			t.Env = map[string]string{}
		}
		t.Env[v.Name] = v.Value
	}
	for _, v := range c.Labels {
		if t.Labels == nil {
			t.Labels = map[string]string{}
		}
		t.Labels[v.Name] = v.Value
	}
	t.Start, t.Entry, t.OnBuild = append(append([]string{}, c.Entrypoint...), c.Cmd...),
		len(c.Entrypoint), c.OnBuild
	if start := c.Start; start != "" {
		t.Start, t.Entry = shellArgs(start), 0
	}
	if c.Ready != nil {
		t.Ready = c.Ready.Command
		t.ReadyCheck = carrel.ReadyCheck{Interval: c.Ready.Interval, Timeout: c.Ready.Timeout}
		if c.Ready.Grace > 0 {
			t.ReadyCheck.Within = c.Ready.Grace + time.Duration(c.Ready.Retries)*c.Ready.Timeout
		}
	}
	if r.spec.Start != "" {
		t.Start, t.Entry = shellArgs(r.spec.Start), 0
	}
	if r.spec.Ready != "" {
		t.Ready, t.ReadyCheck = r.spec.Ready, carrel.ReadyCheck{}
	}
	if len(t.Start) == 0 {
		t.Start = nil
	}
	return t
}

// image returns the image of a result: an equal one that is there, or a new one under a name that
// no list shows. made reports a new one.
func (r *run) image(ctx context.Context, m made, t carrel.Template,
	content string) (_ image.Image, made bool, err error) {
	images := r.e.opts.Images
	if !r.spec.NoCache {
		if img, ok := images.Keyed(t.Project, t.Key); ok &&
			!strings.HasPrefix(img.Name, image.DraftMark) {
			return img, false, nil
		}
	}
	hidden := t
	hidden.Name, hidden.Of = image.DraftMark+r.j.public().ID, ""
	if img, ok := r.link(ctx, m, hidden, content); ok {
		return img, true, nil
	}
	done, err := r.e.opts.Sandboxes.EnterBuild(ctx, opBuild)
	if err != nil {
		return image.Image{}, false, err
	}
	defer done()
	if m.layer == "" {
		base, err := images.Get(ctx, m.image)
		if err != nil {
			return image.Image{}, false, err
		}
		img, err := images.Compose(ctx, hidden, base.Path, nil, nil)
		return img, true, err
	}
	var img image.Image
	err = r.e.opts.Sandboxes.LayerFiles(ctx, m.layer,
		func(root string, changes io.Reader) (err error) {
			img, err = images.Compose(ctx, hidden, root, changes, image.IdentityFiles)
			return err
		})
	if err != nil && img.ID != "" { // the layer was damaged
		_ = images.Delete(context.WithoutCancel(ctx), img.ID)
	}
	return img, true, err
}

// link gives the image a template of equal content, if there is one: only the settings are new. Any
// failure means that the image must be composed.
func (r *run) link(ctx context.Context, m made, t carrel.Template,
	content string) (image.Image, bool) {
	if r.spec.NoCache {
		return image.Image{}, false
	}
	from := ""
	if m.layer == "" {
		from = m.image
	}
	if img, ok := r.e.opts.Images.WithContent(t.Project, content); ok {
		from = img.ID
	}
	if from == "" {
		return image.Image{}, false
	}
	img, err := r.e.opts.Images.Link(ctx, from, t)
	return img, err == nil
}

// start runs the start command once, and waits until the ready command succeeds. Where memory can
// be kept, every sandbox of the template goes on from there. made says that the image is new; an
// older one was tried by the build that made it.
func (r *run) start(ctx context.Context, img image.Image, made bool) error {
	if len(img.Start) == 0 && img.Ready == "" {
		return nil
	}
	making, err := r.e.opts.Sandboxes.Ripen(ctx, img.ID, carrel.Limits{})
	if err != nil {
		return err
	}
	if !making {
		if img.Ready == "" || !made {
			return nil
		}
		return r.tryReady(ctx, img)
	}
	r.j.write(line(levelInfo, stepFinalize, "run the start command and wait until it is ready"))
	for {
		t, err := r.e.opts.Sandboxes.GetTemplate(ctx, img.ID)
		if err != nil {
			return err
		}
		switch t.Golden {
		case "ready":
			r.j.write(line(levelInfo, stepFinalize,
				"the template is started: its sandboxes go on from there"))
			return nil
		case "making", "":
		default:
			return &carrel.Error{Kind: carrel.Invalid, Field: "ready", Err: errors.New(t.Golden)}
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryReady runs the start and ready commands in a sandbox of their own, where no memory is kept.
func (r *run) tryReady(ctx context.Context, img image.Image) error {
	w, err := r.openWorkshop(ctx, img.ID, "")
	if err != nil {
		return err
	}
	defer w.close(ctx)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if len(img.Start) > 0 {
		stop, err := readiness.Begin(ctx, w.inside, carrel.Command{Args: img.Start, Env: img.Env,
			User: img.User, Dir: img.WorkDir}, end)
		if err != nil {
			return err
		}
		defer stop()
	}
	r.j.write(line(levelInfo, stepFinalize, "run the start command and wait until it is ready"))
	return readiness.Of(img.Template, readiness.Within).Await(ctx, func(ctx context.Context,
		cmd carrel.Command) (*carrel.Result, error) {
		cmd.Env, cmd.User, cmd.Dir = img.Env, img.User, img.WorkDir
		res, err := w.inside.Run(ctx, cmd)
		if err == nil || ctx.Err() != nil {
			return res, err
		}
		why := w.explain(ctx, err)
		if why != err { // the sandbox is gone
			end(why)
		}
		return res, why
	})
}

// tag makes the template's name and tags point to an image. It returns the image of the first tag.
func (r *run) tag(ctx context.Context, img image.Image, t carrel.Template,
	b carrel.Build) (first image.Image, err error) {
	images := r.e.opts.Images
	for _, tag := range b.Tags {
		next := t
		next.Name, next.Tag = b.Name, storedTag(tag)
		var out image.Image
		if have, equal := r.e.equal(next); equal {
			out, err = images.SetBuild(ctx, have.ID, next.Build)
		} else if strings.HasPrefix(img.Name, image.DraftMark) {
			out, err = images.Rename(ctx, img.ID, next) // it keeps its ID, and so its own start
			img = out
		} else {
			out, err = images.Link(ctx, img.ID, next)
		}
		if err != nil {
			return first, err
		}
		if first.ID == "" {
			first = out
		}
	}
	return first, nil
}

// storedTag is a tag as images have it: the default tag is "".
func storedTag(tag string) string {
	if tag == defaultTag || tag == "latest" {
		return ""
	}
	return tag
}

// point makes a tag of a template point to an image. An equal image stays, so that its own start
// and its warm sandboxes stay too.
func (e *Engine) point(ctx context.Context, img image.Image,
	t carrel.Template) (image.Image, error) {
	if have, equal := e.equal(t); equal {
		return e.opts.Images.SetBuild(ctx, have.ID, t.Build)
	}
	return e.opts.Images.Link(ctx, img.ID, t)
}

// equal finds the image that a template's tag points to, and reports whether it is equal to t.
func (e *Engine) equal(t carrel.Template) (carrel.Template, bool) {
	have, ok := e.opts.Images.Named(t.Project, t.FullName())
	return have, ok && have.Key == t.Key && have.Key != "" && have.Of == t.Of &&
		have.Public == t.Public
}
