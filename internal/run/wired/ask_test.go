package wired_test

import (
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/carrel-dev/carrel/internal/run/wired"
)

// TestAskIsRefused checks that a box gets no policy that asks a person: nobody would answer.
func TestAskIsRefused(t *testing.T) {
	w, err := wired.Open(run.WireOptions{Policy: carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"a.example.com"}}, {Ask: []string{"b.example.com"}}}}})
	if err == nil {
		_ = w.Close()
	}
	var e *carrel.Error
	if !errors.As(err, &e) || e.Kind != carrel.Unsupported || e.Field != "policy.rules[1].ask" {
		t.Errorf("%v", err)
	}
}
