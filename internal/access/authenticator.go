package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/state"
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
type Authenticator struct {
	// own are the callers of the keys that it was made with, by the SHA-256 of the secret. No
	// secret is kept. See [Directory] for why a map of hashes may be used.
	own       map[[sha256.Size]byte]carrel.Caller
	directory atomic.Pointer[Directory]
	secure    atomic.Bool // see SecureCookies
}

// NewAuthenticator returns an Authenticator that knows these keys. A key without a secret opens
// nothing.
func NewAuthenticator(keys ...Key) *Authenticator {
	a := &Authenticator{own: map[[sha256.Size]byte]carrel.Caller{}}
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
		a.own[sha256.Sum256([]byte(k.Secret))] = c
	}
	return a
}

// Use makes the keys of a directory known, too.
func (a *Authenticator) Use(d *Directory) { a.directory.Store(d) }

// proof is what a request showed, and what of the directory it stands for.
type proof struct {
	// known says that it was once one of ours. Only its holder may learn why it works no more.
	known bool
	// ends are the contexts with which everything ends that the request opens.
	ends []context.Context
	// session is the sign-in of a person; nil for a key.
	session *liveSession
	// own says that it is a key of the daemon's own, of an administrator, and bounds are the ceilings
	// that came with it.
	own    bool
	bounds []ceiling.Bound
}

// find returns the owner of a key, or of a person's token, that works. A person has no project yet.
// Error: Unauthenticated.
func (a *Authenticator) find(secret string) (carrel.Caller, proof, error) {
	sum := sha256.Sum256([]byte(secret))
	if c, ok := a.own[sum]; ok {
		return c, proof{known: true, own: c.Role == carrel.RoleAdmin}, nil
	}
	d := a.directory.Load()
	if d == nil {
		return carrel.Caller{}, proof{}, errUnknownKey
	}
	now := time.Now()
	if cr := d.find(sum); cr != nil {
		if err := cr.fault(now); err != nil {
			return carrel.Caller{}, proof{known: true}, err
		}
		return cr.caller(now), proof{known: true, ends: []context.Context{cr.ctx}}, nil
	}
	if s := d.session(secret, state.TokenSession); s != nil {
		return s.caller(now)
	}
	return carrel.Caller{}, proof{}, errUnknownKey
}

// ours reports whether a text is one of our keys, also one that works no more.
func (a *Authenticator) ours(secret string) bool {
	_, p, _ := a.find(secret)
	return p.known
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

// Caller identifies the caller of a request by its API key or a person's token, in E2B's header or
// as a bearer token (the CLI's access token), or by a browser's session. With the header Carrel-Tenant, an administrator's request counts as an
// owner's request of the named project. Errors: Unauthenticated, with E2B's texts outside of
// Carrel's own API; Invalid and Forbidden for the header.
func (a *Authenticator) Caller(r *http.Request) (carrel.Caller, error) {
	c, _, err := a.identify(r)
	return c, err
}

// Arrive returns a context for a request, with its caller. The context ends when the caller's key
// is revoked, expires or loses this secret; its cause says so, as an Error of kind Unauthenticated.
// done gives up the context. The errors are those of Caller.
func (a *Authenticator) Arrive(r *http.Request) (ctx context.Context, done func(), err error) {
	c, p, err := a.identify(r)
	if err != nil {
		return nil, nil, err
	}
	ctx = carrel.WithCaller(r.Context(), c)
	if len(p.bounds) > 0 {
		ctx = ceiling.With(ctx, p.bounds)
	}
	if len(p.ends) == 0 { // the daemon's own key is never revoked while it runs
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	for _, end := range p.ends {
		stops = append(stops, context.AfterFunc(end, func() { cancel(context.Cause(end)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}, nil
}

// identify is Caller, with what the request showed.
func (a *Authenticator) identify(r *http.Request) (carrel.Caller, proof, error) {
	key := a.Shown(r)
	if key == "" {
		if c, p, shown, err := a.byCookie(r); shown {
			return c, p, err
		}
		return carrel.Caller{}, proof{}, &carrel.Error{Kind: carrel.Unauthenticated, Err: errors.New("authorization header is missing"),
			Hint: "send the API key in the header X-API-KEY; " + hintKey}
	}
	c, p, err := a.find(key)
	if err != nil {
		unknown := errUnknownKey
		if strings.HasPrefix(r.URL.Path, "/carrel/") {
			unknown = errNotOurs
		}
		if !p.known || unknown == errUnknownKey { // E2B's clients match on its text
			hint := "this is not the daemon's API key; " + hintKey
			if p.known {
				hint = err.Error()
			}
			err = &carrel.Error{Kind: carrel.Unauthenticated, Err: unknown, Hint: hint}
		}
		return carrel.Caller{}, proof{}, err
	}
	if p.session != nil {
		return inProject(c, p, r)
	}
	if c, err = ofHost(c, r.Host); err != nil {
		return carrel.Caller{}, proof{}, err
	}
	if c, err = actFor(c, r.Header.Values(headerTenant)); err == nil && p.own {
		c, p.bounds, err = onBehalf(c, r.Header)
	}
	return c, p, err
}

// ofHost returns the caller that c becomes by the name of the host. E2B's SDKs have settings for a
// project and a region. With both, they send requests to api.PROJECT.prj.REGION.DOMAIN. There is
// one region here, so its name does not matter. The project must be the caller's own, by its name
// or as the ID of its team. An administrator's key may name any project.
func ofHost(c carrel.Caller, host string) (carrel.Caller, error) {
	project := hostProject(host)
	if project == "" || project == strings.ToLower(c.Project) || project == carrel.TeamID(c.Project) {
		return c, nil
	}
	c, err := actFor(c, []string{project})
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		ce.Field = "Host"
		ce.Hint = "unset E2B_PROJECT_ID, or set it to the key's project"
	}
	return c, err
}

// hostProject returns the project in the name of a host, in small letters; "" for none.
func hostProject(host string) string {
	name := strings.ToLower((&url.URL{Host: host}).Hostname())
	labels := strings.SplitN(name, ".", 5)
	if len(labels) < 5 || labels[0] != "api" || labels[2] != "prj" {
		return ""
	}
	return labels[1]
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
		c.Project, c.Role = named[0], carrel.RoleOwner
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
		if a.ours(key) {
			h.Del(headerKey)
		}
	}
	if token := bearer(h); token != "" {
		if a.ours(token) {
			h.Del(headerAuth)
		}
	}
	stripCookies(h)
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
