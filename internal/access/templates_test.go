package access

import (
	"context"
	"testing"

	"github.com/carrel-dev/carrel"
)

const (
	tplA, tplB, tplShared = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc"
	snapA, snapB          = carrel.SnapshotID("saaaaaaaaaaaaaaaaaaaa"), carrel.SnapshotID("sbbbbbbbbbbbbbbbbbbbb")
)

// trusting is a core that resolves every reference without a look at the caller. It records the
// calls that reach it.
type trusting struct {
	Core
	got string
}

func (c *trusting) Project(carrel.ID) (string, bool) { return "a", true }
func (c *trusting) ResolveTemplate(_ context.Context, op string, ref carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error) {
	if id, ok := ref.SnapshotID(); ok {
		return carrel.Template{}, id, nil
	}
	switch ref.Name() {
	case tplA, "a":
		return carrel.Template{ID: tplA, Project: "a"}, "", nil
	case tplB:
		return carrel.Template{ID: tplB, Project: "b"}, "", nil
	case "shared":
		return carrel.Template{ID: tplShared, Project: "b", Public: true}, "", nil
	case "base":
		return carrel.Template{ID: "base-id", BuiltIn: true}, "", nil
	case "moment":
		return carrel.Template{}, snapA, nil
	}
	return carrel.Template{}, "", ref.NotFound(op)
}
func (c *trusting) SnapshotProject(_ context.Context, id carrel.SnapshotID) (string, bool) {
	return map[carrel.SnapshotID]string{snapA: "a", snapB: "b"}[id], id == snapA || id == snapB
}
func (c *trusting) Create(_ context.Context, o carrel.CreateOptions) (carrel.Sandbox, error) {
	c.got = o.Template
	return carrel.Sandbox{}, nil
}
func (c *trusting) Promote(_ context.Context, _ carrel.ID, o carrel.PromoteOptions) (carrel.Sandbox, error) {
	c.got = o.Template
	return carrel.Sandbox{}, nil
}
func (c *trusting) GetTemplate(_ context.Context, id string) (carrel.Template, error) {
	c.got = id
	return carrel.Template{ID: id}, nil
}
func (c *trusting) UpdateTemplate(_ context.Context, id string, _ carrel.TemplateUpdate) (carrel.Template, error) {
	c.got = id
	return carrel.Template{}, nil
}
func (c *trusting) PullImage(_ context.Context, name string, _ carrel.PullOptions,
	_ func(carrel.Progress)) (carrel.Template, error) {
	c.got = name
	return carrel.Template{}, nil
}
func (c *trusting) PullTemplate(ctx context.Context, name, image string,
	progress func(carrel.Progress)) (carrel.Template, error) {
	return c.PullImage(ctx, name, carrel.PullOptions{Image: image}, progress)
}
func (c *trusting) DeleteTemplate(_ context.Context, id string) error {
	c.got = id
	return nil
}

// TestTemplateRefs shows that the core gets the ID of the judged template. Another project's
// template must look as if it did not exist, even when the core gives it away.
func TestTemplateRefs(t *testing.T) {
	for text, want := range map[string]struct {
		use    string // passed on by Create and Promote; "" is not found
		get    string // what GetTemplate hands on
		change string // passed on by Update and Delete
		kind   carrel.Kind
	}{
		tplA:          {tplA, tplA, tplA, ""},
		"a:latest":    {tplA, tplA, tplA, ""},
		tplB:          {kind: carrel.NotFound},
		"shared":      {tplShared, tplShared, "", carrel.Forbidden},
		"base":        {"base-id", "base-id", "base-id", ""}, // the core refuses to change it
		string(snapA): {use: string(snapA), kind: carrel.NotFound},
		"moment":      {use: string(snapA), kind: carrel.NotFound},
		string(snapB): {kind: carrel.NotFound},
		"nope":        {kind: carrel.NotFound},
		"a b":         {kind: carrel.Invalid},
	} {
		core := &trusting{}
		s := New(Options{Core: core})
		ctx := as(member("a"))
		ref, _ := carrel.ParseTemplateRef(text)
		check := func(op, want string, kind carrel.Kind, err error) {
			t.Helper()
			switch {
			case want == "" && carrel.KindOf(err) != kind, want != "" && err != nil, core.got != want:
				t.Errorf("%s of %q: the core got %q, %v, want %q, %q", op, text, core.got, err, want, kind)
			case kind == carrel.NotFound && want == "" && err.Error() != ref.NotFound(op).Error():
				t.Errorf("%s of %q: %v, want %v", op, text, err, ref.NotFound(op))
			}
			core.got = ""
		}
		kind := want.kind
		if kind == carrel.Forbidden {
			kind = ""
		}
		_, err := s.Create(ctx, carrel.CreateOptions{Template: text})
		check("create sandbox", want.use, kind, err)
		_, err = s.Promote(ctx, carrel.NewID(), carrel.PromoteOptions{Template: text})
		check("promote sandbox", want.use, kind, err)
		_, err = s.GetTemplate(ctx, text)
		check("get template", want.get, kind, err)
		_, err = s.UpdateTemplate(ctx, text, carrel.TemplateUpdate{})
		check("update template", want.change, want.kind, err)
		check("delete template", want.change, want.kind, s.DeleteTemplate(ctx, text))
	}
	core := &trusting{}
	if _, err := New(Options{Core: core}).Create(as(member("a")), carrel.CreateOptions{}); err != nil || core.got != "" {
		t.Errorf("the default: %q, %v", core.got, err)
	}
}

// TestMakeBase shows that only an administrator has base made, whatever it is called.
func TestMakeBase(t *testing.T) {
	admin := carrel.Caller{Key: "k", Project: "a", Role: carrel.RoleAdmin}
	for _, c := range []struct {
		name, image string
		who         carrel.Caller
		may         bool
	}{
		{"base", "", admin, true}, {"base", "", member("a"), false},
		{"kernel", "", admin, true}, {"kernel", "", member("a"), false}, {"kernel", "img", member("a"), true},
		{"base:latest", "", member("a"), false}, {"base:default", "", member("a"), false},
		{"python", "", member("a"), true}, {"host", "", member("a"), true},
		{"base", "img", member("a"), true}, // the core refuses the name
	} {
		core := &trusting{}
		s := New(Options{Core: core})
		_, pulled := s.PullTemplate(as(c.who), c.name, c.image, nil)
		_, imaged := s.PullImage(as(c.who), c.name, carrel.PullOptions{Image: c.image}, nil)
		for _, err := range []error{pulled, imaged} {
			if c.may && (err != nil || core.got != c.name) {
				t.Errorf("%s of %q: %v, the core got %q", c.name, c.image, err, core.got)
			}
			if !c.may && (carrel.KindOf(err) != carrel.Forbidden || core.got != "" ||
				carrel.HintOf(err) == "") {
				t.Errorf("%s: %v, the core got %q", c.name, err, core.got)
			}
		}
	}
}
