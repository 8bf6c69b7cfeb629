package agent

import (
	"maps"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

// identity is what /init gives a guest: everything that makes it this sandbox.
type identity struct {
	mu      sync.RWMutex
	token   string
	user    string
	workdir string
	envs    map[string]string
	stamp   time.Time // of the newest /init
}

// reset sets the identity that a guest has before the first /init.
func (id *identity) reset(cfg Config) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.user, id.workdir = cfg.DefaultUser, cfg.DefaultWorkdir
	id.envs = maps.Clone(cfg.EnvVars)
	if id.envs == nil {
		id.envs = map[string]string{}
	}
}

// apply takes over a request's values and reports whether it did: one that is
// older than the newest seen changes nothing, so that a delayed repeat can't put
// an old token back after a restore.
func (id *identity) apply(req *guest.InitRequest) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !req.Timestamp.IsZero() {
		if req.Timestamp.Before(id.stamp) {
			return false
		}
		id.stamp = req.Timestamp
	}
	id.token = req.AccessToken
	if req.DefaultUser != "" {
		id.user = req.DefaultUser
	}
	if req.DefaultWorkdir != "" {
		id.workdir = req.DefaultWorkdir
	}
	if req.EnvVars != nil {
		id.envs = maps.Clone(req.EnvVars)
	}
	for k, v := range map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": req.SandboxID, "E2B_TEMPLATE_ID": req.TemplateID} {
		if v != "" {
			id.envs[k] = v
		}
	}
	return true
}

// accessToken returns the token that requests must carry, "" for none.
func (a *Agent) accessToken() string {
	a.identity.mu.RLock()
	defer a.identity.mu.RUnlock()
	return a.identity.token
}

// defaultUser returns the name of the user of requests that name none.
func (a *Agent) defaultUser() string {
	a.identity.mu.RLock()
	defer a.identity.mu.RUnlock()
	return a.identity.user
}

// defaultWorkdir returns where relative paths begin, "" for the user's home.
func (a *Agent) defaultWorkdir() string {
	a.identity.mu.RLock()
	defer a.identity.mu.RUnlock()
	return a.identity.workdir
}

// env returns a copy of the sandbox's environment.
func (a *Agent) env() map[string]string {
	a.identity.mu.RLock()
	defer a.identity.mu.RUnlock()
	return maps.Clone(a.identity.envs)
}
