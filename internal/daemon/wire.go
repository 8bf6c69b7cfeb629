package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/identity"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/vault"
	"github.com/carrel-dev/carrel/internal/wire"
)

// auditFiles is how many files the audit log has at most.
const auditFiles = 10

// wireAuthority is the common name of the certificate that opens TLS on the wire.
const wireAuthority = "Carrel wire"

// openWire makes what all sandboxes' links end in. The service that it asks for
// credentials is made later.
func (p *parts) openWire(cfg config.Config, log *slog.Logger) error {
	ca, err := pki.LoadOrCreate(filepath.Join(cfg.DataDir, "wire"), wireAuthority)
	if err != nil {
		return &carrel.Error{Op: "open the wire's authority", Kind: carrel.Internal, Err: err}
	}
	p.authority = ca
	if p.audit, err = audit.Open(filepath.Join(cfg.DataDir, "audit"), audit.Options{
		MaxFile: max(cfg.Wire.AuditSize/auditFiles, 1<<20), MaxFiles: auditFiles, Logger: log,
	}); err != nil {
		return err
	}
	p.closing(p.audit.Close)
	opts := wire.Options{
		Local: p.door.ServeConn, Authority: ca, Credentials: &p.late, Refused: p.late.Refused, Egress: p.late.Egress, Audit: p.late.Owned(p.audit.Write),
	}
	if cfg.Wire.Table != "" {
		t, err := wire.LoadTable(cfg.Wire.Table)
		if err != nil {
			return err
		}
		opts.Resolver, opts.Dialer, opts.Roots = t, t, t.Roots
	}
	p.wire = wire.New(opts)
	p.closing(p.wire.Close)
	return nil
}

// authorityPEM is the certificate that sandboxes trust; "" where there is no wire.
func (p *parts) authorityPEM() string {
	if p.authority == nil {
		return ""
	}
	return string(p.authority.CertPEM())
}

// audits is the audit log; nil where there is no wire.
func (p *parts) audits() carrel.Audits {
	if p.audit == nil {
		return nil
	}
	return p.audit
}

// openCredentials opens what sandboxes prove themselves and are let in elsewhere with.
func (d *Daemon) openCredentials() (err error) {
	p := d.parts
	if p.vault, err = vault.Open(filepath.Join(d.cfg.DataDir, "secrets"), vault.Options{KeyFile: d.cfg.Wire.SecretKeyFile, Logger: d.log}); err != nil {
		return err
	}
	p.issuer, err = identity.Open(filepath.Join(d.cfg.DataDir, "identity"), identity.Options{
		Issuer: d.issuerURL, Authorize: d.authorize, Alive: d.alive, Logger: d.log,
	})
	if err != nil {
		return err
	}
	p.closing(p.issuer.Close)
	return nil
}

// issuerURL is what identity tokens say that they come from.
func (d *Daemon) issuerURL() string {
	if u := d.cfg.Wire.Issuer; u != "" {
		return strings.TrimSuffix(u, "/")
	}
	return d.url
}

// authorize says which sandboxes' tokens a request may ask about: those that its caller sees.
func (d *Daemon) authorize(r *http.Request) (func(context.Context, carrel.ID) bool, error) {
	c, err := d.callers.Caller(r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, id carrel.ID) bool {
		_, err := d.access.Get(carrel.WithCaller(ctx, c), id)
		return err == nil
	}, nil
}

// alive reports whether there is a sandbox of that ID, whosever it is.
func (d *Daemon) alive(ctx context.Context, id carrel.ID) bool {
	_, err := d.service.Get(ctx, id)
	return err == nil
}

// publish answers what relying parties ask of identity tokens, without a key, and
// leaves the rest to next.
func (p *parts) publish(next http.Handler) http.Handler {
	documents := p.issuer.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case identity.DiscoveryPath, identity.KeysPath, identity.BundlePath, identity.IntrospectPath:
			documents.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// defaultNetwork is for sandboxes that are created without a word on the network;
// nil leaves it to each door.
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
