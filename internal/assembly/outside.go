package assembly

import (
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/wire"
)

const (
	// auditFiles is how many files the audit log has at most.
	auditFiles = 10
	// leastAuditFile is the least that the configuration can make of one, in bytes.
	leastAuditFile = 1 << 20
)

// wireAuthority is the common name of the certificate that opens TLS on the wire.
const wireAuthority = "Carrel wire"

// openWire makes what all sandboxes' links end in. The service that it asks for
// credentials is made later.
func (a *Assembly) openWire() (err error) {
	if a.passing() {
		a.authority, err = pki.New(wireAuthority) // its key is never written
	} else {
		a.authority, err = pki.LoadOrCreate(filepath.Join(a.dir, "wire"), wireAuthority)
	}
	if err != nil {
		return &carrel.Error{Op: "open the wire's authority", Kind: carrel.Internal, Err: err}
	}
	bounds := audit.Options{Logger: a.log}
	if !a.passing() {
		bounds.MaxFile, bounds.MaxFiles = max(a.cfg.Wire.AuditSize/auditFiles, leastAuditFile), auditFiles
	}
	if a.audit, err = audit.Open(filepath.Join(a.dir, "audit"), bounds); err != nil {
		return err
	}
	a.closing(a.audit.Close)
	opts := wire.Options{
		Local: a.door.ServeConn, Authority: a.authority, Credentials: &a.late, Refused: a.late.Refused, Egress: a.late.Egress, Audit: a.late.Owned(a.audit.Write),
		HostService: a.hostService(),
	}
	if a.cfg.Wire.Table != "" {
		t, err := wire.LoadTable(a.cfg.Wire.Table)
		if err != nil {
			return err
		}
		opts.Resolver, opts.Dialer, opts.Roots = t, t, t.Roots
	}
	a.wire = wire.New(opts)
	a.closing(a.wire.Close)
	return nil
}

// networks is what takes sandboxes' network rules; nil where the drivers given
// have no wire of ours.
func (a *Assembly) networks() service.Networks {
	if a.wire == nil {
		return nil
	}
	return a.wire
}

// authorityPEM is the certificate that sandboxes trust; "" where there is no wire.
func (a *Assembly) authorityPEM() string {
	if a.authority == nil {
		return ""
	}
	return string(a.authority.CertPEM())
}

// audits is the audit log; nil where there is no wire.
func (a *Assembly) audits() carrel.Audits {
	if a.audit == nil {
		return nil
	}
	return a.audit
}

// Credentials is what the wire asks for: the secrets and tokens that the policies of sandboxes name.
func (a *Assembly) Credentials() *service.Late { return &a.late }
