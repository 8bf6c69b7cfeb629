package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

const (
	adminSecret  = "e2b_0000000000000000000000000000000000000001"
	memberSecret = "e2b_0000000000000000000000000000000000000002"
)

func twoKeys() *Authenticator {
	return NewAuthenticator(Key{Name: "first", Secret: adminSecret, Role: carrel.RoleAdmin}, Key{Name: "nothing"},
		Key{Name: "second", Secret: memberSecret, Project: "team"})
}

// TestCaller checks the caller that a request's headers give.
func TestCaller(t *testing.T) {
	admin := carrel.Caller{Key: "first", Project: carrel.DefaultProject, Role: carrel.RoleAdmin}
	member := carrel.Caller{Key: "second", Project: "team", Role: carrel.RoleMember}
	acting := carrel.Caller{Key: "first", Project: "Team-1@x.org", Role: carrel.RoleOwner}
	for name, c := range map[string]struct {
		headers []string
		want    carrel.Caller
		kind    carrel.Kind
		text    string
	}{
		"nothing":                  {nil, carrel.Caller{}, carrel.Unauthenticated, "authorization header is missing"},
		"another scheme":           {[]string{"Authorization", "Basic " + adminSecret}, carrel.Caller{}, carrel.Unauthenticated, "missing"},
		"a wrong key":              {[]string{"X-API-KEY", adminSecret + "x"}, carrel.Caller{}, carrel.Unauthenticated, "Cannot get the team"},
		"the key of nobody":        {[]string{"X-API-KEY", " "}, carrel.Caller{}, carrel.Unauthenticated, "Cannot get the team"},
		"E2B's header":             {[]string{"X-API-KEY", adminSecret}, admin, "", ""},
		"a bearer":                 {[]string{"Authorization", "bearer  " + memberSecret}, member, "", ""},
		"both, the first counts":   {[]string{"X-API-KEY", memberSecret, "Authorization", "Bearer " + adminSecret}, member, "", ""},
		"for a project":            {[]string{"X-API-KEY", adminSecret, "Carrel-Tenant", "Team-1@x.org"}, acting, "", ""},
		"for none":                 {[]string{"X-API-KEY", adminSecret, "Carrel-Tenant", ""}, admin, "", ""},
		"a member for its own":     {[]string{"X-API-KEY", memberSecret, "Carrel-Tenant", "team"}, member, "", ""},
		"a member for another":     {[]string{"X-API-KEY", memberSecret, "Carrel-Tenant", "other"}, member, carrel.Forbidden, "not for project"},
		"no project's name":        {[]string{"X-API-KEY", adminSecret, "Carrel-Tenant", "a b"}, admin, carrel.Invalid, "Carrel-Tenant"},
		"two projects":             {[]string{"X-API-KEY", adminSecret, "Carrel-Tenant", "a", "Carrel-Tenant", "b"}, admin, carrel.Invalid, "more than once"},
		"a long name":              {[]string{"X-API-KEY", adminSecret, "Carrel-Tenant", strings.Repeat("x", 65)}, admin, carrel.Invalid, "letters"},
		"a name with a letter off": {[]string{"X-API-KEY", adminSecret, "Carrel-Tenant", "aäb"}, admin, carrel.Invalid, "letters"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Add(c.headers[i], c.headers[i+1])
		}
		got, err := twoKeys().Caller(r)
		if carrel.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestOwnWords shows that Carrel's own API refuses an unknown key with its own text.
func TestOwnWords(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/carrel/v1/sandboxes", nil)
	r.Header.Set("X-API-KEY", adminSecret+"x")
	_, err := twoKeys().Caller(r)
	if carrel.KindOf(err) != carrel.Unauthenticated || strings.Contains(err.Error(), "team") || !strings.Contains(err.Error(), "API key") {
		t.Error(err)
	}
}

// TestNoKeys shows that an authenticator without keys lets nobody in, not even with an empty key.
func TestNoKeys(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-API-KEY", "x")
	if _, err := NewAuthenticator(Key{Name: "empty", Role: carrel.RoleAdmin}).Caller(r); carrel.KindOf(err) != carrel.Unauthenticated {
		t.Error(err)
	}
}

// TestStrip shows that our keys are removed, and a program's own headers stay.
func TestStrip(t *testing.T) {
	a := twoKeys()
	ours := http.Header{"X-Api-Key": {memberSecret}, "Authorization": {"Bearer " + adminSecret}, "Cookie": {"c"}}
	a.Strip(ours)
	if len(ours) != 1 {
		t.Errorf("left: %v", ours)
	}
	theirs := http.Header{"X-Api-Key": {"its own"}, "Authorization": {"Bearer its-own"}}
	a.Strip(theirs)
	if len(theirs) != 2 {
		t.Errorf("left: %v", theirs)
	}
}

// TestOthers checks the callers that come without an API key.
func TestOthers(t *testing.T) {
	a, ctx := twoKeys(), context.Background()
	box := carrel.NewID()
	for name, c := range map[string]struct {
		got  context.Context
		want carrel.Caller
	}{
		"a visitor":                {a.Visit(ctx, carrel.Sandbox{ID: box, Project: "team"}), carrel.Caller{Key: "visitor", Project: "team", Role: carrel.RoleVisitor, Sandbox: box}},
		"a sandbox":                {a.Inside(ctx, box), carrel.Caller{Key: "sandbox:" + string(box), Role: carrel.RoleSandbox, Sandbox: box}},
		"a project's SSH key":      {a.SSH(ctx, carrel.SSHKey{Name: "k", Project: "team"}), carrel.Caller{Key: "ssh:k", Project: "team", Role: carrel.RoleMember}},
		"the machine's SSH key":    {a.SSH(ctx, carrel.SSHKey{Name: "k"}), carrel.Caller{Key: "ssh:k", Project: carrel.DefaultProject, Role: carrel.RoleAdmin}},
		"nobody, in this process":  {ctx, carrel.Local()},
		"a program that says whom": {carrel.WithCaller(ctx, carrel.Caller{Key: "x"}), carrel.Caller{Key: "x"}},
	} {
		if got := carrel.CallerOf(c.got); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// BenchmarkCaller measures the cost of identifying a request's caller.
func BenchmarkCaller(b *testing.B) {
	a := twoKeys()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-API-KEY", memberSecret)
	for b.Loop() {
		if _, err := a.Caller(r); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCallerOfHost checks the project that a host of E2B's form names.
func TestCallerOfHost(t *testing.T) {
	for name, c := range map[string]struct {
		key, host string
		project   string
		kind      carrel.Kind
	}{
		"no project": {memberSecret, "api.example.com", "team", ""},
		"its own":    {memberSecret, "api.team.prj.eu-1.example.com:8443", "team", ""},
		"its own, as a team": {memberSecret,
			"API." + carrel.TeamID("team") + ".prj.us.example.com", "team", ""},
		"another": {memberSecret, "api.other.prj.eu-1.example.com", "",
			carrel.Forbidden},
		"another's team": {memberSecret,
			"api." + carrel.TeamID("other") + ".prj.eu.example.com", "", carrel.Forbidden},
		"any, for an admin":     {adminSecret, "api.other.prj.eu-1.example.com", "other", ""},
		"no project's name":     {adminSecret, "api.a$b.prj.eu-1.example.com", "", carrel.Invalid},
		"not quite of the form": {memberSecret, "api.other.prj.example", "team", ""},
		"of a sandbox's form":   {memberSecret, "x.other.prj.eu.example.com", "team", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = c.host
		r.Header.Set("X-API-KEY", c.key)
		got, err := twoKeys().Caller(r)
		if carrel.KindOf(err) != c.kind || err == nil && got.Project != c.project {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
