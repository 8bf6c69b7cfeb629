package daemon

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/state"
)

// rights says what a caller must have for a route.
type rights string

const (
	reads   rights = "read"    // any key of the project
	runs    rights = "run"     // a key that makes and uses sandboxes
	owns    rights = "admin"   // a key that manages the project's keys
	machine rights = "machine" // the daemon's own key
)

// readRoutes are the routes that a reader may use, exceptions are those that need more than their
// method says. Every other GET is a mistake until it is here; every other method needs "run".
var (
	readRoutes = []string{
		"GET /sandboxes", "GET /v2/sandboxes", "GET /sandboxes/metrics", "GET /sandboxes/{id}",
		"GET /snapshots", "GET /sandboxes/{id}/metrics", "GET /sandboxes/{id}/logs", "GET /v2/sandboxes/{id}/logs",
		"GET /templates", "GET /v2/templates", "GET /default-templates", "GET /templates/{id}",
		"GET /templates/aliases/{alias}", "GET /templates/{id}/builds/{build}/status",
		"GET /templates/{id}/builds/{build}/logs", "GET /templates/{id}/tags", "GET /templates/{id}/tags/count",
		"GET /templates/{id}/tags/exists", "GET /templates/{id}/tags/groups", "GET /templates/{id}/tags/{tag}/assignments",
		"GET /teams", "GET /teams/{team}/metrics", "GET /teams/{team}/metrics/max",
		"GET /secrets", "GET /secrets/{secretID}",
		"GET /carrel/v1/version", "GET /carrel/v1/projects", "GET /carrel/v1/projects/{name}",
		"GET /carrel/v1/sandboxes", "GET /carrel/v1/sandboxes/{id}", "GET /carrel/v1/sandboxes/{id}/metrics",
		"GET /carrel/v1/sandboxes/{id}/logs", "GET /carrel/v1/sandboxes/{id}/trace", "GET /carrel/v1/events",
		"GET /carrel/v1/builds", "GET /carrel/v1/builds/{id}", "GET /carrel/v1/builds/{id}/logs",
		"GET /carrel/v1/templates", "GET /carrel/v1/templates/{name}", "GET /carrel/v1/templates/{name}/tags",
		"GET /carrel/v1/templates/{name}/packages", "GET /carrel/v1/templates/{name}/diff",
		"GET /carrel/v1/template-store/uses", "GET /carrel/v1/sandboxes/{id}/timeline",
		"GET /carrel/v1/snapshots", "GET /carrel/v1/snapshots/{name}", "GET /carrel/v1/snapshots/{name}/diff",
		"GET /carrel/v1/secrets", "GET /carrel/v1/secrets/{secret}", "GET /carrel/v1/ssh-keys",
		"GET /events/sandboxes", "GET /events/sandboxes/{id}", "GET /events/webhooks", "GET /events/webhooks/{webhook}",
		"GET /carrel/v1/lifecycle-events", "GET /carrel/v1/webhooks", "GET /carrel/v1/webhooks/{webhook}",
		"GET /carrel/v1/webhooks/{webhook}/deliveries", "GET /carrel/v1/usage", "GET /carrel/v1/quota", "GET /carrel/v1/quotas", "GET /carrel/v1/ceilings",
		"GET /carrel/v1/budgets", "GET /carrel/v1/whoami", "GET /carrel/v1/inbox",
		"GET /carrel/v1/audit", "GET /carrel/v1/sandboxes/{id}/audit",
		"/volumes", "/volumes/", "/volumecontent/",
	}
	exceptions = map[string]rights{
		"GET /templates/{id}/files/{hash}":                              runs, // it tells where to upload
		"GET /carrel/v1/sandboxes/{id}/dial/{port}":                     runs, // it enters the sandbox
		"GET /carrel/v1/sandboxes/{id}/programs/{session}/calls/{call}": runs, // it answers a program
		"GET /carrel/v1/sandboxes/{id}/processes":                       runs, // it asks the guest
		"GET /carrel/v1/sandboxes/{id}/processes/{process}/output":      runs, // the output may hold anything
		"GET /carrel/v1/snapshots/{name}/file":                          runs, // so may a file

		"GET /api-keys": owns, "POST /api-keys": owns, "PATCH /api-keys/{apiKeyID}": owns,
		"DELETE /api-keys/{apiKeyID}": owns, "POST /access-tokens": owns,
		"DELETE /access-tokens/{accessTokenID}": owns,
		"GET /carrel/v1/keys":                   owns, "POST /carrel/v1/keys": owns, "GET /carrel/v1/keys/{key}": owns,
		"PATCH /carrel/v1/keys/{key}": owns, "POST /carrel/v1/keys/{key}/rotate": owns, "DELETE /carrel/v1/keys/{key}": owns,
		"PUT /carrel/v1/quota": owns, "PUT /carrel/v1/ceiling": owns, "PUT /carrel/v1/budgets/{name}": owns,
		"DELETE /carrel/v1/budgets/{name}": owns,

		"GET /carrel/v1/members": owns, "PUT /carrel/v1/members/{person}": owns, "DELETE /carrel/v1/members/{person}": owns,
		"GET /carrel/v1/people": machine, "POST /carrel/v1/people": machine, "GET /carrel/v1/people/{person}": machine,
		"PATCH /carrel/v1/people/{person}": machine, "DELETE /carrel/v1/people/{person}": machine,
		"PUT /carrel/v1/people/{person}/password": machine,
		"GET /carrel/v1/organisations":            machine, "POST /carrel/v1/organisations": machine,
		"PUT /carrel/v1/organisations/{name}": machine, "DELETE /carrel/v1/organisations/{name}": machine,

		"GET /carrel/v1/trail": owns, "GET /carrel/v1/trail/verify": machine,

		"POST /carrel/v1/projects": machine, "DELETE /carrel/v1/projects/{name}": machine,
		"GET /carrel/v1/doctor": machine, "GET /carrel/v1/pool": machine, "GET /carrel/v1/unclaimed": machine,
		"POST /carrel/v1/unclaimed/{id}/reclaim": machine, "DELETE /carrel/v1/unclaimed/{id}": machine,
		"POST /carrel/v1/movement/sandboxes/{id}/passport": machine, "POST /carrel/v1/movement/sandboxes": machine,
		"DELETE /carrel/v1/movement/sandboxes/{id}":          machine,
		"POST /carrel/v1/movement/templates/{name}/passport": machine, "POST /carrel/v1/movement/templates": machine,
		"GET /carrel/v1/nodes": machine, "POST /carrel/v1/nodes/{node}/drain": machine,
		"DELETE /carrel/v1/nodes/{node}/drain": machine, "DELETE /carrel/v1/nodes/{node}": machine,
		"GET /carrel/v1/admission": machine, "GET /carrel/v1/metrics": machine,
		"GET /metrics":                         machine,
		"GET /carrel/v1/debug/pprof/{profile}": machine, "GET /carrel/v1/snapshot-store": machine,
		"POST /carrel/v1/snapshot-store/gc": machine, "POST /carrel/v1/secret-store/rekey": machine,
	}
)

// needed returns the right that a route needs; "" if nobody has thought of it.
func needed(pattern string) rights {
	for _, p := range readRoutes {
		if p == pattern {
			return reads
		}
	}
	if r := exceptions[pattern]; r != "" {
		return r
	}
	if method, _, _ := strings.Cut(pattern, " "); method != http.MethodGet && strings.Contains(pattern, " ") {
		return runs
	}
	return ""
}

// intruder sends no key that works.
type intruder struct {
	name   string
	header http.Header
	query  string
}

// intruders are all ways to come without a key that works. Every one gets a 401 from every route.
func (n *neighbours) intruders() []intruder {
	n.t.Helper()
	ctx, people := n.t.Context(), n.people("a")
	key := func(name string, expires time.Time) carrel.IssuedKey {
		n.t.Helper()
		k, err := people.CreateKey(ctx, carrel.NewKey{Name: name, Scope: carrel.ScopeAdmin, Expires: expires})
		if err != nil {
			n.t.Fatal(err)
		}
		return k
	}
	revoked, rotated := key("revoked", time.Time{}), key("rotated", time.Time{})
	if err := people.RevokeKey(ctx, "revoked"); err != nil {
		n.t.Fatal(err)
	}
	if _, err := people.RotateKey(ctx, "rotated", 0); err != nil {
		n.t.Fatal(err)
	}
	soon := time.Now().Add(300 * time.Millisecond)
	expired := key("expired", soon)
	time.Sleep(time.Until(soon) + time.Millisecond)
	good := key("good", time.Time{}).Secret
	ended := func(name string, end func(carrel.Persons, string) error) (cookie, token string) {
		n.t.Helper()
		cookie = n.member(name, carrel.ScopeAdmin, state.BrowserSession)
		token = n.begin(name, state.TokenSession)
		if err := end(n.persons(), name); err != nil {
			n.t.Fatal(err)
		}
		return cookie, token
	}
	offCookie, offToken := ended("disabled", func(p carrel.Persons, name string) error {
		yes := true
		_, err := p.UpdatePerson(ctx, name, carrel.PersonUpdate{Disabled: &yes})
		return err
	})
	goneCookie, goneToken := ended("removed", func(p carrel.Persons, name string) error { return p.DeletePerson(ctx, name) })
	live := n.member("live", carrel.ScopeAdmin, state.BrowserSession)
	in := func(name, header, value string) intruder {
		return intruder{name: name, header: http.Header{header: {value}}}
	}
	return []intruder{
		{name: "no key"},
		in("an unknown key", "X-Api-Key", "e2b_00000000000000000000000000000000000000ff"),
		in("an empty key", "X-Api-Key", ""),
		in("part of a key", "X-Api-Key", good[:len(good)-1]),
		in("what a mask shows", "X-Api-Key", strings.ReplaceAll(expired.Mask, "…", "")),
		in("a key's ID", "X-Api-Key", expired.ID),
		in("a revoked key", "X-Api-Key", revoked.Secret),
		in("a revoked key as a bearer", "Authorization", "Bearer "+revoked.Secret),
		in("an expired key", "X-Api-Key", expired.Secret),
		in("the secret before a rotation", "X-Api-Key", rotated.Secret),
		in("a key in the wrong scheme", "Authorization", "Basic "+good),
		in("a key in the sandbox's header", "X-Access-Token", good),
		in("a key in the tenant's header", "Carrel-Tenant", good),
		in("a key in a cookie", "Cookie", "X-API-KEY="+good),
		{name: "a key in the query", query: "api_key=" + good + "&X-API-KEY=" + good},
		in("a disabled person's cookie", "Cookie", "carrel_session="+offCookie),
		in("a disabled person's token", "X-Api-Key", offToken),
		in("a removed person's cookie", "Cookie", "carrel_session="+goneCookie),
		in("a removed person's token", "Authorization", "Bearer "+goneToken),
		in("a cookie's secret as a key", "X-Api-Key", live),
		in("a cookie's secret as a bearer", "Authorization", "Bearer "+live),
		in("a person's name", "X-Api-Key", "live"),
		in("an unknown session", "Cookie", "carrel_session="+strings.Repeat("A", 43)),
		in("a key in the session's cookie", "Cookie", "carrel_session="+good+"; __Host-carrel="+good),
		in("a sandbox's token as a key", "X-Api-Key", n.box.AccessToken),
		in("a sandbox's token as a bearer", "Authorization", "Bearer "+n.box.AccessToken),
		in("a sandbox's token in its header", "X-Access-Token", n.box.AccessToken),
		in("a sandbox's traffic token", "E2b-Traffic-Access-Token", n.box.TrafficToken),
	}
}

// request is how the matrix asks for a route.
func (n *neighbours) request(pattern string) (method, path, body string) {
	for _, p := range probes {
		if p.pattern == pattern {
			method, _, _ := strings.Cut(pattern, " ")
			return method, fill(p.path, n.real), fill(p.body, n.real)
		}
	}
	method, path, found := strings.Cut(pattern, " ")
	if !found { // all methods
		method, path = http.MethodGet, pattern
	}
	return method, path, ""
}

// TestMatrix asks every route with everything that is no key, and with keys of each scope. A new
// route fails it until needed knows its right.
func TestMatrix(t *testing.T) {
	n := newNeighbours(t)
	patterns := api.New(api.Options{}).Patterns()
	intruders := n.intruders()
	type holder struct {
		scope  carrel.KeyScope
		person bool
	}
	scoped := map[holder]string{}
	for _, scope := range []carrel.KeyScope{carrel.ScopeRead, carrel.ScopeRun, carrel.ScopeAdmin} {
		k, err := n.people("a").CreateKey(t.Context(), carrel.NewKey{Name: "scope " + string(scope), Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		scoped[holder{scope, false}] = k.Secret
		scoped[holder{scope, true}] = n.member("person-"+string(scope), scope, state.TokenSession)
	}
	before := n.state()
	asked := 0
	for _, pattern := range patterns {
		right := needed(pattern)
		if right == "" {
			t.Errorf("%s: nobody has said what right it needs", pattern)
			continue
		}
		method, path, body := n.request(pattern)
		for _, i := range intruders {
			asked++
			if status, answer := n.intrude(i, method, path, body); status != http.StatusUnauthorized {
				t.Errorf("%s with %s: %d %s", pattern, i.name, status, answer)
			}
		}
		for who, secret := range scoped {
			scope := who.scope
			refused := right == machine || right == owns && scope != carrel.ScopeAdmin || right == runs && scope == carrel.ScopeRead
			if !refused && scope != carrel.ScopeRead {
				continue // other tests use these
			}
			asked++
			status, answer := n.ask(stranger{key: secret}, method, path, body)
			if refused != (status == http.StatusForbidden) || status == http.StatusUnauthorized || status == http.StatusInternalServerError {
				t.Errorf("%s (%s) with a key of scope %s (a person's: %v): %d %s", pattern, right, scope, who.person, status, answer)
			}
			for _, secret := range []string{n.box.AccessToken, n.asleep.AccessToken} {
				if scope == carrel.ScopeRead && strings.Contains(answer, secret) {
					t.Errorf("%s tells a reader a sandbox's token", pattern)
				}
			}
		}
	}
	if after := n.state(); after != before {
		t.Errorf("something was changed:\n%s\nwas\n%s", after, before)
	}
	t.Logf("%d routes, %d requests", len(patterns), asked)
}

// member makes a person with a right in project a, and returns the secret of a session.
func (n *neighbours) member(name string, scope carrel.KeyScope, kind state.SessionKind) string {
	n.t.Helper()
	if _, err := n.persons().CreatePerson(n.t.Context(), carrel.NewPerson{Name: name}); err != nil {
		n.t.Fatal(err)
	}
	_, err := n.persons().SetMember(n.t.Context(), carrel.Member{Project: "a", Person: name, Role: scope})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.begin(name, kind)
}

// begin makes a session of a person, and returns its secret.
func (n *neighbours) begin(name string, kind state.SessionKind) string {
	n.t.Helper()
	p, err := n.persons().GetPerson(n.t.Context(), name)
	if err != nil {
		n.t.Fatal(err)
	}
	secret, _, err := n.parts.SignIns.Begin(n.t.Context(), p.ID, kind, "")
	if err != nil {
		n.t.Fatal(err)
	}
	return secret
}

// intrude sends a request of an intruder.
func (n *neighbours) intrude(i intruder, method, path, body string) (int, string) {
	n.t.Helper()
	if i.query != "" {
		if strings.Contains(path, "?") {
			path += "&" + i.query
		} else {
			path += "?" + i.query
		}
	}
	return n.askWith(i.header, method, path, body)
}

// TestMatrixCanFail shows that a route that nobody has thought of has no right.
func TestMatrixCanFail(t *testing.T) {
	if got := needed("GET /carrel/v1/new-thing"); got != "" {
		t.Errorf("a new GET needs %q", got)
	}
	if needed("POST /carrel/v1/new-thing") != runs {
		t.Error("a new POST is open to readers")
	}
}

// TestEndOfKeyCutsStreams follows events with keys that are revoked, expire and are rotated. Each
// stream ends at once, and one of another key goes on.
func TestEndOfKeyCutsStreams(t *testing.T) {
	n := newNeighbours(t)
	people := n.people("a")
	other := n.follow(n.foreign.Secret)
	for name, end := range map[string]func(k carrel.IssuedKey) error{
		"revoked": func(k carrel.IssuedKey) error { return people.RevokeKey(t.Context(), k.ID) },
		"rotated": func(k carrel.IssuedKey) error {
			_, err := people.RotateKey(t.Context(), k.ID, 0)
			return err
		},
		"rotated with overlap": func(k carrel.IssuedKey) error {
			_, err := people.RotateKey(t.Context(), k.ID, 200*time.Millisecond)
			return err
		},
		"expiring": func(k carrel.IssuedKey) error {
			at := time.Now().Add(200 * time.Millisecond)
			_, err := people.UpdateKey(t.Context(), k.ID, carrel.KeyUpdate{Expires: &at})
			return err
		},
	} {
		k, err := people.CreateKey(t.Context(), carrel.NewKey{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		stream := n.follow(k.Secret)
		renamed := name + "!"
		if _, err := people.UpdateKey(t.Context(), k.ID, carrel.KeyUpdate{Name: &renamed}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-stream:
			t.Errorf("%s: the stream ended when the key got another name", name)
		case <-time.After(50 * time.Millisecond):
		}
		if err := end(k); err != nil {
			t.Fatal(err)
		}
		select {
		case <-stream:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the stream goes on", name)
		}
		if status, answer := n.ask(stranger{key: k.Secret}, http.MethodGet, "/carrel/v1/sandboxes", ""); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	select {
	case <-other:
		t.Error("the stream of another key ended")
	default:
	}
}

// follow opens the stream of events. The channel closes when the stream ends.
func (n *neighbours) follow(secret string) <-chan struct{} {
	n.t.Helper()
	svc, err := client.New(n.URL(), secret)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { svc.Close() })
	ctx, cancel := context.WithCancel(n.t.Context())
	opened, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		first := true
		for range svc.Events(ctx, 1) { // the first event is there already, if the project has one
			if first {
				close(opened)
				first = false
			}
		}
		if first {
			close(opened)
		}
	}()
	n.t.Cleanup(func() { cancel(); <-ended })
	if secret == n.foreign.Secret {
		return ended // its project has no events
	}
	select {
	case <-opened:
	case <-time.After(10 * time.Second):
		n.t.Fatal("no event came")
	}
	return ended
}
