package access

import (
	"context"
	"iter"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// secrets returns the secrets of the caller's project. This holds for an administrator too: nobody
// lists another project's secrets.
func (s *Service) secrets(ctx context.Context, op string) (carrel.Secrets, context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return nil, ctx, err
	}
	return s.opts.Secrets(c.Project), ctx, nil
}

// CreateSecret implements carrel.Secrets.
func (s *Service) CreateSecret(ctx context.Context, n carrel.NewSecret) (carrel.Secret, error) {
	own, ctx, err := s.secrets(ctx, "create secret")
	if err != nil {
		return carrel.Secret{}, err
	}
	request.Touch(ctx, n.Name)
	return own.CreateSecret(ctx, n)
}

// UpdateSecret implements carrel.Secrets.
func (s *Service) UpdateSecret(ctx context.Context, ref, value string, metadata map[string]string) (carrel.Secret, error) {
	own, ctx, err := s.secrets(ctx, "update secret")
	if err != nil {
		return carrel.Secret{}, err
	}
	return own.UpdateSecret(ctx, ref, value, metadata)
}

// GetSecret implements carrel.Secrets.
func (s *Service) GetSecret(ctx context.Context, ref string) (carrel.Secret, error) {
	own, ctx, err := s.secrets(ctx, "get secret")
	if err != nil {
		return carrel.Secret{}, err
	}
	return own.GetSecret(ctx, ref)
}

// ListSecrets implements carrel.Secrets.
func (s *Service) ListSecrets(ctx context.Context) ([]carrel.Secret, error) {
	own, ctx, err := s.secrets(ctx, "list secrets")
	if err != nil {
		return nil, err
	}
	return own.ListSecrets(ctx)
}

// DeleteSecret implements carrel.Secrets.
func (s *Service) DeleteSecret(ctx context.Context, ref string) error {
	own, ctx, err := s.secrets(ctx, "delete secret")
	if err != nil {
		return err
	}
	return own.DeleteSecret(ctx, ref)
}

// Audit implements carrel.Audits.
func (s *Service) Audit(ctx context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	c, ctx, err := s.user(ctx, "read audit log")
	if err != nil {
		return failed[carrel.Decision](err)
	}
	if c.Role != carrel.RoleAdmin {
		opts.Project = c.Project
	}
	return s.opts.Audits.Audit(ctx, opts)
}

// Provide implements carrel.Programs.
func (s *Service) Provide(ctx context.Context, id carrel.ID, programs ...carrel.Program) (func(), error) {
	ctx, err := s.sandbox(ctx, "provide programs", id)
	if err != nil {
		return nil, err
	}
	return s.opts.Core.Provide(ctx, id, programs...)
}

// Pool implements carrel.Pools. It is for administrators, because the ready sandboxes show what
// other projects make.
func (s *Service) Pool(ctx context.Context) (carrel.PoolStatus, error) {
	const op = "look at the pool"
	ctx, err := s.admin(ctx, op)
	if err != nil {
		return carrel.PoolStatus{}, err
	}
	return s.opts.Core.Pool(ctx)
}

// Unclaimed implements carrel.Checks.
func (s *Service) Unclaimed(ctx context.Context) ([]carrel.Unclaimed, error) {
	ctx, err := s.admin(ctx, "list unclaimed things")
	if err != nil {
		return nil, err
	}
	return s.opts.Core.Unclaimed(ctx)
}

// Reclaim implements carrel.Checks.
func (s *Service) Reclaim(ctx context.Context, id string) error {
	ctx, err := s.admin(ctx, "reclaim")
	if err != nil {
		return err
	}
	return s.opts.Core.Reclaim(ctx, id)
}

// Discard implements carrel.Checks.
func (s *Service) Discard(ctx context.Context, id string) error {
	ctx, err := s.admin(ctx, "discard")
	if err != nil {
		return err
	}
	return s.opts.Core.Discard(ctx, id)
}

// admin returns the context of an administrator's call.
func (s *Service) admin(ctx context.Context, op string) (context.Context, error) {
	_, ctx, err := s.user(ctx, op)
	if err == nil {
		err = carrel.RequireAdmin(ctx, op)
	}
	return ctx, err
}

// Traces implements carrel.Tracer.
func (s *Service) Traces(ctx context.Context, id carrel.ID) ([]carrel.Trace, error) {
	ctx, err := s.past(ctx, "read traces", id)
	if err != nil {
		return nil, err
	}
	if s.opts.Traces == nil {
		return carrel.NoTracer{}.Traces(ctx, id)
	}
	traces := s.opts.Traces(id)
	if len(traces) == 0 { // a failure is asked about even after the sandbox has gone
		_, err = s.opts.Core.Get(ctx, id)
	}
	return traces, err
}

// keyProject is the project of a caller's SSH keys. An administrator's keys are of no project, and
// open the sandboxes of all.
func keyProject(c carrel.Caller) string {
	if c.Role == carrel.RoleAdmin {
		return ""
	}
	return c.Project
}

// SSHKeys implements carrel.SSHAccess.
func (s *Service) SSHKeys(ctx context.Context) ([]carrel.SSHKey, error) {
	c, ctx, err := s.user(ctx, "list SSH keys")
	if err != nil {
		return nil, err
	}
	if s.opts.SSHKeys == nil {
		return carrel.NoSSHAccess{}.SSHKeys(ctx)
	}
	own := []carrel.SSHKey{}
	for _, k := range s.opts.SSHKeys.List() {
		if c.Sees(k.Project) {
			own = append(own, k)
		}
	}
	return own, nil
}

// AddSSHKey implements carrel.SSHAccess.
func (s *Service) AddSSHKey(ctx context.Context, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error) {
	c, ctx, err := s.user(ctx, "add SSH key")
	if err != nil {
		return carrel.SSHKey{}, err
	}
	if s.opts.SSHKeys == nil {
		return carrel.NoSSHAccess{}.AddSSHKey(ctx, name, publicKey, sandboxes)
	}
	request.Touch(ctx, name)
	return s.opts.SSHKeys.Add(keyProject(c), name, publicKey, sandboxes)
}

// RemoveSSHKey implements carrel.SSHAccess.
func (s *Service) RemoveSSHKey(ctx context.Context, name string) error {
	c, ctx, err := s.user(ctx, "remove SSH key")
	if err != nil {
		return err
	}
	if s.opts.SSHKeys == nil {
		return carrel.NoSSHAccess{}.RemoveSSHKey(ctx, name)
	}
	return s.opts.SSHKeys.Remove(keyProject(c), name)
}
