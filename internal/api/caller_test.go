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
)

// TestRefusals shows that a refusal has E2B's body, and says when to try again, in whole seconds.
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
		s := New(Options{Callers: adminKey("k"), Service: &fake{create: func(carrel.CreateOptions) (carrel.Sandbox, error) {
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

// TestDeadline shows that a client's deadline reaches the service, and that an invalid one does
// not.
func TestDeadline(t *testing.T) {
	s := New(Options{Callers: adminKey("k")})
	ask := func(value string) (*http.Request, func(), error) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-API-KEY", "k")
		r.Header.Set("Connect-Timeout-Ms", value)
		return s.arrive(r)
	}
	got, done, err := ask("60000")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if at, ok := got.Context().Deadline(); !ok || time.Until(at) > time.Minute {
		t.Errorf("the deadline is %v, %v", at, ok)
	}
	if c, ok := carrel.CallerIn(got.Context()); !ok || c.Key != "test" {
		t.Errorf("the caller is %+v", c)
	}
	if _, _, err := ask("soon"); err == nil || !strings.Contains(err.Error(), "Connect-Timeout-Ms") {
		t.Errorf("soon gives %v", err)
	}
}
