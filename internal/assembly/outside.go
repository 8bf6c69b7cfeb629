package assembly

import (
	"cmp"
	"path/filepath"
	"strconv"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/trace"
	"github.com/carrel-dev/carrel/internal/wire"
)

const (
	// auditFiles is the largest number of files of the audit log.
	auditFiles = 10
	// leastAuditFile is the smallest size that the configuration can give to one file, in bytes.
	leastAuditFile = 1 << 20
)

// wireAuthority is the common name of the certificate that opens TLS on the wire.
const wireAuthority = "Carrel wire"

// openWire makes the wire, where all sandboxes' links end. The wire gets credentials from the
// service, which is made later.
func (a *Assembly) openWire() (err error) {
	if a.passing() {
		a.authority, err = pki.New(wireAuthority) // its key is never written
	} else {
		a.authority, err = pki.LoadOrCreate(filepath.Join(a.dir, "wire"), wireAuthority)
	}
	if err != nil {
		return &carrel.Error{Op: "open the wire's authority", Kind: carrel.Internal, Err: err}
	}
	bounds := audit.Options{Logger: a.log, Anchor: a.anchor()}
	if !a.passing() {
		bounds.MaxFile, bounds.MaxFiles = max(a.cfg.Wire.AuditSize/auditFiles, leastAuditFile), auditFiles
	}
	if a.audit, err = audit.Open(a.auditDir(), bounds); err != nil {
		return err
	}
	a.closing(a.audit.Close)
	opts := wire.Options{
		Local: a.door.ServeConn, Authority: a.authority, Credentials: &a.late, Refused: a.late.Refused, Ask: a.late.Ask, Egress: a.late.Egress, Audit: a.late.Owned(a.decided),
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

// decided takes a decision of the wire into the log and, if it is part of a client's trace, into
// that.
func (a *Assembly) decided(d carrel.Decision) {
	a.audit.Write(d)
	if !a.opts.Traces.Joins() {
		return
	}
	fields := map[string]string{"sandbox": string(d.ID), "allowed": strconv.FormatBool(d.Allowed),
		"protocol": d.Protocol, "rule": d.Rule}
	for name, v := range map[string]string{"name": d.Name, "address": d.Address, "method": d.Method} {
		if v != "" {
			fields[name] = v
		}
	}
	if d.Port != 0 {
		fields["port"] = strconv.Itoa(int(d.Port))
	}
	failure := ""
	if !d.Allowed {
		failure = cmp.Or(d.Reason, "refused")
	}
	a.opts.Traces.Happened(d.ID, trace.Egress, d.Time, d.Duration, fields, failure)
}

// networks applies sandboxes' network rules; nil if the drivers were given and have no wire of
// ours.
func (a *Assembly) networks() service.Networks {
	if a.wire == nil {
		return nil
	}
	return a.wire
}

// authorityPEM is the certificate that sandboxes trust; "" without a wire.
func (a *Assembly) authorityPEM() string {
	if a.authority == nil {
		return ""
	}
	return string(a.authority.CertPEM())
}

// audits is the audit log; nil without a wire.
func (a *Assembly) audits() carrel.Audits {
	if a.audit == nil {
		return nil
	}
	return a.audit
}

// Credentials returns the source of the secrets and tokens that the policies of sandboxes name. The
// wire uses it.
func (a *Assembly) Credentials() *service.Late { return &a.late }
