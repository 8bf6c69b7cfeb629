package service_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

// shelf is a template store in memory, with "base" of fakeImages.
type shelf struct {
	fakeImages
	mu  sync.Mutex
	all []carrel.Template
}

func (s *shelf) find(ok func(carrel.Template) bool) (carrel.Template, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.all, ok); i >= 0 {
		return s.all[i], true
	}
	return carrel.Template{}, false
}

func (s *shelf) ByID(id string) (carrel.Template, bool) {
	if t, ok := s.find(func(t carrel.Template) bool { return t.ID == id }); ok {
		return t, true
	}
	return s.fakeImages.ByID(id)
}

func (s *shelf) Named(project, name string) (carrel.Template, bool) {
	if t, ok := s.fakeImages.Named(project, name); ok {
		return t, true
	}
	return s.find(func(t carrel.Template) bool { return t.Project == project && t.Name == name })
}

func (s *shelf) Get(_ context.Context, id string) (image.Image, error) {
	if t, ok := s.ByID(id); ok {
		return image.Image{Template: t}, nil
	}
	return image.Image{}, &carrel.Error{Op: "get template", Kind: carrel.NotFound, Err: errors.New("no such template")}
}

func (s *shelf) Update(ctx context.Context, id string, _ carrel.TemplateUpdate) (image.Image, error) {
	return s.Get(ctx, id)
}

func (s *shelf) Delete(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(t carrel.Template) bool { return t.ID == id })
	return nil
}

const (
	ownID    = "owns0000000000000000" // of project a
	lookID   = "look0000000000000000" // of project a; its name is strangeID
	strangID = "strange0000000000000" // of project b
	sharedID = "shared00000000000000" // of the default project, and public
	closedID = "closed00000000000000" // of the default project
	momentA  = carrel.SnapshotID("smoment0000000000000a")
	momentB  = carrel.SnapshotID("smoment0000000000000b")
	taggedA  = carrel.SnapshotID("smoment0000000000000t")
	ghost    = carrel.SnapshotID("smoment0000000000000g") // a template's own start
)

func newShelf() *shelf {
	return &shelf{all: []carrel.Template{
		{ID: ownID, Name: "app", Project: "a"},
		{ID: lookID, Name: strangID, Project: "a"},
		{ID: strangID, Name: "theirs", Project: "b"},
		{ID: sharedID, Name: "shared", Project: carrel.DefaultProject, Public: true},
		{ID: closedID, Name: "closed", Project: carrel.DefaultProject},
	}}
}

// shelved returns snapshots. Some have names that templates have too.
func shelved() []state.SnapshotRecord {
	record := func(id carrel.SnapshotID, project string, cause carrel.Cause, names ...string) state.SnapshotRecord {
		sb := carrel.Sandbox{ID: carrel.NewID(), Project: project, Tier: carrel.Sim, Template: baseTemplate.ID, Alias: "base"}
		return state.SnapshotRecord{Record: state.Record{Sandbox: sb}, Snapshot: carrel.Snapshot{ID: id, Sandbox: sb.ID, Project: project,
			Cause: cause, Kept: true, Tier: carrel.Sim, Template: sb.Template, Names: names}}
	}
	return []state.SnapshotRecord{
		record(momentA, "a", carrel.CauseRequest, "app", "base", "shared", "moment:default", ownID),
		record(taggedA, "a", carrel.CauseRequest, "app:v1", "moment:v1", "moment:latest", "closed"),
		record(momentB, "b", carrel.CauseRequest, "app", "strange"),
		record(ghost, "a", carrel.CauseTemplate),
	}
}

func inProject(t testing.TB, project string) context.Context {
	return carrel.WithCaller(t.Context(), carrel.Caller{Key: "k", Project: project, Role: carrel.RoleMember})
}

// TestResolve checks the meaning of each form of reference for each caller, and that all functions
// that resolve references agree.
func TestResolve(t *testing.T) {
	admin := func(project string) context.Context {
		return carrel.WithCaller(t.Context(), carrel.Caller{Key: "k", Project: project, Role: carrel.RoleAdmin})
	}
	a, b, none := inProject(t, "a"), inProject(t, "b"), inProject(t, "")
	for _, c := range []struct {
		name, text, want string // "" is not found
		ctx              context.Context
	}{
		{"a built-in name", "base", baseTemplate.ID, a},
		{"a built-in name, a snapshot has it too", "base:latest", baseTemplate.ID, a},
		{"a built-in name, of no project", "base", baseTemplate.ID, none},
		{"a built-in ID", baseTemplate.ID, baseTemplate.ID, b},
		{"a name, a snapshot has it too", "app", ownID, a},
		{"a name with a tag that means nothing", "app:default", ownID, a},
		{"a name with a tag", "app:v1", string(taggedA), a},
		{"a tag that nothing has", "app:v2", "", a},
		{"a name that is another's template and an own snapshot", "app", string(momentB), b},
		{"a name of another project", "theirs", "", a},
		{"an ID", ownID, ownID, a},
		{"an ID that a snapshot has as its name", ownID + ":latest", ownID, a},
		{"another's ID", ownID, "", b},
		{"another's ID that is an own template's name", strangID, lookID, a},
		{"an ID that is another's template's name", strangID, strangID, b},
		{"a shared name, a snapshot has it too", "shared", sharedID, a},
		{"a shared name", "shared", sharedID, b},
		{"a shared ID", sharedID, sharedID, b},
		{"a name of the default project that is not shared, an own snapshot has it", "closed", string(taggedA), a},
		{"a name of the default project that is not shared", "closed", "", b},
		{"the same for an administrator in another project", "closed", "", admin("b")},
		{"the same by its ID", closedID, closedID, admin("b")},
		{"a snapshot's ID", string(momentA), string(momentA), a},
		{"a snapshot's ID with a tag that means nothing", string(momentA) + ":default", string(momentA), a},
		{"another's snapshot", string(momentA), "", b},
		{"another's snapshot, for an administrator", string(momentA), string(momentA), admin("b")},
		{"a snapshot's name without its tag", "moment", string(momentA), a},
		{"a snapshot's name", "moment:default", string(momentA), a},
		{"a snapshot's exact name comes first", "moment:latest", string(taggedA), a},
		{"a snapshot's tag", "moment:v1", string(taggedA), a},
		{"another's snapshot's name", "moment", "", b},
		{"a template's own start", string(ghost), "", a},
		{"a template's own start, for an administrator", string(ghost), "", admin("a")},
		{"a snapshot that is not there", "s00000000000000000000", "", a},
		{"a template that is not there", "00000000000000000000", "", a},
		{"a name that is not there", "nope", "", a},
	} {
		t.Run(c.name, func(t *testing.T) {
			images := newShelf()
			d := newDen(t, func(o *service.Options) { o.Images = images }, shelved()...)
			ref, err := carrel.ParseTemplateRef(c.text)
			if err != nil {
				t.Fatal(err)
			}
			missing := func(who, op string, err error) {
				t.Helper()
				var ce *carrel.Error
				if want := ref.NotFound(op).(*carrel.Error); !errors.As(err, &ce) || ce.Error() != want.Error() || ce.Kind != want.Kind || ce.Field != want.Field || ce.Hint != want.Hint {
					t.Errorf("%s: %v, want %v", who, err, want)
				}
			}
			tpl, id, err := d.ResolveTemplate(c.ctx, "resolve", ref)
			if c.want == "" {
				missing("resolve", "resolve", err)
			} else if got := tpl.ID + string(id); err != nil || got != c.want {
				t.Errorf("resolve: %q, %v, want %q", got, err, c.want)
			}
			_, notMoment := carrel.ParseSnapshotID(c.want)
			sb, err := d.Create(c.ctx, carrel.CreateOptions{Template: c.text})
			switch {
			case c.want == "":
				missing("create", "create sandbox", err)
			case notMoment == nil:
				if err != nil || sb.Snapshot != carrel.SnapshotID(c.want) {
					t.Errorf("create: %q, %v, want %q", sb.Snapshot, err, c.want)
				}
			case err != nil || sb.Template != c.want || sb.Snapshot != "":
				t.Errorf("create: %+v, %v, want %q", sb, err, c.want)
			}
			isTemplate := c.want != "" && notMoment != nil
			got, err := d.GetTemplate(c.ctx, c.text)
			if !isTemplate {
				missing("get", "get template", err)
			} else if err != nil || got.ID != c.want {
				t.Errorf("get: %q, %v", got.ID, err)
			}
			got, err = d.UpdateTemplate(c.ctx, c.text, carrel.TemplateUpdate{})
			if !isTemplate {
				missing("update", "update template", err)
			} else if err != nil || got.ID != c.want {
				t.Errorf("update: %q, %v", got.ID, err)
			}
			before := len(images.all)
			err = d.DeleteTemplate(c.ctx, c.text)
			if !isTemplate {
				missing("delete", "delete template", err)
				if len(images.all) != before {
					t.Error("a template is gone")
				}
				return
			}
			if _, ok := images.ByID(c.want); err != nil || ok && c.want != baseTemplate.ID || len(images.all) != before-1 && c.want != baseTemplate.ID {
				t.Errorf("delete: %v, %d templates of %d", err, len(images.all), before)
			}
		})
	}
}

// TestResolveInvalid shows that every function refuses a text that is no reference, with a clear
// error.
func TestResolveInvalid(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.Images = newShelf() })
	box := d.create(t, carrel.CreateOptions{})
	for _, text := range []string{"a b", "a:", "é", "a\x00"} {
		_, create := d.Create(t.Context(), carrel.CreateOptions{Template: text})
		_, get := d.GetTemplate(t.Context(), text)
		_, update := d.UpdateTemplate(t.Context(), text, carrel.TemplateUpdate{})
		_, promote := d.Promote(t.Context(), box.ID, carrel.PromoteOptions{Template: text, Tier: carrel.GVisor})
		for _, err := range []error{create, get, update, promote, d.DeleteTemplate(t.Context(), text)} {
			var ce *carrel.Error
			if !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != "template" || ce.Hint == "" {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
	_, err := d.Promote(t.Context(), box.ID, carrel.PromoteOptions{Template: "nope", Tier: carrel.GVisor})
	if ref, _ := carrel.ParseTemplateRef("nope"); err == nil || err.Error() != ref.NotFound("promote sandbox").Error() {
		t.Errorf("promote: %v", err)
	}
}

// TestResolveSnapshots shows that operations on snapshots find a snapshot by ID or by a name of the
// caller's project, and never find a template.
func TestResolveSnapshots(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.Images = newShelf() }, shelved()...)
	for text, want := range map[string]carrel.SnapshotID{"app": momentA, "app:latest": momentA, "app:v1": taggedA, "moment": momentA,
		"moment:latest": taggedA, string(momentB): momentB, ownID: momentA, "strange": "", "theirs": "", strangID: "", string(ghost): "", "a b": "", "": ""} {
		sn, err := d.GetSnapshot(inProject(t, "a"), text)
		if sn.ID != want || want == "" && carrel.KindOf(err) != carrel.NotFound || want != "" && err != nil {
			t.Errorf("%q: %q, %v, want %q", text, sn.ID, err, want)
		}
	}
	if err := d.DeleteSnapshot(inProject(t, "b"), "app"); err != nil {
		t.Error(err)
	}
	if _, err := d.GetSnapshot(t.Context(), string(momentB)); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("another one went: %v", err)
	}
}

// TestResolveNoSnapshots shows the error for a snapshot's ID when the service keeps no snapshots.
func TestResolveNoSnapshots(t *testing.T) {
	h := newHouse(t, nil)
	if _, err := h.Create(inProject(t, "a"), carrel.CreateOptions{Template: string(momentA)}); carrel.KindOf(err) != carrel.Unsupported {
		t.Error(err)
	}
}

// TestWarmResolve shows that the pool makes warm sandboxes of the template that a name means in its
// project. When that template is deleted, the pool stops, even if a snapshot has the same name.
func TestWarmResolve(t *testing.T) {
	images, records := newShelf(), shelved()
	h := newWarmHouse(t, service.WarmOptions{Cap: 4}, func(o *service.Options) {
		snaps := &fakeSnapshots{dir: t.TempDir(), done: map[carrel.SnapshotID]snapshot.Manifest{}}
		for _, r := range records {
			snaps.done[r.Snapshot.ID] = snapshot.Manifest{ID: r.Snapshot.ID}
		}
		if err := o.Store.Apply(t.Context(), state.Change{PutSnapshots: records}); err != nil {
			t.Fatal(err)
		}
		o.Images, o.Snapshots = images, snaps
	})
	ctx := inProject(t, "a")
	create := func() carrel.Sandbox {
		t.Helper()
		sb, err := h.Create(ctx, carrel.CreateOptions{Template: "app"})
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	create()
	filled(t, h.Service, 1)
	if sb := create(); sb.Template != ownID || sb.Project != "a" || status(t, h.Service).Hits != 1 {
		t.Errorf("%+v, %+v", sb, status(t, h.Service))
	}
	until(t, "there is one ready again", func() bool { return status(t, h.Service).Ready > 0 })
	if err := h.DeleteTemplate(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	until(t, "the pool gave it up", func() bool { st := status(t, h.Service); return st.Ready+st.Making == 0 && len(st.Kinds) == 0 })
}

func (s *shelf) Boot(ctx context.Context, id string) (image.Image, error) { return s.Get(ctx, id) }
