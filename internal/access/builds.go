package access

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/request"
)

// Builds makes templates step by step; package build implements it. It takes the project from the
// caller in the context and checks no other rights.
type Builds interface {
	carrel.Builder
	// NewBuild makes a build that waits for its start, as E2B's SDKs ask for.
	NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error)
	// HasUpload reports whether the caller's project has uploaded the archive with a name, for the
	// builds of a template.
	HasUpload(ctx context.Context, template, name string) (bool, error)
	// PutUpload keeps an archive under a name, for the builds of a template.
	PutUpload(ctx context.Context, template, name string, r io.Reader) error
}

// noBuilds is a [Builds] for services that build nothing.
type noBuilds struct{ carrel.NoBuilder }

// NewBuild implements Builds.
func (n noBuilds) NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	return n.StartBuild(ctx, spec)
}

// HasUpload implements Builds.
func (n noBuilds) HasUpload(ctx context.Context, _, _ string) (bool, error) {
	_, err := n.GetBuild(ctx, "")
	return false, err
}

// PutUpload implements Builds.
func (n noBuilds) PutUpload(ctx context.Context, _, _ string, _ io.Reader) error {
	_, err := n.GetBuild(ctx, "")
	return err
}

// noBuild is the error for a build that does not exist for this caller.
func noBuild(op string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "buildID",
		Err: errors.New("no such build"), Hint: "'carrel build ls' lists them"}
}

// build checks that the caller may see a build. It returns the context for the engine.
func (s *Service) build(ctx context.Context, op, id string) (context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return ctx, err
	}
	b, err := s.opts.Builds.GetBuild(ctx, id)
	switch {
	case carrel.KindOf(err) == carrel.NotFound, err == nil && !c.Sees(b.Project):
		return ctx, noBuild(op)
	}
	return ctx, err
}

// mayMakeTemplates says whether a ceiling lets a caller make templates.
func mayMakeTemplates(s *Service, op string, c carrel.Caller) error {
	return ceiling.Making(op, s.opts.Ceilings(c.Project, c.KeyID))
}

// mayBuild checks what a caller asks of a build.
func (s *Service) mayBuild(ctx context.Context, op string,
	spec *carrel.BuildSpec) (context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return ctx, err
	}
	if spec.Public && c.Role != carrel.RoleAdmin {
		return ctx, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "public",
			Err: errors.New("only an administrator makes a template public")}
	}
	if err := mayMakeTemplates(s, op, c); err != nil {
		return ctx, err
	}
	if err := ceiling.Build(op, s.opts.Ceilings(c.Project, c.KeyID), *spec); err != nil {
		return ctx, err
	}
	if spec.ID != "" {
		if ctx, err = s.build(ctx, op, spec.ID); err != nil {
			return ctx, err
		}
	}
	if spec.Network != nil {
		if err := s.mayOpenHost(op, c, *spec.Network); err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

// StartBuild implements carrel.Builder.
func (s *Service) StartBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	ctx, err := s.mayBuild(ctx, "build template", &spec)
	if err != nil {
		return carrel.Build{}, err
	}
	b, err := s.opts.Builds.StartBuild(ctx, spec)
	request.Touch(ctx, b.ID)
	return b, err
}

// NewBuild makes a build that waits for its start.
func (s *Service) NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	ctx, err := s.mayBuild(ctx, "create template", &spec)
	if err != nil {
		return carrel.Build{}, err
	}
	b, err := s.opts.Builds.NewBuild(ctx, spec)
	request.Touch(ctx, b.ID)
	return b, err
}

// HasUpload reports whether the caller's project has uploaded an archive, for the builds of a
// template.
func (s *Service) HasUpload(ctx context.Context, template, name string) (bool, error) {
	_, ctx, err := s.user(ctx, "look for files")
	if err != nil {
		return false, err
	}
	return s.opts.Builds.HasUpload(ctx, template, name)
}

// PutUpload keeps an archive for the builds of a template of the caller's project.
func (s *Service) PutUpload(ctx context.Context, template, name string, r io.Reader) error {
	_, ctx, err := s.user(ctx, "upload files")
	if err != nil {
		return err
	}
	return s.opts.Builds.PutUpload(ctx, template, name, r)
}

// GetBuild implements carrel.Builder.
func (s *Service) GetBuild(ctx context.Context, id string) (carrel.Build, error) {
	ctx, err := s.build(ctx, "get build", id)
	if err != nil {
		return carrel.Build{}, err
	}
	return s.opts.Builds.GetBuild(ctx, id)
}

// ListBuilds implements carrel.Builder.
func (s *Service) ListBuilds(ctx context.Context,
	opts carrel.BuildListOptions) ([]carrel.Build, error) {
	c, ctx, err := s.user(ctx, "list builds")
	if err != nil {
		return nil, err
	}
	all, err := s.opts.Builds.ListBuilds(ctx, opts)
	own := []carrel.Build{}
	for _, b := range all {
		if c.Sees(b.Project) {
			own = append(own, b)
		}
	}
	return own, err
}

// BuildLogs implements carrel.Builder.
func (s *Service) BuildLogs(ctx context.Context, id string,
	opts carrel.BuildLogOptions) iter.Seq2[carrel.BuildLog, error] {
	ctx, err := s.build(ctx, "read build log", id)
	if err != nil {
		return failed[carrel.BuildLog](err)
	}
	return s.opts.Builds.BuildLogs(ctx, id, opts)
}

// CancelBuild implements carrel.Builder.
func (s *Service) CancelBuild(ctx context.Context, id string) (carrel.Build, error) {
	ctx, err := s.build(ctx, "cancel build", id)
	if err != nil {
		return carrel.Build{}, err
	}
	return s.opts.Builds.CancelBuild(ctx, id)
}

// TagTemplate implements carrel.Builder.
func (s *Service) TagTemplate(ctx context.Context, target string,
	tags []string) (carrel.TemplateTag, error) {
	_, ctx, id, err := s.ownTemplate(ctx, "tag template", target)
	if err != nil {
		return carrel.TemplateTag{}, err
	}
	return s.opts.Builds.TagTemplate(ctx, id, tags)
}

// UntagTemplate implements carrel.Builder.
func (s *Service) UntagTemplate(ctx context.Context, nameOrID string, tags []string) error {
	_, ctx, id, err := s.ownTemplate(ctx, "remove tag", nameOrID)
	if carrel.KindOf(err) == carrel.NotFound {
		id, err = nameOrID, nil // without a default tag; Builds finds only the caller's own ones
	}
	if err != nil {
		return err
	}
	return s.opts.Builds.UntagTemplate(ctx, id, tags)
}

// TemplateTags implements carrel.Builder.
func (s *Service) TemplateTags(ctx context.Context, nameOrID string) ([]carrel.TemplateTag, error) {
	_, ctx, t, err := s.template(ctx, "list tags", nameOrID)
	if carrel.KindOf(err) == carrel.NotFound {
		t.ID, err = nameOrID, nil // without a default tag; Builds finds only the caller's own ones
	}
	if err != nil {
		return nil, err
	}
	return s.opts.Builds.TemplateTags(ctx, t.ID)
}
