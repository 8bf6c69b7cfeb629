package access

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel"
)

// one is a core with one sandbox, of project a. All other calls panic.
type one struct {
	Core
	box    carrel.Sandbox
	events []carrel.Event
	asked  carrel.AuditOptions
}

func (o *one) Project(id carrel.ID) (string, bool) { return o.box.Project, id == o.box.ID }
func (o *one) PastProject(context.Context, carrel.ID) (string, bool, error) {
	return "", false, nil
}
func (o *one) Get(context.Context, carrel.ID) (carrel.Sandbox, error) { return o.box, nil }
func (o *one) Create(context.Context, carrel.CreateOptions) (carrel.Sandbox, error) {
	return o.box, nil
}
func (o *one) SetNetwork(context.Context, carrel.ID, carrel.Network) (carrel.Sandbox, error) {
	return o.box, nil
}
func (o *one) ResolveTemplate(context.Context, string, carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error) {
	return carrel.Template{}, "", nil
}
func (o *one) Kill(context.Context, carrel.ID) error { return nil }
func (o *one) Snapshot(context.Context, carrel.ID, carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return carrel.Snapshot{Sandbox: o.box.ID}, nil
}
func (o *one) Events(context.Context, int64) iter.Seq2[carrel.Event, error] {
	return func(yield func(carrel.Event, error) bool) {
		for _, e := range o.events {
			if !yield(e, nil) {
				return
			}
		}
	}
}
func (o *one) Audit(_ context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	o.asked = opts
	return func(func(carrel.Decision, error) bool) {}
}

func newOne() (*one, *Service) {
	o := &one{box: carrel.Sandbox{ID: carrel.NewID(), Project: "a"}}
	return o, New(Options{Core: o, Audits: o})
}

func as(c carrel.Caller) context.Context { return carrel.WithCaller(context.Background(), c) }

func member(project string) carrel.Caller {
	return carrel.Caller{Key: "k", Project: project, Role: carrel.RoleMember}
}

// TestRoles checks who may do what with a sandbox, and the errors for others.
func TestRoles(t *testing.T) {
	o, s := newOne()
	inside := carrel.Caller{Key: "sandbox", Role: carrel.RoleSandbox, Sandbox: o.box.ID}
	beside := carrel.Caller{Key: "sandbox", Role: carrel.RoleSandbox, Sandbox: carrel.NewID()}
	for name, c := range map[string]struct {
		ctx                 context.Context
		get, snapshot, kill carrel.Kind
	}{
		"an administrator":    {as(carrel.Local()), "", "", ""},
		"a member":            {as(member("a")), "", "", ""},
		"an owner":            {as(carrel.Caller{Key: "k", Project: "a", Role: carrel.RoleOwner}), "", "", ""},
		"another's owner":     {as(carrel.Caller{Key: "k", Project: "b", Role: carrel.RoleOwner}), carrel.NotFound, carrel.NotFound, carrel.NotFound},
		"a reader":            {as(carrel.Caller{Key: "k", Project: "a", Role: carrel.RoleReader}), "", carrel.Forbidden, carrel.Forbidden},
		"another's reader":    {as(carrel.Caller{Key: "k", Project: "b", Role: carrel.RoleReader}), carrel.NotFound, carrel.Forbidden, carrel.Forbidden},
		"another's member":    {as(member("b")), carrel.NotFound, carrel.NotFound, carrel.NotFound},
		"of no project":       {as(member("")), carrel.NotFound, carrel.NotFound, carrel.NotFound},
		"the sandbox itself":  {as(inside), "", "", carrel.Forbidden},
		"another sandbox":     {as(beside), carrel.NotFound, carrel.NotFound, carrel.Forbidden},
		"a role that is none": {as(carrel.Caller{Key: "k", Project: "a", Role: "nobody"}), carrel.Forbidden, carrel.Forbidden, carrel.Forbidden},
		"nobody":              {context.Background(), carrel.Unauthenticated, carrel.Unauthenticated, carrel.Unauthenticated},
	} {
		_, err := s.Get(c.ctx, o.box.ID)
		if carrel.KindOf(err) != c.get {
			t.Errorf("%s gets it: %v", name, err)
		}
		if _, err := s.Snapshot(c.ctx, o.box.ID, carrel.SnapshotOptions{}); carrel.KindOf(err) != c.snapshot {
			t.Errorf("%s keeps a moment of it: %v", name, err)
		}
		if err := s.Kill(c.ctx, o.box.ID); carrel.KindOf(err) != c.kill {
			t.Errorf("%s kills it: %v", name, err)
		}
	}
	if _, err := s.As(carrel.Local()).Get(context.Background(), o.box.ID); err != nil {
		t.Errorf("nobody, where that is the program itself: %v", err)
	}
}

// TestEventsAreOwn shows that each caller sees its own project's events, and an administrator sees
// all.
func TestEventsAreOwn(t *testing.T) {
	o, s := newOne()
	o.events = []carrel.Event{{Seq: 1}, {Seq: 2, Project: "a"}, {Seq: 3, Project: "b"}, {Seq: 4, Project: "a"}}
	for name, c := range map[string]struct {
		who  carrel.Caller
		want []int64
	}{"an administrator": {carrel.Local(), []int64{1, 2, 3, 4}}, "a": {member("a"), []int64{2, 4}}, "c": {member("c"), nil}} {
		var got []int64
		for e, err := range s.Events(as(c.who), 0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Seq)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s sees %v, want %v", name, got, c.want)
		}
	}
	for _, err := range s.Events(as(carrel.Caller{Role: carrel.RoleVisitor, Sandbox: o.box.ID}), 0) {
		if carrel.KindOf(err) != carrel.Forbidden {
			t.Errorf("a visitor: %v", err)
		}
	}
}

// TestAuditIsOwn shows that a member gets only its own project's decisions, whatever project it
// asks for.
func TestAuditIsOwn(t *testing.T) {
	o, s := newOne()
	for range s.Audit(as(member("b")), carrel.AuditOptions{ID: o.box.ID, Project: "a"}) {
		t.Error("a decision")
	}
	if o.asked.Project != "b" {
		t.Errorf("asked of %q", o.asked.Project)
	}
	for range s.Audit(as(carrel.Local()), carrel.AuditOptions{Project: "a"}) {
		t.Error("a decision")
	}
	if o.asked.Project != "a" {
		t.Errorf("an administrator asked of %q", o.asked.Project)
	}
}

// TestLacking shows that calls for a missing part are Unsupported.
func TestLacking(t *testing.T) {
	o, s := newOne()
	ctx := as(member("a"))
	_, secrets := s.ListSecrets(ctx)
	_, keys := s.SSHKeys(ctx)
	_, traces := s.Traces(ctx, o.box.ID)
	_, pool := s.Pool(ctx)
	if carrel.KindOf(secrets) != carrel.Unsupported || carrel.KindOf(keys) != carrel.Unsupported || carrel.KindOf(traces) != carrel.Unsupported || carrel.KindOf(pool) != carrel.Forbidden {
		t.Error(secrets, keys, traces, pool)
	}
}

// TestHostServices: who may let sandboxes reach this machine's own services.
func TestHostServices(t *testing.T) {
	opens := carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"Host.Carrel.Internal."}, Ports: []string{"5432"}}}}}
	other := carrel.Network{Policy: &carrel.Policy{Default: "allow", Rules: []carrel.Rule{{Allow: []string{"*"}}}}}
	for _, c := range []struct {
		who    HostServices
		caller carrel.Caller
		may    bool
	}{
		{HostNobody, carrel.Local(), false}, {HostNobody, member("a"), false},
		{HostAdmins, carrel.Local(), true}, {HostAdmins, member("a"), false},
		{HostAll, carrel.Local(), true}, {HostAll, member("a"), true},
	} {
		o, _ := newOne()
		s := New(Options{Core: o, HostServices: c.who})
		for what, call := range map[string]func(carrel.Network) error{
			"create": func(n carrel.Network) error {
				_, err := s.Create(as(c.caller), carrel.CreateOptions{Network: n})
				return err
			},
			"set network": func(n carrel.Network) error {
				_, err := s.SetNetwork(as(c.caller), o.box.ID, n)
				return err
			},
		} {
			if err := call(opens); (err == nil) != c.may || !c.may && (carrel.KindOf(err) != carrel.Forbidden || carrel.HintOf(err) == "") {
				t.Errorf("%s by %s where %d may: %v", what, c.caller.Role, c.who, err)
			}
			if err := call(other); err != nil {
				t.Errorf("%s without the host: %v", what, err)
			}
		}
	}
}
