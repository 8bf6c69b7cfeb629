package assembly

import (
	"context"
	"math"
	"path/filepath"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/ledger/webhook"
	"github.com/carrel-dev/carrel/internal/settings"
	"github.com/carrel-dev/carrel/internal/version"
)

// lateHooks are the webhooks once they are open.
type lateHooks struct{ atomic.Pointer[webhook.Hooks] }

// openWebhooks begins to deliver events.
func (a *Assembly) openWebhooks() error {
	identity := string(carrel.NewID()) // the events of a passing service are never met again
	if a.home != nil {
		identity = a.home.ID
	}
	hooks, err := webhook.Open(webhook.Options{Dir: filepath.Join(a.dir, "webhooks"), Identity: identity,
		Store: a.state, Follow: a.Service.Events, Template: a.Service.GetTemplate, Redact: a.redact,
		Allow: a.cfg.AllowWebhooks, Version: version.Version, Logger: a.log})
	if err != nil {
		return err
	}
	a.closing(hooks.Close) // before the service, whose events it follows
	a.hooks.Store(hooks)
	a.Webhooks = access.Webhooks{Service: a.Access, Of: hooks.For}
	return nil
}

// eventsNeeded says which events the webhooks have not read.
func (a *Assembly) eventsNeeded() int64 {
	if hooks := a.hooks.Load(); hooks != nil {
		return hooks.Needed()
	}
	return math.MinInt64 // they are not open yet: all may be needed
}

// redact returns a function that removes the secrets of a project from texts. It knows the ones that
// the vault keeps, and those that have the form of a secret.
func (a *Assembly) redact(_ context.Context, project string) func(string) string {
	hide := a.Vault.Hider(project)
	return func(text string) string {
		text = hide(text)
		if why := settings.KnownSecret(text); why != "" {
			return "[redacted: it " + why + "]"
		}
		return text
	}
}
