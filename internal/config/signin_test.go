package config

import (
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestSignInSettings tries settings of the sign-in that are wrong, and reads roles of groups.
func TestSignInSettings(t *testing.T) {
	for name, c := range map[string]struct {
		field  string
		change func(*SignIn)
	}{
		"public-url":       {"public-url", func(s *SignIn) { s.PublicURL = "carrel.example.com" }},
		"a path":           {"public-url", func(s *SignIn) { s.PublicURL = "https://carrel.example.com/x" }},
		"only an ID":       {"oidc-issuer", func(s *SignIn) { s.ClientID = "x" }},
		"no ID":            {"oidc-client-id", func(s *SignIn) { s.Issuer = "https://example.com" }},
		"an issuer":        {"oidc-issuer", func(s *SignIn) { s.Issuer, s.ClientID = "example.com", "x" }},
		"a role":           {"oidc-role", func(s *SignIn) { s.Roles = []string{"dev=web:owner"} }},
		"no project":       {"oidc-role", func(s *SignIn) { s.Roles = []string{"dev=run"} }},
		"no group":         {"oidc-role", func(s *SignIn) { s.Roles = []string{"=web:run"} }},
		"a short session":  {"session-lifetime", func(s *SignIn) { s.Browser = 1 }},
		"an endless login": {"login-lifetime", func(s *SignIn) { s.Token = 1 << 62 }},
	} {
		cfg := Default()
		c.change(&cfg.SignIn)
		err := cfg.Validate()
		if ce, ok := errors.AsType[*carrel.Error](err); !ok || ce.Kind != carrel.Invalid || ce.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, wrong := SignIn{Roles: []string{"cn=dev,dc=x=web:admin"}}.GroupRoles()
	if wrong != "" || len(got) != 1 || got[0] != (GroupRole{"cn=dev,dc=x", "web", carrel.ScopeAdmin}) {
		t.Errorf("%+v %q", got, wrong)
	}
}
