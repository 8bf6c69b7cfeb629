package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Headers that identify the caller of a request.
const (
	headerKey  = "X-Api-Key" // E2B's
	headerAuth = "Authorization"
	// headerTenant names the project for which an administrator's key acts.
	headerTenant = "Carrel-Tenant"
)

// errUnknownKey is worded as E2B's, because clients match on it.
//
//lint:ignore ST1005 the capital letter is E2B's
var errUnknownKey = errors.New("Cannot get the team for the given API key")

// errNotOurs is the error for an unknown key in Carrel's own API.
var errNotOurs = errors.New("the API key is none of this daemon's")

// Key is an API key and its owner.
type Key struct {
	Name   string // for records and logs
	Secret string
	// Project is carrel.DefaultProject when "".
	Project string
	// Role is carrel.RoleMember when "".
	Role carrel.Role
}

// Authenticator identifies callers. It is safe for concurrent use.
type Authenticator struct{ keys []hashedKey }

// hashedKey is a key in the form for comparison. The secret itself is not kept.
type hashedKey struct {
	sum    [sha256.Size]byte
	caller carrel.Caller
}

// NewAuthenticator returns an Authenticator that knows these keys. A key without a secret opens
// nothing.
func NewAuthenticator(keys ...Key) *Authenticator {
	a := &Authenticator{}
	for _, k := range keys {
		if k.Secret == "" {
			continue
		}
		c := carrel.Caller{Key: k.Name, Project: k.Project, Role: k.Role}
		if c.Project == "" {
			c.Project = carrel.DefaultProject
		}
		if c.Role == "" {
			c.Role = carrel.RoleMember
		}
		a.keys = append(a.keys, hashedKey{sha256.Sum256([]byte(k.Secret)), c})
	}
	return a
}

// find returns the owner of a key. It compares the hashes of all keys in constant time. So it takes
// the same time for every text of one length, whichever key the text is or resembles.
func (a *Authenticator) find(secret string) (carrel.Caller, bool) {
	sum := sha256.Sum256([]byte(secret))
	at := -1
	for i := range a.keys {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], a.keys[i].sum[:]), i, at)
	}
	if at < 0 {
		return carrel.Caller{}, false
	}
	return a.keys[at].caller, true
}

// bearer returns the token of an Authorization header; "" for none.
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get(headerAuth), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// hintKey says where to find the one key that a daemon makes itself.
const hintKey = "it is in the data directory's file api-key"

// Caller identifies the caller of a request by its API key, in E2B's header or as a bearer token
// (the CLI's access token). With the header Carrel-Tenant, an administrator's request counts as a
// member's request of the named project. Errors: Unauthenticated, with E2B's texts outside of
// Carrel's own API; Invalid and Forbidden for the header.
func (a *Authenticator) Caller(r *http.Request) (carrel.Caller, error) {
	key := a.Shown(r)
	if key == "" {
		return carrel.Caller{}, &carrel.Error{Kind: carrel.Unauthenticated, Err: errors.New("authorization header is missing"),
			Hint: "send the API key in the header X-API-KEY; " + hintKey}
	}
	var err error
	c, ok := a.find(key)
	if !ok {
		unknown := errUnknownKey
		if strings.HasPrefix(r.URL.Path, "/carrel/") {
			unknown = errNotOurs
		}
		return carrel.Caller{}, &carrel.Error{Kind: carrel.Unauthenticated, Err: unknown,
			Hint: "this is not the daemon's API key; " + hintKey}
	}
	if c, err = ofHost(c, r.Host); err != nil {
		return carrel.Caller{}, err
	}
	return actFor(c, r.Header.Values(headerTenant))
}

// ofHost returns the caller that c becomes by the name of the host. E2B's SDKs have settings for a
// project and a region. With both, they send requests to api.PROJECT.prj.REGION.DOMAIN. There is
// one region here, so its name does not matter. The project must be the caller's own, by its name
// or as the ID of its team. An administrator's key may name any project.
func ofHost(c carrel.Caller, host string) (carrel.Caller, error) {
	name := strings.ToLower((&url.URL{Host: host}).Hostname())
	labels := strings.SplitN(name, ".", 5)
	if len(labels) < 5 || labels[0] != "api" || labels[2] != "prj" {
		return c, nil
	}
	project := labels[1]
	if project == strings.ToLower(c.Project) || project == carrel.TeamID(c.Project) {
		return c, nil
	}
	c, err := actFor(c, []string{project})
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		ce.Field = "Host"
		ce.Hint = "unset E2B_PROJECT_ID, or set it to the key's project"
	}
	return c, err
}

// Shown returns the API key in a request; "" for none.
func (a *Authenticator) Shown(r *http.Request) string {
	if key := r.Header.Get(headerKey); key != "" {
		return key
	}
	return bearer(r.Header)
}

// actFor returns the caller that c becomes by naming the project that it acts for.
func actFor(c carrel.Caller, named []string) (carrel.Caller, error) {
	if len(named) == 0 || len(named) == 1 && named[0] == "" {
		return c, nil
	}
	if len(named) > 1 {
		return c, &carrel.Error{Kind: carrel.Invalid, Field: headerTenant, Err: errors.New("given more than once")}
	}
	if err := carrel.CheckProject(named[0]); err != nil {
		return c, &carrel.Error{Kind: carrel.Invalid, Field: headerTenant, Err: errors.Unwrap(err)}
	}
	switch {
	case c.Role == carrel.RoleAdmin:
		c.Project, c.Role = named[0], carrel.RoleMember
	case c.Project != named[0]:
		return c, &carrel.Error{Kind: carrel.Forbidden, Field: headerTenant, Err: fmt.Errorf("this key is not for project %q", named[0])}
	}
	return c, nil
}

// Strip removes our keys from a request that goes into a sandbox. A client may send one by mistake,
// and nothing inside may see it. Headers of the same names that hold no key of ours stay, because
// programs may use them for other purposes.
func (a *Authenticator) Strip(h http.Header) {
	if key := h.Get(headerKey); key != "" {
		if _, ours := a.find(key); ours {
			h.Del(headerKey)
		}
	}
	if token := bearer(h); token != "" {
		if _, ours := a.find(token); ours {
			h.Del(headerAuth)
		}
	}
}

// Visit returns the context of a request to a port of a sandbox. Such a visitor showed no key of
// ours. The sandbox's own tokens decide whether it may pass.
func (a *Authenticator) Visit(ctx context.Context, sb carrel.Sandbox) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "visitor", Project: sb.Project, Role: carrel.RoleVisitor, Sandbox: sb.ID})
}

// SSH returns the context of a session that an SSH key opened, after the client proved that it has
// the key.
func (a *Authenticator) SSH(ctx context.Context, key carrel.SSHKey) context.Context {
	c := carrel.Caller{Key: "ssh:" + key.Name, Project: key.Project, Role: carrel.RoleMember}
	if key.Project == "" { // an administrator's
		c.Project, c.Role = carrel.DefaultProject, carrel.RoleAdmin
	}
	return carrel.WithCaller(ctx, c)
}

// Inside returns the context of a request from a program inside a sandbox. The request's link says
// which sandbox.
func (a *Authenticator) Inside(ctx context.Context, id carrel.ID) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "sandbox:" + string(id), Role: carrel.RoleSandbox, Sandbox: id})
}
