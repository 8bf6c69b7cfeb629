package agent

import (
	"maps"
	"regexp"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

// identity is everything that /init gives a guest. It makes the guest this one sandbox.
type identity struct {
	mu      sync.RWMutex
	token   string
	user    string
	workdir string
	envs    map[string]string
	before  []*regexp.Regexp // commands that need a checkpoint
	silent  bool             // no refusals are explained
	// These belong to the newest /init; known is false before the first one.
	known bool
	order uint64
	stamp time.Time
	// The newest /init's sandbox and generation.
	sandbox    string
	generation int
}

// reset sets the identity for the time before the first /init.
func (id *identity) reset(cfg Config) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.user, id.workdir = cfg.DefaultUser, cfg.DefaultWorkdir
	id.envs = maps.Clone(cfg.EnvVars)
	if id.envs == nil {
		id.envs = map[string]string{}
	}
}

// initialisation is an /init that was checked.
type initialisation struct {
	guest.InitRequest
	before []*regexp.Regexp
}

// outcome is the effect of an /init.
type outcome struct {
	adopted bool // its values hold now
	renewed bool // the first one of its generation, or of all
	woken   bool // also, the guest was restored with its memory
}

// apply takes over a request's values. It ignores a request that is older than the newest, so a
// delayed repeat can't put an old token back. The first one after a restore counts whatever its
// order and time are: the last one before the snapshot may have come from another host, or from a
// clock ahead of this machine's.
func (id *identity) apply(req *initialisation) outcome {
	id.mu.Lock()
	defer id.mu.Unlock()
	var out outcome
	out.renewed = req.Generation != id.generation || req.SandboxID != id.sandbox || !id.known
	out.woken = req.Restored && (out.renewed || req.Generation == 0)
	if !out.woken && id.newerThan(req) {
		return outcome{}
	}
	id.known, id.order = true, req.Order
	if out.woken || !req.Timestamp.IsZero() {
		id.stamp = req.Timestamp
	}
	out.adopted = true
	id.sandbox, id.generation = req.SandboxID, req.Generation
	id.before, id.silent = req.before, req.Silent
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
	return out
}

// newerThan reports whether the identity is from a newer request than req. Called with mu held.
func (id *identity) newerThan(req *initialisation) bool {
	if id.order != 0 && req.Order != 0 {
		return req.Order < id.order
	}
	return !req.Timestamp.IsZero() && req.Timestamp.Before(id.stamp)
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

// defaultWorkdir returns the directory where relative paths begin, "" for the user's home.
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
