package access_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/ceiling"
)

// TestBehalf has a front say for whom it asks, and others try the same.
func TestBehalf(t *testing.T) {
	a := access.NewAuthenticator(access.Key{Name: "api-key", Secret: "own", Role: carrel.RoleAdmin}, access.Key{Name: "small", Secret: "other", Project: "p"})
	good, err := access.Behalf{Key: "k", KeyID: "id", Bounds: []ceiling.Bound{{Of: "the key k", Ceiling: carrel.Ceiling{Timeout: time.Minute, Egress: []string{}}}}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	arrive := func(key, tenant string, texts ...string) (carrel.Caller, []ceiling.Bound, error) {
		r := httptest.NewRequest("POST", "/carrel/v1/sandboxes", nil)
		r.Header.Set("X-API-KEY", key)
		if tenant != "" {
			r.Header.Set("Carrel-Tenant", tenant)
		}
		for _, text := range texts {
			r.Header.Add(access.HeaderCaller, text)
		}
		ctx, done, err := a.Arrive(r)
		if err != nil {
			return carrel.Caller{}, nil, err
		}
		defer done()
		return carrel.CallerOf(ctx), ceiling.In(ctx), nil
	}
	c, bounds, err := arrive("own", "p", good)
	if err != nil || c != (carrel.Caller{Key: "k", KeyID: "id", Project: "p", Role: carrel.RoleOwner}) || len(bounds) != 1 ||
		bounds[0].Ceiling.Timeout != time.Minute || bounds[0].Ceiling.Egress == nil || bounds[0].Ceiling.Tiers != nil {
		t.Errorf("%+v %+v %v", c, bounds, err)
	}
	// Another key says nothing by it: neither who it is, nor which ceilings it has.
	if c, bounds, err := arrive("other", "", good); err != nil || c.Key != "small" || c.KeyID != "" || bounds != nil {
		t.Errorf("a project's key: %+v %+v %v", c, bounds, err)
	}
	if _, _, err := arrive("wrong", "", good); carrel.KindOf(err) != carrel.Unauthenticated {
		t.Errorf("no key: %v", err)
	}
	for what, texts := range map[string][]string{
		"twice": {good, good}, "no text": {"%"}, "no object": {"W10="}, "nobody": {"e30="}, "long": {strings.Repeat("A", 40<<10)},
	} {
		if _, _, err := arrive("own", "p", texts...); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	long := make([]string, 5000)
	for i := range long {
		long[i] = "example.com"
	}
	if _, err := (access.Behalf{Key: "k", Bounds: []ceiling.Bound{{Ceiling: carrel.Ceiling{Egress: long}}}}).Text(); carrel.KindOf(err) != carrel.Unsupported {
		t.Errorf("a ceiling that is too long: %v", err)
	}
}
