package daemon

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestTrail does things in two projects, and reads who did them.
func TestTrail(t *testing.T) {
	d, svc := simulated(t)
	admin := svc.(*client.Client)
	ctx := t.Context()
	people := admin.People()
	if _, err := people.CreateProject(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	clients := map[carrel.KeyScope]*client.Client{}
	for _, scope := range []carrel.KeyScope{carrel.ScopeRead, carrel.ScopeRun, carrel.ScopeAdmin} {
		k, err := people.CreateKey(ctx, carrel.NewKey{Name: "key-" + string(scope), Project: "web", Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		svc, err := client.New(d.URL(), k.Secret)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = svc.Close() })
		clients[scope] = svc.(*client.Client)
	}
	foreign, err := admin.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := clients[carrel.ScopeRun].Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := clients[carrel.ScopeRun].Computer(ctx, own.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(ctx, carrel.Command{Shell: "true"}); err != nil {
		t.Fatal(err)
	}
	if err := clients[carrel.ScopeRead].Kill(ctx, own.ID); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("a reader killed: %v", err)
	}
	// A name that would begin a record of its own, and a key that is none.
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, d.URL()+"/sandboxes/x%0a%7b%22seq%22:1%7d%1b[2J", nil)
	req.Header.Set("X-API-Key", "e2b_"+strings.Repeat("0", 40))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if len(resp.Header.Get("X-Request-Id")) != 16 {
		t.Errorf("request ID: %v", resp.Header)
	}

	all := records(t, admin, carrel.TrailOptions{Limit: -1})
	find := func(what string, match func(carrel.TrailRecord) bool) {
		t.Helper()
		if !slices.ContainsFunc(all, match) {
			t.Errorf("no record of %s", what)
		}
	}
	find("the creation", func(r carrel.TrailRecord) bool {
		return r.Kind == carrel.TrailChange && r.Key == "key-run" && r.KeyID != "" && r.Project == "web" && r.Target == string(own.ID) &&
			strings.HasPrefix(r.Op, "POST /") && r.Status == 201 && r.From != "" && r.Request != ""
	})
	find("the command", func(r carrel.TrailRecord) bool {
		return r.Kind == carrel.TrailEnter && strings.Contains(r.Target, string(own.ID)) && r.Project == "web"
	})
	find("the refusal", func(r carrel.TrailRecord) bool {
		return r.Kind == carrel.TrailRefuse && r.Key == "key-read" && r.Status == 403
	})
	find("the unknown key", func(r carrel.TrailRecord) bool {
		return r.Kind == carrel.TrailRefuse && r.Key == "" && r.Status == 401 && r.Request == resp.Header.Get("X-Request-Id")
	})
	find("the new key", func(r carrel.TrailRecord) bool {
		return r.Op == "POST /carrel/v1/keys" && strings.Contains(r.Target, "key-read") && r.Role == carrel.RoleAdmin
	})
	for _, r := range all {
		if strings.Contains(string(r.Line), "e2b_") || strings.ContainsAny(string(r.Line), "\x1b\n") {
			t.Errorf("a secret or a control character: %s", r.Line)
		}
	}
	for _, r := range records(t, clients[carrel.ScopeAdmin], carrel.TrailOptions{Limit: -1}) {
		if r.Project != "web" || strings.Contains(r.Target, string(foreign.ID)) {
			t.Errorf("an owner sees %s", r.Line)
		}
	}
	for _, scope := range []carrel.KeyScope{carrel.ScopeRead, carrel.ScopeRun} {
		for _, err := range clients[scope].Trail(ctx, carrel.TrailOptions{}) {
			if carrel.KindOf(err) != carrel.Forbidden {
				t.Errorf("%s reads the trail: %v", scope, err)
			}
		}
	}
	if _, err := clients[carrel.ScopeAdmin].VerifyTrail(ctx); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("an owner verifies: %v", err)
	}
	if r, err := admin.VerifyTrail(ctx); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

func records(t *testing.T, c *client.Client, o carrel.TrailOptions) (out []carrel.TrailRecord) {
	t.Helper()
	for r, err := range c.Trail(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestHealth asks what supervisors ask.
func TestHealth(t *testing.T) {
	d, _ := simulated(t)
	testenv.EventuallyNil(t, "health", func() error {
		for _, path := range []string{"/health", "/healthz", "/readyz"} {
			resp, err := http.Get(d.URL() + path)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusNoContent {
				return errors.New(path + ": " + resp.Status)
			}
		}
		return nil
	})
}
