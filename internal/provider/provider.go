// Package provider lets people sign in at an OpenID Connect provider: the authorization code flow,
// with PKCE (RFC 7636).
//
// # Threat
//
// Somebody brings a token that the provider made for another program, an old one, one that another
// sign-in got, or one that nobody signed. So a token only counts if the provider's key signed it, by
// an algorithm of public keys, for our client ID, from the configured issuer, if it is not expired,
// and if it has the nonce of this very sign-in. An address only counts if the provider says that it
// has verified it: otherwise people could sign in as whoever they like.
package provider

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Options configures a Provider.
type Options struct {
	Issuer, ClientID, Secret string
	// Scopes are asked for besides openid, email and profile.
	Scopes []string
	// GroupsClaim is the claim that lists a person's groups; "" is none.
	GroupsClaim string
	// Client reaches the provider; nil is a usual one.
	Client *http.Client
}

// Provider is an OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	opts Options

	mu    sync.Mutex
	found *oidc.Provider // what its discovery document says; nil until it is needed
}

const (
	timeout   = 15 * time.Second
	maxGroups = 1000
)

// New returns a provider. Nothing is asked before somebody signs in, so the provider need not be
// there when the daemon starts.
func New(opts Options) *Provider {
	if opts.Client == nil {
		opts.Client = &http.Client{Timeout: timeout}
	}
	return &Provider{opts: opts}
}

// Issuer returns the provider's name.
func (p *Provider) Issuer() string { return p.opts.Issuer }

// discover reads the provider's discovery document, once.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	// The keys are fetched later with this context, so it must not end with the request.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.opts.Client), p.opts.Issuer)
	if err != nil {
		return nil, err
	}
	p.found = found
	return found, nil
}

func (p *Provider) config(found *oidc.Provider, callback string) *oauth2.Config {
	return &oauth2.Config{ClientID: p.opts.ClientID, ClientSecret: p.opts.Secret,
		Endpoint: found.Endpoint(), RedirectURL: callback,
		Scopes: append([]string{oidc.ScopeOpenID, "email", "profile"}, p.opts.Scopes...)}
}

// Begin returns the address where a person signs in.
func (p *Provider) Begin(ctx context.Context, callback, state, nonce, verifier string) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return p.config(found, callback).AuthCodeURL(state, oidc.Nonce(nonce),
		oauth2.S256ChallengeOption(verifier)), nil
}

// algorithms are the signatures that count. The provider's document may not widen them: "none" is
// no signature, and with those of shared secrets the secret's holder could sign.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// Finish exchanges the code for a token, and checks it. email is "" unless the provider has verified
// it.
func (p *Provider) Finish(ctx context.Context, callback, code, nonce, verifier string) (issuer, subject, email string, groups []string, err error) {
	fail := func(err error) (string, string, string, []string, error) { return "", "", "", nil, err }
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := p.discover(ctx)
	if err != nil {
		return fail(err)
	}
	ctx = oidc.ClientContext(ctx, p.opts.Client)
	token, err := p.config(found, callback).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return fail(err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return fail(errors.New("the answer has no ID token"))
	}
	id, err := found.Verifier(&oidc.Config{ClientID: p.opts.ClientID,
		SupportedSigningAlgs: algorithms}).Verify(ctx, raw)
	if err != nil {
		return fail(err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 || nonce == "" {
		return fail(errors.New("the token has the nonce of another sign-in"))
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return fail(err)
	}
	if azp, has := claims["azp"]; has && len(id.Audience) > 1 && azp != p.opts.ClientID {
		return fail(fmt.Errorf("the token was made for %v", azp))
	}
	if id.Subject == "" {
		return fail(errors.New("the token names no subject"))
	}
	if verified, _ := claims["email_verified"].(bool); verified {
		email, _ = claims["email"].(string)
	}
	return id.Issuer, id.Subject, email, p.groups(claims), nil
}

// groups returns the person's groups.
func (p *Provider) groups(claims map[string]any) []string {
	var out []string
	switch v := claims[p.opts.GroupsClaim].(type) {
	case string:
		out = []string{v}
	case []any:
		for _, g := range v[:min(len(v), maxGroups)] {
			if name, ok := g.(string); ok {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}
