package daemon

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/identity"
	"github.com/carrel-dev/carrel/internal/policy"
)

// openIssuer opens the issuer of sandboxes' identity tokens.
func (d *Daemon) openIssuer() (err error) {
	d.issuer, err = identity.Open(filepath.Join(d.cfg.DataDir, "identity"), identity.Options{
		Issuer: d.issuerURL, Authorize: d.authorize, Alive: d.alive, Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.undo.Add(func() { d.closed("close identity", d.issuer.Close()) })
	return nil
}

// issuerURL is the issuer in identity tokens.
func (d *Daemon) issuerURL() string {
	if u := d.cfg.Wire.Issuer; u != "" {
		return strings.TrimSuffix(u, "/")
	}
	return d.url
}

// authorize returns which sandboxes' tokens a request may ask about: those that its caller sees. It
// returns nil without a caller.
func (d *Daemon) authorize(r *http.Request) func(context.Context, carrel.ID) bool {
	c, err := d.callers.Caller(r)
	if err != nil {
		return nil
	}
	return func(ctx context.Context, id carrel.ID) bool {
		_, err := d.parts.Access.Get(carrel.WithCaller(ctx, c), id)
		return err == nil
	}
}

// alive reports whether a sandbox with this ID exists, in any project.
func (d *Daemon) alive(ctx context.Context, id carrel.ID) bool {
	_, err := d.parts.Service.Get(ctx, id)
	return err == nil
}

// publish answers relying parties' requests about identity tokens, without a key, and passes the
// rest to next.
func (d *Daemon) publish(next http.Handler) http.Handler {
	documents := d.issuer.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case identity.DiscoveryPath, identity.KeysPath, identity.BundlePath, identity.IntrospectPath:
			documents.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// defaultNetwork returns the rules for sandboxes that are created without network fields. With nil,
// each door uses its own default.
func defaultNetwork(cfg config.Wire) (*carrel.Network, error) {
	if cfg.Presets != "" {
		if err := policy.AddPresets(cfg.Presets); err != nil {
			return nil, &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: "presets", Err: err, Hint: carrel.HintOf(err)}
		}
	}
	switch cfg.DefaultPolicy {
	case "":
		return nil, nil
	case "deny":
		return &carrel.Network{}, nil
	case "allow":
		return &carrel.Network{Internet: true}, nil
	}
	p, err := policy.Load(cfg.DefaultPolicy)
	if err == nil {
		if err = policy.Check(p); err == nil {
			return &carrel.Network{Policy: &p}, nil
		}
	}
	return nil, &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: "default-policy", Err: err, Hint: carrel.HintOf(err)}
}
