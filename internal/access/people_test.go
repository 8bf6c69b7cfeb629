package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// shelf is a Records in memory. It keeps records as they were put.
type shelf struct {
	mu       sync.Mutex
	projects map[string]state.ProjectRecord
	keys     map[string]state.KeyRecord
	people   map[string]state.PersonRecord
	orgs     map[string]state.OrganisationRecord
	sessions map[string]state.SessionRecord
	writes   int
	broken   error
}

func newShelf() *shelf {
	return &shelf{projects: map[string]state.ProjectRecord{}, keys: map[string]state.KeyRecord{},
		people: map[string]state.PersonRecord{}, orgs: map[string]state.OrganisationRecord{},
		sessions: map[string]state.SessionRecord{}}
}

func (s *shelf) Apply(_ context.Context, c state.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	s.writes++
	for _, p := range c.PutProjects {
		s.projects[p.Project.Name] = p
	}
	for _, name := range c.DeleteProjects {
		delete(s.projects, name)
	}
	for _, k := range c.PutKeys {
		s.keys[k.Key.ID] = k
	}
	for _, id := range c.DeleteKeys {
		delete(s.keys, id)
	}
	for _, p := range c.PutPeople {
		s.people[p.Person.ID] = p
	}
	for _, o := range c.PutOrganisations {
		s.orgs[o.Organisation.Name] = o
	}
	for _, r := range c.PutSessions {
		s.sessions[r.ID] = r
	}
	for _, id := range c.DeletePeople {
		delete(s.people, id)
	}
	for _, name := range c.DeleteOrganisations {
		delete(s.orgs, name)
	}
	for _, id := range c.DeleteSessions {
		delete(s.sessions, id)
	}
	return nil
}

func (s *shelf) People(context.Context) ([]state.PersonRecord, error) {
	return slices.Collect(maps.Values(s.people)), nil
}

func (s *shelf) Organisations(context.Context) ([]state.OrganisationRecord, error) {
	return slices.Collect(maps.Values(s.orgs)), nil
}

func (s *shelf) Sessions(context.Context) ([]state.SessionRecord, error) {
	return slices.Collect(maps.Values(s.sessions)), nil
}

func (s *shelf) Projects(context.Context) (out []state.ProjectRecord, err error) {
	for _, p := range s.projects {
		out = append(out, p)
	}
	return out, nil
}

func (s *shelf) Keys(context.Context) (out []state.KeyRecord, err error) {
	for _, k := range s.keys {
		out = append(out, k)
	}
	return out, nil
}

// house is an authenticator with a directory, and the administrator's context.
type house struct {
	*People
	*Authenticator
	shelf *shelf
	admin context.Context
}

func open(t testing.TB, s *shelf) house {
	t.Helper()
	d, err := OpenDirectory(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := twoKeys()
	a.Use(d)
	return house{NewPeople(New(Options{}), d), a, s, carrel.WithCaller(t.Context(), carrel.Local())}
}

// in returns the context of an administrator of a project.
func (h house) in(project string) context.Context {
	return carrel.WithCaller(h.admin, carrel.Caller{Key: "o", Project: project, Role: carrel.RoleOwner})
}

func (h house) shown(secret string) (carrel.Caller, error) {
	r := httptest.NewRequest(http.MethodGet, "/carrel/v1/sandboxes", nil)
	r.Header.Set("X-API-KEY", secret)
	return h.Caller(r)
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestKeyLife makes, uses, rotates and revokes a key, and opens the records again in between.
func TestKeyLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		h := open(t, s)
		must[carrel.Project](t)(h.CreateProject(h.admin, "web"))
		made := must[carrel.IssuedKey](t)(h.CreateKey(h.in("web"), carrel.NewKey{Name: "ci"}))
		if len(made.Secret) != 44 || !strings.HasPrefix(made.Secret, "e2b_") || made.Scope != carrel.ScopeRun || made.Project != "web" {
			t.Errorf("%+v", made)
		}
		for _, rec := range s.keys {
			if strings.Contains(fmt.Sprintf("%+v", rec), made.Secret[4:]) || rec.Sum != sha256.Sum256([]byte(made.Secret)) {
				t.Errorf("the record: %+v", rec)
			}
		}
		want := carrel.Caller{Key: "ci", KeyID: made.ID, Project: "web", Role: carrel.RoleMember}
		if c, err := h.shown(made.Secret); c != want || err != nil {
			t.Errorf("%+v %v", c, err)
		}
		if k := must[carrel.APIKey](t)(h.GetKey(h.in("web"), "ci")); !k.LastUsed.Equal(time.Now()) {
			t.Errorf("last used %v", k.LastUsed)
		}
		if err := h.dir.Close(); err != nil {
			t.Fatal(err)
		}
		h = open(t, s) // the next daemon
		if k := must[carrel.APIKey](t)(h.GetKey(h.in("web"), made.ID)); !k.LastUsed.Equal(time.Now()) {
			t.Errorf("last used, after a restart: %v", k.LastUsed)
		}
		next := must[carrel.IssuedKey](t)(h.RotateKey(h.in("web"), "ci", time.Hour))
		for _, secret := range []string{made.Secret, next.Secret} {
			if c, err := h.shown(secret); c != want || err != nil {
				t.Errorf("during the overlap: %+v %v", c, err)
			}
		}
		time.Sleep(time.Hour)
		if _, err := h.shown(made.Secret); carrel.KindOf(err) != carrel.Unauthenticated || !strings.Contains(err.Error(), "got another secret") {
			t.Errorf("after the overlap: %v", err)
		}
		must[carrel.Caller](t)(h.shown(next.Secret))
		if err := h.RevokeKey(h.in("web"), "ci"); err != nil {
			t.Fatal(err)
		}
		if err := h.RevokeKey(h.in("web"), made.ID); err != nil {
			t.Errorf("once more: %v", err)
		}
		h = open(t, s)
		if _, err := h.shown(next.Secret); carrel.KindOf(err) != carrel.Unauthenticated || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("after a restart: %v", err)
		}
		if _, err := h.RotateKey(h.in("web"), made.ID, 0); carrel.KindOf(err) != carrel.Conflict {
			t.Errorf("rotate a revoked key: %v", err)
		}
		time.Sleep(keepDead + time.Hour)
		if err := h.dir.save(t.Context()); err != nil || len(s.keys) != 0 {
			t.Errorf("%v, %d records of dead keys", err, len(s.keys))
		}
	})
}

// TestArrive shows that the context of a request ends with the secret that opened it, and not with
// another secret of the key.
func TestArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newShelf())
		arrive := func(secret string) context.Context {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-API-KEY", secret)
			ctx, done, err := h.Arrive(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(done)
			return ctx
		}
		k := must[carrel.IssuedKey](t)(h.CreateKey(h.admin, carrel.NewKey{Name: "k", Expires: time.Now().Add(5 * time.Hour)}))
		first := arrive(k.Secret)
		next := must[carrel.IssuedKey](t)(h.RotateKey(h.admin, "k", time.Hour))
		second, own := arrive(next.Secret), arrive(adminSecret)
		ended := func(what string, ctx context.Context, want bool) {
			t.Helper()
			synctest.Wait()
			if got := ctx.Err() != nil; got != want {
				t.Errorf("%s ended: %v, %v", what, got, context.Cause(ctx))
			}
			if want && carrel.KindOf(context.Cause(ctx)) != carrel.Unauthenticated {
				t.Errorf("%s: cause %v", what, context.Cause(ctx))
			}
		}
		ended("the first", first, false)
		time.Sleep(time.Hour)
		ended("the first", first, true)
		ended("the second", second, false)
		if err := h.dir.save(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended("the second, after a write of its use", second, false)
		time.Sleep(4 * time.Hour)
		ended("the second", second, true)
		ended("the daemon's own", own, false)
		if err := h.dir.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWhoManages tries every operation with every role, and with other projects.
func TestWhoManages(t *testing.T) {
	h := open(t, newShelf())
	must[carrel.Project](t)(h.CreateProject(h.admin, "a"))
	must[carrel.Project](t)(h.CreateProject(h.admin, "b"))
	k := must[carrel.IssuedKey](t)(h.CreateKey(h.admin, carrel.NewKey{Name: "k", Project: "a"}))
	operations := map[string]func(ctx context.Context) error{
		"list": func(ctx context.Context) error { _, err := h.Keys(ctx); return err },
		"get":  func(ctx context.Context) error { _, err := h.GetKey(ctx, k.ID); return err },
		"create": func(ctx context.Context) error {
			_, err := h.CreateKey(ctx, carrel.NewKey{Name: newUUID(), Project: "a"})
			return err
		},
		"update":  func(ctx context.Context) error { _, err := h.UpdateKey(ctx, k.ID, carrel.KeyUpdate{}); return err },
		"rotate":  func(ctx context.Context) error { _, err := h.RotateKey(ctx, k.ID, 0); return err },
		"revoke":  func(ctx context.Context) error { return h.RevokeKey(ctx, k.ID) },
		"project": func(ctx context.Context) error { _, err := h.CreateProject(ctx, newUUID()); return err },
		"remove":  func(ctx context.Context) error { return h.DeleteProject(ctx, "a") },
	}
	for _, role := range []carrel.Role{carrel.RoleMember, carrel.RoleReader, carrel.RoleVisitor, carrel.RoleSandbox, "", "x"} {
		ctx := carrel.WithCaller(t.Context(), carrel.Caller{Project: "a", Role: role})
		for name, do := range operations {
			if err := do(ctx); carrel.KindOf(err) != carrel.Forbidden {
				t.Errorf("%s by a %s: %v", name, role, err)
			}
		}
	}
	for name, do := range operations {
		want := carrel.NotFound
		switch name {
		case "project", "remove":
			want = carrel.Forbidden
		case "list":
			want = ""
		}
		if err := do(h.in("b")); carrel.KindOf(err) != want {
			t.Errorf("%s by an administrator of another project: %v", name, err)
		}
	}
	if all := must[[]carrel.APIKey](t)(h.Keys(h.in("b"))); len(all) != 0 {
		t.Errorf("b sees %+v", all)
	}
	if all := must[[]carrel.Project](t)(h.Projects(h.in("b"))); len(all) != 1 || all[0].Name != "b" {
		t.Errorf("b sees %+v", all)
	}
	if all := must[[]carrel.Project](t)(h.Projects(h.admin)); len(all) != 3 {
		t.Errorf("the administrator sees %+v", all)
	}
}

// TestBadKeys checks what is refused.
func TestBadKeys(t *testing.T) {
	h := open(t, newShelf())
	must[carrel.IssuedKey](t)(h.CreateKey(h.admin, carrel.NewKey{Name: "k"}))
	soon := time.Now().Add(time.Hour)
	brief := must[carrel.IssuedKey](t)(h.CreateKey(h.admin, carrel.NewKey{Name: "brief", Scope: carrel.ScopeAdmin, Expires: soon}))
	byBrief := carrel.WithCaller(t.Context(), must[carrel.Caller](t)(h.shown(brief.Secret)))
	for name, c := range map[string]struct {
		ctx  context.Context
		key  carrel.NewKey
		kind carrel.Kind
	}{
		"no name":                {h.admin, carrel.NewKey{}, carrel.Invalid},
		"a line break":           {h.admin, carrel.NewKey{Name: "a\nlevel=ERROR"}, carrel.Invalid},
		"an escape":              {h.admin, carrel.NewKey{Name: "a\x1b[2J"}, carrel.Invalid},
		"a reversal":             {h.admin, carrel.NewKey{Name: "a\u202eb"}, carrel.Invalid},
		"not UTF-8":              {h.admin, carrel.NewKey{Name: "a\xff"}, carrel.Invalid},
		"a long name":            {h.admin, carrel.NewKey{Name: strings.Repeat("x", 65)}, carrel.Invalid},
		"a taken name":           {h.admin, carrel.NewKey{Name: "k"}, carrel.AlreadyExists},
		"no scope":               {h.admin, carrel.NewKey{Name: "x", Scope: "root"}, carrel.Invalid},
		"no project":             {h.admin, carrel.NewKey{Name: "x", Project: "nowhere"}, carrel.NotFound},
		"past":                   {h.admin, carrel.NewKey{Name: "x", Expires: time.Now().Add(-1)}, carrel.Invalid},
		"for ever, by a brief":   {byBrief, carrel.NewKey{Name: "x"}, carrel.Forbidden},
		"longer than a brief":    {byBrief, carrel.NewKey{Name: "x", Expires: soon.Add(1)}, carrel.Forbidden},
		"as long as a brief one": {byBrief, carrel.NewKey{Name: "y", Expires: soon}, ""},
		"another project's name": {h.in("p"), carrel.NewKey{Name: "k", Project: carrel.DefaultProject}, carrel.NotFound},
	} {
		if _, err := h.CreateKey(c.ctx, c.key); carrel.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := time.Time{}
	if _, err := h.UpdateKey(byBrief, brief.ID, carrel.KeyUpdate{Expires: &none}); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("a brief key lengthens itself: %v", err)
	}
	if _, err := h.RotateKey(h.admin, "k", -1); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
}

// TestKeysFailWhole shows that a change that can't be written has no effect.
func TestKeysFailWhole(t *testing.T) {
	h := open(t, newShelf())
	k := must[carrel.IssuedKey](t)(h.CreateKey(h.admin, carrel.NewKey{Name: "k"}))
	h.shelf.broken = errors.New("no disk")
	if _, err := h.RotateKey(h.admin, "k", 0); err == nil {
		t.Error("no error")
	}
	must[carrel.Caller](t)(h.shown(k.Secret))
	if _, err := h.CreateKey(h.admin, carrel.NewKey{Name: "l"}); err == nil {
		t.Error("no error")
	}
	if all := must[[]carrel.APIKey](t)(h.Keys(h.admin)); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestKeysHammer uses, makes, rotates and revokes keys at once, for the race detector.
func TestKeysHammer(t *testing.T) {
	h := open(t, newShelf())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				k, err := h.CreateKey(h.admin, carrel.NewKey{Name: fmt.Sprint(i, j)})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := h.shown(k.Secret); err != nil {
					t.Error(err)
				}
				if _, err := h.RotateKey(h.admin, k.ID, time.Millisecond); err != nil {
					t.Error(err)
				}
				_ = h.dir.save(t.Context())
				if err := h.RevokeKey(h.admin, k.ID); err != nil {
					t.Error(err)
				}
				if _, err := h.shown(k.Secret); err == nil {
					t.Error("a revoked key works")
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkArrive measures the cost of identifying the caller among 1,000 keys, and of binding the
// request to its key.
func BenchmarkArrive(b *testing.B) {
	h := open(b, newShelf())
	var secret string
	for i := range 900 {
		secret = must[carrel.IssuedKey](b)(h.CreateKey(h.admin, carrel.NewKey{Name: fmt.Sprint(i)})).Secret
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-API-KEY", secret)
	for b.Loop() {
		_, done, err := h.Arrive(r)
		if err != nil {
			b.Fatal(err)
		}
		done()
	}
}
