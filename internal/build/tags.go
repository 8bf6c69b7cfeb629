package build

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// TagTemplate implements carrel.Builder. target may be the ID of an image.
func (e *Engine) TagTemplate(ctx context.Context, target string,
	tags []string) (carrel.TemplateTag, error) {
	const op = "tag template"
	if len(tags) == 0 {
		return carrel.TemplateTag{}, invalid(op, "tags", "none given")
	}
	if err := checkTags(op, tags); err != nil {
		return carrel.TemplateTag{}, err
	}
	t, err := e.resolve(ctx, op, target)
	if err != nil {
		return carrel.TemplateTag{}, err
	}
	if t.BuiltIn || t.Of == "" {
		return carrel.TemplateTag{}, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "target",
			Err:  errors.New("only a template that was built has tags"),
			Hint: "build it: carrel template build NAME PATH"}
	}
	img := image.Image{Template: t}
	out := carrel.TemplateTag{TemplateID: t.Of, BuildID: t.Build}
	for _, tag := range tags {
		next := img.Template
		next.Tag = storedTag(tag)
		if next.Tag == t.Tag {
			out.Tag, out.Created = tag, img.Created
			continue
		}
		made, err := e.point(ctx, img, next)
		if err != nil {
			return out, err
		}
		out.Tag, out.Created = tag, made.Created
	}
	e.opts.Sandboxes.TemplatesChanged()
	return out, nil
}

// resolve finds the template that a text means to the caller.
func (e *Engine) resolve(ctx context.Context, op, text string) (carrel.Template, error) {
	ref, err := carrel.ParseTemplateRef(text)
	if err != nil {
		return carrel.Template{}, err
	}
	t, snapshot, err := e.opts.Sandboxes.ResolveTemplate(ctx, op, ref)
	if err == nil && snapshot != "" {
		err = ref.NotFound(op)
	}
	return t, err
}

// lasting returns the lasting ID of the template that a text means to the caller. A template that
// has no default tag is one too, but only its own project knows it without a tag.
func (e *Engine) lasting(ctx context.Context, op, text string) (string, error) {
	t, err := e.resolve(ctx, op, text)
	if carrel.KindOf(err) == carrel.NotFound {
		if of := e.opts.Images.LastingID(carrel.CallerOf(ctx).Project, text); of != "" {
			return of, nil
		}
	}
	return t.Of, err
}

// UntagTemplate implements carrel.Builder.
func (e *Engine) UntagTemplate(ctx context.Context, nameOrID string, tags []string) error {
	const op = "remove tag"
	of, err := e.lasting(ctx, op, nameOrID)
	if err != nil {
		return err
	}
	if len(tags) == 0 {
		return invalid(op, "tags", "none given")
	}
	for _, tag := range tags {
		if storedTag(tag) == "" {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "tags",
				Err:  errors.New("the default tag can't be removed"),
				Hint: "delete the template, or build it again"}
		}
	}
	for _, tag := range tags {
		if err := e.opts.Images.Untag(ctx, of, tag); err != nil {
			return err
		}
	}
	e.opts.Sandboxes.TemplatesChanged()
	return nil
}

// TemplateTags implements carrel.Builder.
func (e *Engine) TemplateTags(ctx context.Context, nameOrID string) ([]carrel.TemplateTag, error) {
	of, err := e.lasting(ctx, "list tags", nameOrID)
	if err != nil {
		return nil, err
	}
	out := []carrel.TemplateTag{}
	for _, img := range e.opts.Images.Tagged(of) {
		tag := img.Tag
		if tag == "" {
			tag = defaultTag
		}
		out = append(out, carrel.TemplateTag{Tag: tag, TemplateID: img.Of, BuildID: img.Build,
			Created: img.Created})
	}
	slices.SortFunc(out, func(x, y carrel.TemplateTag) int { return strings.Compare(x.Tag, y.Tag) })
	return out, nil
}
