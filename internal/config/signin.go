package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
)

// SignIn has the settings for people who sign in.
type SignIn struct {
	// PublicURL is the address at which browsers reach the daemon; "" is where it listens.
	PublicURL string
	// Issuer is the OpenID Connect provider; "" is none. ClientID is the daemon's name there, and
	// SecretFile holds its secret.
	Issuer, ClientID, SecretFile string
	// GroupsClaim is the claim of its tokens that lists groups, and Roles say what these may do:
	// GROUP=PROJECT:ROLE. Scopes are asked for besides openid, email and profile.
	GroupsClaim   string
	Roles, Scopes []string
	// Browser and Idle bound a browser's session, and Token that of a command line.
	Browser, Idle, Token time.Duration
}

// defaultSignIn is the default.
var defaultSignIn = SignIn{GroupsClaim: "groups", Browser: 12 * time.Hour, Idle: 2 * time.Hour,
	Token: 7 * 24 * time.Hour}

// Flags adds the flags for people who sign in.
func (s *SignIn) Flags(f *pflag.FlagSet) {
	f.StringVar(&s.PublicURL, "public-url", s.PublicURL, "address at which browsers reach the daemon, such as https://carrel.example.com (default: where it listens)")
	f.StringVar(&s.Issuer, "oidc-issuer", s.Issuer, "OpenID Connect provider at which people sign in (default: none)")
	f.StringVar(&s.ClientID, "oidc-client-id", s.ClientID, "the daemon's client ID there")
	f.StringVar(&s.SecretFile, "oidc-client-secret-file", s.SecretFile, "file with its client secret (default: none, for a public client)")
	f.StringVar(&s.GroupsClaim, "oidc-groups-claim", s.GroupsClaim, "claim of its tokens that lists a person's groups")
	f.StringSliceVar(&s.Roles, "oidc-role", s.Roles, "what a group may do, GROUP=PROJECT:ROLE with the role read, run or admin (repeat)")
	f.StringSliceVar(&s.Scopes, "oidc-scope", s.Scopes, "scope to ask for besides openid, email and profile (repeat)")
	f.DurationVar(&s.Browser, "session-lifetime", s.Browser, "how long a browser stays signed in")
	f.DurationVar(&s.Token, "login-lifetime", s.Token, "how long a command line stays logged in")
}

// idleFlag adds the flag for sessions that nobody uses. Only one daemon knows when a session was used.
func (s *SignIn) idleFlag(f *pflag.FlagSet) {
	f.DurationVar(&s.Idle, "session-idle", s.Idle, "how long it stays signed in without being used")
}

// GroupRole is what a group of the provider may do.
type GroupRole struct {
	Group, Project string
	Role           carrel.KeyScope
}

// GroupRoles reads Roles. Validate has checked them.
func (s SignIn) GroupRoles() (out []GroupRole, wrong string) {
	for _, text := range s.Roles {
		i := strings.LastIndex(text, "=") // a group's name may have the sign
		if i <= 0 {
			return nil, text
		}
		project, role, ok := strings.Cut(text[i+1:], ":")
		r := GroupRole{text[:i], project, carrel.KeyScope(role)}
		if !ok || carrel.CheckProject(project) != nil || r.Role.Role() == "" {
			return nil, text
		}
		out = append(out, r)
	}
	return out, ""
}

// webURL reports whether a text is the address of a web server, with no more than a path.
func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == ""
}

// checkSignIn checks the fields.
func (c Config) checkSignIn() error { return c.SignIn.Check() }

// Check checks the fields. Error: Invalid.
func (s SignIn) Check() error {
	if s.PublicURL != "" && (!webURL(s.PublicURL) || strings.Trim(mustPath(s.PublicURL), "/") != "") {
		return bad("public-url", "%q is not https://HOST", s.PublicURL)
	}
	for name, d := range map[string]time.Duration{"session-lifetime": s.Browser, "session-idle": s.Idle,
		"login-lifetime": s.Token} {
		if d < time.Minute || d > 366*24*time.Hour {
			return bad(name, "%v is not from a minute to a year", d)
		}
	}
	if _, wrong := s.GroupRoles(); wrong != "" {
		return bad("oidc-role", "%q is not GROUP=PROJECT:ROLE, with the role read, run or admin", wrong)
	}
	if s.Issuer == "" {
		if s.ClientID != "" || s.SecretFile != "" || len(s.Roles) > 0 {
			return bad("oidc-issuer", "it is needed for the other settings of the provider")
		}
		return nil
	}
	if !webURL(s.Issuer) {
		return bad("oidc-issuer", "%q is not https://HOST or https://HOST/PATH", s.Issuer)
	}
	if s.ClientID == "" {
		return bad("oidc-client-id", "it is needed with --oidc-issuer")
	}
	return nil
}

func mustPath(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.Path
}
