package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

const (
	opPublishTemplate = "publish template"
	opAdoptTemplate   = "adopt template"
)

// PublishTemplate implements carrel.Movement.
func (m *Movement) PublishTemplate(ctx context.Context, nameOrID string) (carrel.TemplatePassport, error) {
	mv, err := m.mover(opPublishTemplate)
	if err != nil {
		return carrel.TemplatePassport{}, err
	}
	found, err := m.templates.resolver.template(ctx, opPublishTemplate, nameOrID)
	if err != nil {
		return carrel.TemplatePassport{}, err
	}
	img, err := m.opts.Images.Get(ctx, found.ID)
	if err != nil {
		return carrel.TemplatePassport{}, moveError(opPublishTemplate, "", err)
	}
	t := img.Template
	t.Golden = ""
	p := carrel.TemplatePassport{Version: carrel.PassportVersion, Template: t}
	if img.Path != "" {
		moved, err := m.sums.of(ctx, img.Path)
		if err == nil {
			moved.Name = filepath.Base(img.Path)
			err = mv.PutImage(ctx, moved.Sum, img.Path, "template."+t.ID)
		}
		if err != nil {
			return carrel.TemplatePassport{}, moveError(opPublishTemplate, "", err)
		}
		p.Image = &moved
	}
	return p.Sealed()
}

// AdoptTemplate implements carrel.Movement.
func (m *Movement) AdoptTemplate(ctx context.Context, p carrel.TemplatePassport) (carrel.Template, error) {
	mv, err := m.mover(opAdoptTemplate)
	if err != nil {
		return carrel.Template{}, err
	}
	if err := p.Check(); err != nil {
		return carrel.Template{}, err
	}
	t := p.Template
	if t.BuiltIn || p.Image == nil {
		return m.builtInHere(t)
	}
	pass, err := m.templates.gates.enterBuild(ctx, opAdoptTemplate)
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	images, ok := m.opts.Images.(image.Arrivals)
	if !ok {
		return carrel.Template{}, &carrel.Error{Op: opAdoptTemplate, Kind: carrel.Unsupported, Field: "template",
			Err: errors.New("this service takes no templates from other machines")}
	}
	img, err := images.Arrive(ctx, t, p.Image.Sum, func(path string) error {
		if err := mv.GetImage(ctx, p.Image.Sum, path); err != nil {
			return err
		}
		if fi, err := os.Stat(path); err == nil {
			m.sums.note(versionText(fi), p.Image.Sum)
		}
		return nil
	})
	if err != nil {
		return carrel.Template{}, moveError(opAdoptTemplate, "", err)
	}
	m.templates.templatesChanged()
	m.begin(ctx, img)
	return m.templates.goldens.Marked(img.Template), nil
}

// begin has the template start in the background, as a build does on its machine: so sandboxes here
// go on from there, too.
func (m *Movement) begin(ctx context.Context, img image.Image) {
	if len(img.Start) == 0 || img.Ready == "" {
		return
	}
	ctx = carrel.WithCaller(ctx, carrel.Caller{Key: "movement", Project: img.Project, Role: carrel.RoleOwner})
	if _, err := m.creator.plan(ctx, carrel.CreateOptions{Template: img.ID}); err != nil {
		m.log.Warn("start a template from another machine", "template", img.FullName(), "err", err)
	}
}

// builtInHere finds a built-in template on this machine. Each machine makes those itself.
func (m *Movement) builtInHere(t carrel.Template) (carrel.Template, error) {
	here, ok := m.opts.Images.ByID(t.ID)
	if !ok || !here.BuiltIn {
		return carrel.Template{}, &carrel.Error{Op: opAdoptTemplate, Kind: carrel.Unsupported, Field: "template",
			Err: fmt.Errorf("this machine has no built-in template %s", clip(t.Name)), Hint: "use the same carrel on both machines"}
	}
	return m.templates.goldens.Marked(here), nil
}
