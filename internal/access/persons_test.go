package access

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// town is a house with people.
type town struct {
	house
	persons *Persons
	sign    *SignIns
}

func settle(t testing.TB, s *shelf) town {
	h := open(t, s)
	sign := NewSignIns(h.dir, Lifetimes{})
	return town{h, NewPersons(h.People, sign), sign}
}

// newcomer makes a person with a role in project web, and returns a token.
func (w town) newcomer(t testing.TB, name string, role carrel.KeyScope) (carrel.IssuedPerson, string) {
	t.Helper()
	p := must[carrel.IssuedPerson](t)(w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: name}))
	if role != "" {
		must[carrel.Member](t)(w.persons.SetMember(w.admin,
			carrel.Member{Project: "web", Person: name, Role: role}))
	}
	return p, w.token(t, p.ID)
}

func (w town) token(t testing.TB, person string) string {
	t.Helper()
	secret, _, err := w.sign.Begin(w.admin, person, state.TokenSession, "a test")
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// arrive opens a request with a secret for a project, and returns its context.
func (w town) arrive(t testing.TB, secret, project string) (context.Context, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/carrel/v1/events", nil)
	r.Header.Set("X-API-KEY", secret)
	if project != "" {
		r.Header.Set(headerTenant, project)
	}
	ctx, done, err := w.Arrive(r)
	if err == nil {
		t.Cleanup(done)
	}
	return ctx, err
}

func kind(t testing.TB, what string, err error, want carrel.Kind) {
	t.Helper()
	if err == nil || carrel.KindOf(err) != want {
		t.Errorf("%s: %v, want kind %v", what, err, want)
	}
}

// TestPersonActs follows the rights of a person through members and organisations. Each loss cuts
// the streams that the right opened, and nothing else.
func TestPersonActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		w := settle(t, s)
		for _, name := range []string{"web", "data", "lab"} {
			must[carrel.Project](t)(w.CreateProject(w.admin, name))
		}
		_, zoe := w.newcomer(t, "zoe@example.com", "")
		ctx := must[context.Context](t)(w.arrive(t, zoe, ""))
		if c := carrel.CallerOf(ctx); c.Role != carrel.RolePerson || c.Project != "" || c.Sees("") {
			t.Errorf("without a project: %+v", c)
		}
		_, err := w.service.List(ctx, carrel.ListOptions{})
		kind(t, "list without a project", err, carrel.Forbidden)
		_, err = w.arrive(t, zoe, "web")
		_, never := w.arrive(t, zoe, "never")
		kind(t, "a project that is not hers", err, carrel.Forbidden)
		if strings.ReplaceAll(err.Error(), "web", "never") != never.Error() {
			t.Errorf("%q tells more than %q", err, never)
		}

		must[carrel.Member](t)(w.persons.SetMember(w.in("web"),
			carrel.Member{Person: "Zoe@Example.com", Role: carrel.ScopeRead}))
		must[carrel.Organisation](t)(w.persons.CreateOrganisation(w.admin, "acme"))
		must[carrel.Member](t)(w.persons.SetMember(w.admin,
			carrel.Member{Organisation: "acme", Person: "zoe@example.com", Role: carrel.ScopeAdmin}))
		must[carrel.Organisation](t)(w.persons.SetOrganisation(w.admin, "acme", []string{"data", "web"}))
		self := must[carrel.Self](t)(w.persons.Self(ctx))
		if len(self.Projects) != 2 || self.Projects[1].Role != carrel.RoleOwner || self.Name != "zoe@example.com" {
			t.Errorf("%+v", self)
		}
		web := must[context.Context](t)(w.arrive(t, zoe, "web"))
		data := must[context.Context](t)(w.arrive(t, zoe, "data"))
		if c := carrel.CallerOf(data); c.Key != "person:zoe@example.com" || c.Project != "data" ||
			c.Role != carrel.RoleOwner || c.Person == "" {
			t.Errorf("%+v", c)
		}
		members := must[[]carrel.Member](t)(w.persons.Members(w.in("web"), "", ""))
		if len(members) != 2 || members[1].Organisation != "acme" {
			t.Errorf("members %+v", members)
		}
		// A right that gets smaller ends, too.
		must[carrel.Organisation](t)(w.persons.SetOrganisation(w.admin, "acme", []string{"data"}))
		synctest.Wait()
		if web.Err() == nil || data.Err() != nil {
			t.Errorf("web %v, data %v", web.Err(), data.Err())
		}
		kind(t, "the cause", context.Cause(web), carrel.Unauthenticated)
		web = must[context.Context](t)(w.arrive(t, zoe, "web"))
		if c := carrel.CallerOf(web); c.Role != carrel.RoleReader {
			t.Errorf("%+v", c)
		}
		if err := w.persons.DeleteMember(w.in("web"), carrel.Member{Person: "zoe@example.com"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if web.Err() == nil || data.Err() != nil {
			t.Errorf("web %v, data %v", web.Err(), data.Err())
		}
		w = settle(t, s) // the next daemon
		data = must[context.Context](t)(w.arrive(t, zoe, ""))
		if c := carrel.CallerOf(data); c.Project != "data" {
			t.Errorf("her only project: %+v", c)
		}
		yes, no := true, false
		must[carrel.Person](t)(w.persons.UpdatePerson(w.admin, "zoe@example.com", carrel.PersonUpdate{Disabled: &yes}))
		synctest.Wait()
		if data.Err() == nil {
			t.Error("a disabled person's stream goes on")
		}
		_, err = w.arrive(t, zoe, "")
		kind(t, "a disabled person", err, carrel.Unauthenticated)
		must[carrel.Person](t)(w.persons.UpdatePerson(w.admin, "zoe@example.com", carrel.PersonUpdate{Disabled: &no}))
		_, err = w.arrive(t, zoe, "")
		kind(t, "a session from before", err, carrel.Unauthenticated)
		w.dir.Close()
	})
}

// TestSuccessorInheritsNothing removes a person, and makes another one with the same name.
func TestSuccessorInheritsNothing(t *testing.T) {
	w := settle(t, newShelf())
	must[carrel.Project](t)(w.CreateProject(w.admin, "web"))
	_, old := w.newcomer(t, "kim", carrel.ScopeAdmin)
	if err := w.persons.DeletePerson(w.admin, "KIM"); err != nil {
		t.Fatal(err)
	}
	_, err := w.arrive(t, old, "web")
	kind(t, "a removed person", err, carrel.Unauthenticated)
	_, next := w.newcomer(t, "kim", "")
	_, err = w.arrive(t, next, "web")
	kind(t, "a successor", err, carrel.Forbidden)
	_, err = w.arrive(t, old, "web")
	kind(t, "a removed person's token, with the successor there", err, carrel.Unauthenticated)
}

// TestWhoManagesPeople asks with every role that is not enough.
func TestWhoManagesPeople(t *testing.T) {
	w := settle(t, newShelf())
	for _, name := range []string{"web", "data"} {
		must[carrel.Project](t)(w.CreateProject(w.admin, name))
	}
	p, token := w.newcomer(t, "kim", carrel.ScopeRun)
	w.newcomer(t, "lee", "")
	kim := must[context.Context](t)(w.arrive(t, token, "web"))
	yes := true
	for who, ctx := range map[string]context.Context{"an owner": w.in("web"), "a member": kim} {
		_, err := w.persons.People(ctx)
		kind(t, who+" lists people", err, carrel.Forbidden)
		_, err = w.persons.CreatePerson(ctx, carrel.NewPerson{Name: "x"})
		kind(t, who+" makes a person", err, carrel.Forbidden)
		_, err = w.persons.UpdatePerson(ctx, "lee", carrel.PersonUpdate{Disabled: &yes})
		kind(t, who+" disables", err, carrel.Forbidden)
		kind(t, who+" removes", w.persons.DeletePerson(ctx, "lee"), carrel.Forbidden)
		_, known := w.persons.GetPerson(ctx, "lee")
		_, unknown := w.persons.GetPerson(ctx, "never")
		if known == nil || known.Error() != unknown.Error() {
			t.Errorf("%s learns who exists: %v, %v", who, known, unknown)
		}
		_, err = w.persons.SetPassword(ctx, "lee", carrel.PasswordChange{New: "a long password"})
		kind(t, who+" sets a password", err, carrel.Forbidden)
		_, err = w.persons.SetMember(ctx, carrel.Member{Organisation: "acme", Person: "kim"})
		kind(t, who+" joins an organisation", err, carrel.Forbidden)
		_, err = w.persons.SetMember(ctx, carrel.Member{Project: "data", Person: "kim"})
		if k := carrel.KindOf(err); k != carrel.NotFound && k != carrel.Forbidden {
			t.Errorf("%s joins another project: %v", who, err)
		}
	}
	_, err := w.persons.SetMember(kim, carrel.Member{Person: "kim", Role: carrel.ScopeAdmin})
	kind(t, "a member widens the own role", err, carrel.Forbidden)
	_, err = w.persons.SetPassword(kim, p.ID, carrel.PasswordChange{Old: "wrong", New: "a long password"})
	kind(t, "the own password without the old one", err, carrel.Invalid)
	other := w.token(t, p.ID)
	must[carrel.IssuedPerson](t)(w.persons.SetPassword(kim, "kim",
		carrel.PasswordChange{Old: p.NewPassword, New: "a long password"}))
	_, err = w.arrive(t, other, "web")
	kind(t, "another session after the password changed", err, carrel.Unauthenticated)
	if _, err = w.arrive(t, token, "web"); err != nil {
		t.Errorf("the asking session: %v", err)
	}
	for _, name := range []string{"", "a b", "a\nb", "a\r\nSet-Cookie: x", "ä", "-x", "a\x00", "<b>",
		strings.Repeat("x", 101)} {
		_, err := w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: name})
		kind(t, "a name "+name, err, carrel.Invalid)
		_, err = w.persons.SetMember(w.admin, carrel.Member{Project: "web", Person: name})
		kind(t, "a member "+name, err, carrel.Invalid)
	}
	_, err = w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: "KIM"})
	kind(t, "the same name", err, carrel.AlreadyExists)
	_, err = w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: "max", Password: "short"})
	kind(t, "a short password", err, carrel.Invalid)
}

// TestSessionsEnd lets sessions be unused, and get old. A browser's secret is no key, and a key's is
// no cookie.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settle(t, newShelf())
		must[carrel.Project](t)(w.CreateProject(w.admin, "web"))
		p, token := w.newcomer(t, "kim", carrel.ScopeRun)
		begin := func() string {
			secret, _, err := w.sign.Begin(w.admin, p.ID, state.BrowserSession, "")
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
		cookie := begin()
		_, err := w.arrive(t, cookie, "web")
		kind(t, "a cookie's secret as a key", err, carrel.Unauthenticated)
		if _, _, ok := w.sign.Who(token); ok {
			t.Error("a token opens the pages")
		}
		ctx := must[context.Context](t)(w.arrive(t, token, "web"))
		time.Sleep(defaultIdle - time.Minute)
		if _, _, ok := w.sign.Who(cookie); !ok {
			t.Error("a used session ended")
		}
		time.Sleep(defaultIdle + time.Minute)
		if _, _, ok := w.sign.Who(cookie); ok {
			t.Error("an unused session goes on")
		}
		cookie = begin()
		for range 20 {
			time.Sleep(defaultBrowser / 20)
			w.sign.Who(cookie)
		}
		if _, _, ok := w.sign.Who(cookie); ok {
			t.Error("a session that is used never ends")
		}
		if ctx.Err() != nil {
			t.Error("the token's stream ended too early")
		}
		time.Sleep(defaultToken)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the token's stream never ends")
		}
		first := w.token(t, p.ID)
		for range maxSessions {
			time.Sleep(time.Second)
			w.token(t, p.ID)
		}
		_, err = w.arrive(t, first, "web")
		kind(t, "the oldest of too many", err, carrel.Unauthenticated)
		if err := w.dir.save(t.Context()); err != nil || len(w.shelf.sessions) != maxSessions {
			t.Errorf("%d records, %v", len(w.shelf.sessions), err)
		}
		w.dir.Close()
	})
}

// TestCookie sends requests with a browser's session, as pages of all kinds would.
func TestCookie(t *testing.T) {
	w := settle(t, newShelf())
	must[carrel.Project](t)(w.CreateProject(w.admin, "web"))
	p, _ := w.newcomer(t, "kim", carrel.ScopeRun)
	secret, _, err := w.sign.Begin(w.admin, p.ID, state.BrowserSession, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method, cookie string
		header         map[string]string
		want           carrel.Kind
	}{
		"our page reads":                  {"GET", cookiePlain, map[string]string{"Sec-Fetch-Site": "same-origin"}, ""},
		"a typed address":                 {"GET", cookiePlain, map[string]string{"Sec-Fetch-Site": "none"}, ""},
		"a sandbox's page reads":          {"GET", cookiePlain, map[string]string{"Sec-Fetch-Site": "same-site"}, carrel.Forbidden},
		"a foreign page reads":            {"GET", cookiePlain, map[string]string{"Sec-Fetch-Site": "cross-site"}, carrel.Forbidden},
		"an old browser's foreign page":   {"GET", cookiePlain, map[string]string{"Origin": "https://evil.example.com"}, carrel.Forbidden},
		"a page without an origin":        {"GET", cookiePlain, map[string]string{"Origin": "null"}, carrel.Forbidden},
		"our page changes":                {"POST", cookiePlain, map[string]string{"Origin": "http://example.com", HeaderForm: FormToken(secret)}, ""},
		"no form token":                   {"POST", cookiePlain, map[string]string{"Origin": "http://example.com"}, carrel.Forbidden},
		"a wrong form token":              {"DELETE", cookiePlain, map[string]string{HeaderForm: FormToken("x")}, carrel.Forbidden},
		"a foreign page with a token":     {"POST", cookiePlain, map[string]string{"Sec-Fetch-Site": "cross-site", HeaderForm: FormToken(secret)}, carrel.Forbidden},
		"another cookie":                  {"GET", "session", nil, carrel.Unauthenticated},
		"a cookie of another name's form": {"GET", "__host-carrel", nil, carrel.Unauthenticated},
	} {
		r := httptest.NewRequest(c.method, "http://example.com/carrel/v1/sandboxes", nil)
		r.AddCookie(&http.Cookie{Name: c.cookie, Value: secret})
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		got, err := w.Caller(r)
		if c.want == "" && (err != nil || got.Project != "web" || got.Role != carrel.RoleMember) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if c.want != "" {
			kind(t, name, err, c.want)
		}
	}
	// Over TLS only the cookie counts that no other host can set.
	r := httptest.NewRequest(http.MethodGet, "https://example.com/carrel/v1/sandboxes", nil)
	r.AddCookie(&http.Cookie{Name: cookiePlain, Value: secret})
	_, err = w.Caller(r)
	kind(t, "the plain cookie over TLS", err, carrel.Unauthenticated)

	h := http.Header{"Cookie": {"a=1; " + cookieTLS + "=s; b=2", cookiePlain + "=x"}}
	w.Strip(h)
	if got := strings.Join(h.Values("Cookie"), "|"); got != "a=1; b=2" {
		t.Errorf("a sandbox gets %q", got)
	}
	for secure, want := range map[bool]string{true: cookieTLS + "=v; Path=/; HttpOnly; Secure; SameSite=Lax",
		false: cookiePlain + "=v; Path=/; HttpOnly; SameSite=Lax"} {
		w.SecureCookies(secure)
		if got := w.SessionCookie("v", httptest.NewRequest("GET", "/", nil)).String(); got != want {
			t.Errorf("cookie %q", got)
		}
	}
}

// TestPasswords tries passwords: wrong ones, too many, and those of nobody.
func TestPasswords(t *testing.T) {
	w := settle(t, newShelf())
	p := must[carrel.IssuedPerson](t)(w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: "kim"}))
	if id, err := w.sign.Password(t.Context(), " KIM", p.NewPassword); err != nil || id != p.ID {
		t.Errorf("%q %v", id, err)
	}
	if strings.Contains(w.shelf.people[p.ID].Password, p.NewPassword) {
		t.Error("the password is stored")
	}
	_, wrong := w.sign.Password(t.Context(), "kim", "wrong")
	_, nobody := w.sign.Password(t.Context(), "nobody", "wrong")
	_, odd := w.sign.Password(t.Context(), "a\nb", "wrong")
	if wrong == nil || wrong.Error() != nobody.Error() || wrong.Error() != odd.Error() {
		t.Errorf("%v, %v, %v", wrong, nobody, odd)
	}
	for _, name := range []string{"kim", "nobody2"} {
		refused := 0
		for range 12 {
			_, err := w.sign.Password(t.Context(), name, "wrong")
			if carrel.KindOf(err) == carrel.Exhausted && carrel.RetryAfterOf(err) > 0 {
				refused++
			}
		}
		if refused == 0 || refused > 3 {
			t.Errorf("%s: %d of 12 were refused", name, refused)
		}
	}
	_, err := w.sign.Password(t.Context(), "kim", p.NewPassword)
	kind(t, "the right one after too many", err, carrel.Exhausted)
}

// TestProvided signs people in whom a provider names.
func TestProvided(t *testing.T) {
	w := settle(t, newShelf())
	must[carrel.Project](t)(w.CreateProject(w.admin, "web"))
	w.dir.UseGroups([]GroupRole{{Group: "dev", Project: "web", Role: carrel.ScopeRun}})
	const issuer = "https://example.com"
	local := must[carrel.IssuedPerson](t)(w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: "local@example.com"}))
	made := must[carrel.IssuedPerson](t)(w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: "made@example.com", Provider: true}))
	type Identity struct {
		Subject, Email string
		Groups         []string
	}
	in := func(id Identity) (string, error) {
		return w.sign.Provided(t.Context(), issuer, id.Subject, id.Email, id.Groups)
	}
	people := len(w.shelf.people)
	_, err := in(Identity{Subject: "1", Email: "stranger@example.com"})
	kind(t, "a member of nothing", err, carrel.Forbidden)
	_, err = in(Identity{Subject: "1", Email: "local@example.com", Groups: []string{"dev"}})
	kind(t, "somebody with a local person's address", err, carrel.Forbidden)
	if len(w.shelf.people) != people {
		t.Error("a stranger left a record")
	}
	if id, err := in(Identity{Subject: "2", Email: "made@example.com"}); err != nil || id != made.ID {
		t.Errorf("%v %v", id, err)
	}
	_, err = in(Identity{Subject: "3", Email: "made@example.com", Groups: []string{"dev"}})
	kind(t, "another subject with the same address", err, carrel.Forbidden)
	must[carrel.Member](t)(w.persons.SetMember(w.in("web"), carrel.Member{Person: "late@example.com"}))
	late := must[string](t)(in(Identity{Subject: "4", Email: "late@example.com"}))
	if c := carrel.CallerOf(must[context.Context](t)(w.arrive(t, w.token(t, late), ""))); c.Project != "web" {
		t.Errorf("%+v", c)
	}
	nameless := must[string](t)(in(Identity{Subject: "5", Groups: []string{"dev", "other"}}))
	token := w.token(t, nameless)
	ctx := must[context.Context](t)(w.arrive(t, token, "web"))
	if again := must[string](t)(in(Identity{Subject: "5"})); again != nameless {
		t.Error("another person")
	}
	if context.Cause(ctx) == nil {
		<-ctx.Done() // the context hears of it in a goroutine
	}
	_, err = w.arrive(t, token, "web")
	kind(t, "after leaving the group", err, carrel.Forbidden)
	if id, err := w.sign.Password(t.Context(), "made@example.com", ""); err == nil {
		t.Errorf("a provider's person signs in with an empty password: %s", id)
	}
	yes := true
	must[carrel.Person](t)(w.persons.UpdatePerson(w.admin, made.ID, carrel.PersonUpdate{Disabled: &yes}))
	_, err = in(Identity{Subject: "2", Email: "made@example.com"})
	kind(t, "a disabled person", err, carrel.Forbidden)
	if errors.Is(err, errPassword) || local.ID == made.ID {
		t.Error(err)
	}
}

// TestTimeOfNobody compares the time for a wrong password with that for a name that nobody has. The
// least of some times counts, because other work on the machine only adds to one.
func TestTimeOfNobody(t *testing.T) {
	w := settle(t, newShelf())
	must[carrel.IssuedPerson](t)(w.persons.CreatePerson(w.admin, carrel.NewPerson{Name: "kim"}))
	least := func(name string) time.Duration {
		best := time.Hour
		for range 6 {
			began := time.Now()
			if _, err := w.sign.Password(t.Context(), name, "wrong"); carrel.KindOf(err) != carrel.Unauthenticated {
				t.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	known, unknown := least("kim"), least("nobody")
	if known > 4*unknown || unknown > 4*known {
		t.Errorf("a wrong password takes %v, and a wrong name %v", known, unknown)
	}
}

// TestRightsUnderFire takes rights away and gives them back while requests come. No request is left
// with a right that ended before it came.
func TestRightsUnderFire(t *testing.T) {
	w := settle(t, newShelf())
	must[carrel.Project](t)(w.CreateProject(w.admin, "web"))
	_, token := w.newcomer(t, "kim", carrel.ScopeRun)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var open sync.Map // contexts of requests
	var opened atomic.Int32
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := httptest.NewRequest(http.MethodGet, "/carrel/v1/events", nil)
				r.Header.Set("X-API-KEY", token)
				if ctx, _, err := w.Arrive(r); err == nil && carrel.CallerOf(ctx).Project == "web" {
					open.Store(ctx, true)
					opened.Add(1)
				}
			}
		})
	}
	for i := 0; i < 50 || opened.Load() < 100; i++ {
		if err := w.persons.DeleteMember(w.in("web"), carrel.Member{Person: "kim"}); err != nil {
			t.Error(err)
		}
		must[carrel.Member](t)(w.persons.SetMember(w.in("web"), carrel.Member{Person: "kim"}))
	}
	close(stop)
	wg.Wait()
	if err := w.persons.DeleteMember(w.in("web"), carrel.Member{Person: "kim"}); err != nil {
		t.Fatal(err)
	}
	open.Range(func(ctx, _ any) bool {
		select {
		case <-ctx.(context.Context).Done():
			return true
		case <-time.After(10 * time.Second):
			t.Error("a request goes on without the right")
			return false
		}
	})
}
