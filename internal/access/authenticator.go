package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/carrel-dev/carrel"
)

// The headers by which a request says who asks.
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

// errNotOurs is the same in Carrel's own API.
var errNotOurs = errors.New("the API key is none of this daemon's")

// Key is an API key and whose it is.
type Key struct {
	Name   string // for records and logs
	Secret string
	// Project is carrel.DefaultProject when "".
	Project string
	// Role is carrel.RoleMember when "".
	Role carrel.Role
}

// Authenticator says who asks. It is safe for concurrent use.
type Authenticator struct{ keys []hashedKey }

// hashedKey is a key as it is compared. The secret itself is not kept.
type hashedKey struct {
	sum    [sha256.Size]byte
	caller carrel.Caller
}

// NewAuthenticator returns one that knows these keys. A key without a secret opens nothing.
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

// find returns whose key a text is. It takes the same time for every text of a length,
// whichever key it is or is like: hashes are compared, in constant time, and all of them.
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

// bearer is the token of an Authorization header; "" for none.
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get(headerAuth), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// hintKey says where the one key is that a daemon makes by itself.
const hintKey = "it is in the data directory's file api-key"

// Caller says whose request it is: by the API key, in E2B's header or as a bearer token
// (the CLI's access token). An administrator's request with the header Carrel-Tenant is
// the named project's, and a member's like any other. Errors: Unauthenticated, with E2B's
// texts outside of Carrel's own API; Invalid and Forbidden for the header.
func (a *Authenticator) Caller(r *http.Request) (carrel.Caller, error) {
	key := a.Shown(r)
	if key == "" {
		return carrel.Caller{}, &carrel.Error{Kind: carrel.Unauthenticated, Err: errors.New("authorization header is missing"),
			Hint: "send the API key in the header X-API-KEY; " + hintKey}
	}
	c, ok := a.find(key)
	if !ok {
		unknown := errUnknownKey
		if strings.HasPrefix(r.URL.Path, "/carrel/") {
			unknown = errNotOurs
		}
		return carrel.Caller{}, &carrel.Error{Kind: carrel.Unauthenticated, Err: unknown,
			Hint: "this is not the daemon's API key; " + hintKey}
	}
	return actFor(c, r.Header.Values(headerTenant))
}

// Shown returns the API key that a request showed; "" for none.
func (a *Authenticator) Shown(r *http.Request) string {
	if key := r.Header.Get(headerKey); key != "" {
		return key
	}
	return bearer(r.Header)
}

// actFor is the caller after what it said of the project that it acts for.
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

// Strip takes our keys off a request that goes into a sandbox: a client sent one along by
// mistake, and nothing inside may see it. Programs may have headers of the same names for
// purposes of their own, which stay.
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

// Visit returns the context of a request to a port of a sandbox. Such a visitor showed no
// key of ours: whether it may pass is for the sandbox's own tokens to say.
func (a *Authenticator) Visit(ctx context.Context, sb carrel.Sandbox) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "visitor", Project: sb.Project, Role: carrel.RoleVisitor, Sandbox: sb.ID})
}

// SSH returns the context of a session that an SSH key opened, once the client proved
// that it has it.
func (a *Authenticator) SSH(ctx context.Context, key carrel.SSHKey) context.Context {
	c := carrel.Caller{Key: "ssh:" + key.Name, Project: key.Project, Role: carrel.RoleMember}
	if key.Project == "" { // an administrator's
		c.Project, c.Role = carrel.DefaultProject, carrel.RoleAdmin
	}
	return carrel.WithCaller(ctx, c)
}

// Inside returns the context of a request that a program inside of a sandbox makes. The
// link that it came by says which sandbox.
func (a *Authenticator) Inside(ctx context.Context, id carrel.ID) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "sandbox:" + string(id), Role: carrel.RoleSandbox, Sandbox: id})
}
