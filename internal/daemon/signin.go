package daemon

import (
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/provider"
	"github.com/carrel-dev/carrel/internal/signin"
)

// maxSecretFile bounds the file of a client's secret.
const maxSecretFile = 4 << 10

// OpenProvider returns the identity provider; nil if there is none. Error: Invalid.
func OpenProvider(s config.SignIn) (signin.Provider, error) {
	if s.Issuer == "" {
		return nil, nil
	}
	opts := provider.Options{Issuer: s.Issuer, ClientID: s.ClientID, Scopes: s.Scopes,
		GroupsClaim: s.GroupsClaim}
	if s.SecretFile != "" {
		raw, err := os.ReadFile(s.SecretFile)
		if err != nil || len(raw) > maxSecretFile {
			return nil, &carrel.Error{Op: "read client secret", Kind: carrel.Invalid,
				Field: "oidc-client-secret-file", Err: err}
		}
		opts.Secret = strings.TrimSpace(string(raw))
	}
	return provider.New(opts), nil
}

// publicURL is where browsers reach the daemon.
func (d *Daemon) publicURL() string {
	if d.cfg.SignIn.PublicURL != "" {
		return d.cfg.SignIn.PublicURL
	}
	return d.url
}

// signIns wraps the control plane in the pages on which people sign in.
func (d *Daemon) signIns(next http.Handler) http.Handler {
	d.parts.SignIns.UseGroups(GroupRoles(d.cfg.SignIn))
	d.callers.SecureCookies(strings.HasPrefix(d.publicURL(), "https://"))
	door := signin.New(signin.Options{People: d.parts.SignIns, Cookies: d.callers,
		Passwords: d.parts.Persons, Provider: d.provider, PublicURL: d.publicURL,
		Interval: devicePause, Journal: d.parts.Journal(), Log: d.log})
	return door.Wrap(next)
}

// GroupRoles are what the provider's groups may do. The settings are checked.
func GroupRoles(s config.SignIn) (groups []access.GroupRole) {
	roles, _ := s.GroupRoles()
	for _, r := range roles {
		groups = append(groups, access.GroupRole(r))
	}
	return groups
}

// devicePause is the shortest pause between two questions of a command line that waits.
var devicePause = 5 * time.Second
