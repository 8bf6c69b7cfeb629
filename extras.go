package carrel

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Extras are the parts of a [Service] besides sandboxes, their moments and templates. A part that a
// service does not have returns an error of kind [Unsupported].
type Extras interface {
	Secrets
	Audits
	Programs
	Pools
	Tracer
	SSHAccess
	Checks
	Builder
	Catalog
	Registries
	Metering
}

// NoExtras has none of [Extras]. An implementation of [Service] embeds it, or one of the types that
// it is made of, for each part that it does not have.
type NoExtras struct {
	NoSecrets
	NoAudits
	NoPrograms
	NoPools
	NoTracer
	NoSSHAccess
	NoChecks
	NoBuilder
	NoCatalog
	NoRegistries
	NoMetering
}

var _ Extras = NoExtras{}

// lacking returns the error of a service that does not have a part.
func lacking(op, what string) error {
	return &Error{Op: op, Kind: Unsupported, Err: errors.New("this service has no " + what)}
}

// NoSecrets is a [Secrets] for services that keep none.
type NoSecrets struct{}

const noSecrets = "store of secrets"

// CreateSecret implements Secrets.
func (NoSecrets) CreateSecret(context.Context, NewSecret) (Secret, error) {
	return Secret{}, lacking("create secret", noSecrets)
}

// UpdateSecret implements Secrets.
func (NoSecrets) UpdateSecret(context.Context, string, string, map[string]string) (Secret, error) {
	return Secret{}, lacking("update secret", noSecrets)
}

// GetSecret implements Secrets.
func (NoSecrets) GetSecret(context.Context, string) (Secret, error) {
	return Secret{}, lacking("get secret", noSecrets)
}

// ListSecrets implements Secrets.
func (NoSecrets) ListSecrets(context.Context) ([]Secret, error) {
	return nil, lacking("list secrets", noSecrets)
}

// DeleteSecret implements Secrets.
func (NoSecrets) DeleteSecret(context.Context, string) error {
	return lacking("delete secret", noSecrets)
}

// NoAudits is an [Audits] for services that keep no audit log.
type NoAudits struct{}

// Audit implements Audits.
func (NoAudits) Audit(context.Context, AuditOptions) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) {
		yield(Decision{}, lacking("read audit log", "audit log"))
	}
}

// NoPrograms is a [Programs] that puts no programs into sandboxes.
type NoPrograms struct{}

// Provide implements Programs.
func (NoPrograms) Provide(context.Context, ID, ...Program) (func(), error) {
	return nil, lacking("provide programs", "programs of its callers")
}

// NoPools is a [Pools] for services that keep no sandboxes ready.
type NoPools struct{}

// Pool implements Pools.
func (NoPools) Pool(context.Context) (PoolStatus, error) {
	return PoolStatus{}, lacking("look at the pool", "pool of sandboxes that are kept ready")
}

// NoTracer measures nothing.
type NoTracer struct{}

// Traces implements Tracer.
func (NoTracer) Traces(context.Context, ID) ([]Trace, error) {
	return nil, lacking("read traces", "traces")
}

// NoSSHAccess is an [SSHAccess] that lets nobody in.
type NoSSHAccess struct{}

const noSSH = "SSH keys"

// SSHKeys implements SSHAccess.
func (NoSSHAccess) SSHKeys(context.Context) ([]SSHKey, error) {
	return nil, lacking("list SSH keys", noSSH)
}

// AddSSHKey implements SSHAccess.
func (NoSSHAccess) AddSSHKey(context.Context, string, string, []ID) (SSHKey, error) {
	return SSHKey{}, lacking("add SSH key", noSSH)
}

// RemoveSSHKey implements SSHAccess.
func (NoSSHAccess) RemoveSSHKey(context.Context, string) error {
	return lacking("remove SSH key", noSSH)
}

// RequireAdmin returns an Error of kind Forbidden unless the caller in the context is an
// administrator. If the context has no caller, the error is Unauthenticated.
func RequireAdmin(ctx context.Context, op string) error {
	c, known := CallerIn(ctx)
	switch {
	case !known:
		return &Error{Op: op, Kind: Unauthenticated, Err: errors.New("nobody is known to ask")}
	case c.Role == RoleAdmin:
		return nil
	}
	return &Error{Op: op, Kind: Forbidden, Err: fmt.Errorf("a caller with the role %s may not do this", c.Role),
		Hint: "ask with the daemon's own API key, and without the header Carrel-Tenant"}
}
