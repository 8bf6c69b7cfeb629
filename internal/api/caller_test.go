package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
)

// TestRefusals: a refusal has E2B's body, and says when to try again in whole seconds.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		kind   carrel.Kind
		after  time.Duration
		status int
		header string
	}{
		{carrel.Exhausted, 6300 * time.Millisecond, http.StatusTooManyRequests, "7"},
		{carrel.Exhausted, 0, http.StatusTooManyRequests, "1"},
		{carrel.Unavailable, 5 * time.Second, http.StatusServiceUnavailable, "5"},
	} {
		s := New(Options{Key: "k", Service: &fake{create: func(carrel.CreateOptions) (carrel.Sandbox, error) {
			return carrel.Sandbox{}, &carrel.Error{Op: "create sandbox", Kind: c.kind, Err: errors.New("too many"), RetryAfter: c.after}
		}}})
		r := httptest.NewRequest(http.MethodPost, "/v2/sandboxes", strings.NewReader(`{"templateID":"base"}`))
		r.Header.Set("X-API-KEY", "k")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var body struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if w.Code != c.status || body.Code != c.status || w.Header().Get("Retry-After") != c.header || !strings.Contains(body.Message, "too many") {
			t.Errorf("%d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
}

// TestCaller: what a request says of itself reaches the service, and nonsense does not.
func TestCaller(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Carrel-Tenant", "team-7")
	r.Header.Set("Connect-Timeout-Ms", "60000")
	got, done, err := asCaller(r)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if name := admission.TenantOf(got.Context()); name != "team-7" {
		t.Errorf("the tenant is %q", name)
	}
	if at, ok := got.Context().Deadline(); !ok || time.Until(at) > time.Minute {
		t.Errorf("the deadline is %v, %v", at, ok)
	}
	for name, value := range map[string]string{"Carrel-Tenant": "a b", "Connect-Timeout-Ms": "soon"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(name, value)
		if _, _, err := asCaller(r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %s gives %v", name, value, err)
		}
	}
}
