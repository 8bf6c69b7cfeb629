package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

// resolver decides the meaning of a reference for a caller, in the order that [carrel.TemplateRef]
// gives. No other code does this. A name belongs to one project, and the resolver checks the
// caller's project. It makes nothing: see templates.image.
type resolver struct {
	opts  *Options
	snaps *timeline.Index
}

// meaning is the target of a reference: a template or a snapshot.
type meaning struct {
	template carrel.Template
	moment   *state.SnapshotRecord // nil for a template
	foreign  bool                  // another machine's snapshot, in the shared store
}

// resolve finds the template or snapshot that a reference means to the caller. It skips those that
// the caller may not use. Errors: NotFound, always with the same text; Unsupported when the
// reference is a snapshot's ID and this service keeps no snapshots. An administrator also gets the
// errors of a damaged snapshot.
func (r *resolver) resolve(ctx context.Context, op string, ref carrel.TemplateRef) (meaning, error) {
	c := carrel.CallerOf(ctx)
	if id, ok := ref.SnapshotID(); ok {
		return r.byID(ctx, op, ref, id)
	}
	if ref.Kind() == carrel.RefTemplateID {
		if t, ok := r.opts.Images.ByID(ref.Name()); ok && c.MayUse(t) {
			return meaning{template: t}, nil
		}
	}
	text := ref.Name()
	if !ref.Plain() {
		text = ref.String() // a build of a template, by its tag
	}
	if t, ok := r.named(c.Project, text); ok && c.MayUse(t) {
		return meaning{template: t}, nil
	}
	if sr, ok := r.snaps.Named(c.Project, ref); ok && c.Sees(sr.Snapshot.Project) {
		return meaning{moment: &sr}, nil
	}
	return meaning{}, ref.NotFound(op)
}

// named finds the template with a name in a project.
func (r *resolver) named(project, name string) (carrel.Template, bool) {
	if t, ok := r.opts.Images.Named(project, name); ok {
		return t, true
	}
	t, ok := r.opts.Images.Named(carrel.DefaultProject, name)
	return t, ok && t.Public
}

// byID is resolve for a snapshot's ID.
func (r *resolver) byID(ctx context.Context, op string, ref carrel.TemplateRef, id carrel.SnapshotID) (meaning, error) {
	c := carrel.CallerOf(ctx)
	sr, foreign, err := r.moment(ctx, id)
	switch {
	case r.opts.Snapshots == nil && err != nil:
		return meaning{}, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "template", Err: err}
	case err != nil && c.Role == carrel.RoleAdmin && carrel.KindOf(err) != carrel.NotFound:
		return meaning{}, &carrel.Error{Op: op, Kind: carrel.KindOf(err), Field: "template", Err: err, Hint: carrel.HintOf(err)}
	case err != nil || !c.Sees(sr.Snapshot.Project): // only administrators see damage
		return meaning{}, ref.NotFound(op)
	}
	return meaning{moment: &sr, foreign: foreign}, nil
}

// template is resolve for callers that accept only a template.
func (r *resolver) template(ctx context.Context, op, text string) (carrel.Template, error) {
	ref, err := carrel.ParseTemplateRef(text)
	if err != nil {
		return carrel.Template{}, err
	}
	m, err := r.resolve(ctx, op, ref)
	if err == nil && m.moment != nil {
		err = ref.NotFound(op)
	}
	return m.template, err
}

// snapshot finds a snapshot of this service. An ID finds the snapshots of all projects, a name only
// those of the caller's project.
func (r *resolver) snapshot(ctx context.Context, ref carrel.TemplateRef) (state.SnapshotRecord, bool) {
	if id, ok := ref.SnapshotID(); ok {
		sr, ok := r.snaps.Get(id)
		return sr, ok && !timeline.Hidden(sr.Snapshot)
	}
	return r.snaps.Named(projectOf(ctx), ref)
}

// moment finds a snapshot by its ID, in any project. A foreign snapshot was put into the shared
// store by another machine.
func (r *resolver) moment(ctx context.Context, id carrel.SnapshotID) (sr state.SnapshotRecord, foreign bool, err error) {
	if had, ok := r.snaps.Get(id); ok {
		if timeline.Hidden(had.Snapshot) {
			return sr, false, errHidden(id)
		}
		return had, false, nil
	}
	if r.opts.Snapshots == nil {
		return sr, false, &carrel.Error{Kind: carrel.Unsupported, Err: errNoSnapshots}
	}
	m, err := r.opts.Snapshots.Get(ctx, id)
	if err != nil {
		return sr, false, err
	}
	if err := json.Unmarshal(m.Meta, &sr); err != nil || sr.Snapshot.ID != id {
		return sr, false, &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("snapshot %s was not made by a service like this one", id)}
	}
	if timeline.Hidden(sr.Snapshot) {
		return sr, false, errHidden(id)
	}
	sr.Record.Root = "" // a file of that machine
	return sr, true, nil
}

func errHidden(id carrel.SnapshotID) error {
	return &carrel.Error{Kind: carrel.NotFound,
		Err: fmt.Errorf("snapshot %s is the service's own", id)}
}

// recorded returns the template of a record. If the template is no longer on this machine, it
// returns the template that now has its name in the record's project.
func (r *resolver) recorded(ctx context.Context, sb carrel.Sandbox) (image.Image, error) {
	img, err := r.opts.Images.Get(ctx, sb.Template)
	if errors.Is(err, carrel.NotFound) && sb.Alias != "" {
		if t, ok := r.named(sb.Project, sb.Alias); ok {
			return r.opts.Images.Get(ctx, t.ID)
		}
	}
	return img, err
}

// formerBase returns the path of the image that base had in older programs, if the template with an
// ID is base and has another image now; else "".
func (r *resolver) formerBase(ctx context.Context, id string) string {
	t, ok := r.opts.Images.ByID(id)
	if !ok || !t.BuiltIn || t.Name != image.Base || t.StandIn != "" {
		return ""
	}
	host, ok := r.opts.Images.Named("", image.Host)
	if !ok || !host.BuiltIn {
		return ""
	}
	img, err := r.opts.Images.Get(ctx, host.ID)
	if err != nil {
		return ""
	}
	return img.Path
}

// isCurrent reports whether a template still has its name, so that no other template replaced it.
func (r *resolver) isCurrent(id, name string) bool {
	t, ok := r.opts.Images.ByID(id)
	if !ok {
		return false
	}
	if strings.HasPrefix(name, image.HiddenMark) {
		name = t.Name // a build has given it its name meanwhile
	}
	if t.Tag != "" {
		name += ":" + t.Tag
	}
	now, ok := r.opts.Images.Named(t.Project, name)
	return ok && now.ID == id
}
