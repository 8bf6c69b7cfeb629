package access

import (
	"context"
	"errors"
	"iter"

	"github.com/carrel-dev/carrel"
)

// Trail is the audit trail of all projects. Package trail has one.
type Trail interface {
	Records(ctx context.Context, opts carrel.TrailOptions) iter.Seq2[carrel.TrailRecord, error]
}

// Trails is the audit trail as each caller sees it: an administrator of the machine sees all of it,
// an owner the records of the own project. Nobody else sees any, because it tells what colleagues
// did.
type Trails struct {
	*Service
	Of Trail
	// Verify checks the trail.
	Verify func(ctx context.Context) (carrel.TrailReport, error)
}

var _ carrel.Trails = Trails{}

// Trail implements carrel.Trails.
func (s Trails) Trail(ctx context.Context, opts carrel.TrailOptions) iter.Seq2[carrel.TrailRecord, error] {
	const op = "read audit trail"
	c, ctx, err := s.caller(ctx, op)
	switch {
	case err != nil:
		return failed[carrel.TrailRecord](err)
	case c.Role == carrel.RoleAdmin:
	case c.Role == carrel.RoleOwner:
		if opts.Project != "" && opts.Project != c.Project {
			return failed[carrel.TrailRecord](&carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "project",
				Err: errors.New("this key is not for that project")})
		}
		opts.Project = c.Project
	default:
		return failed[carrel.TrailRecord](&carrel.Error{Op: op, Kind: carrel.Forbidden,
			Err: errors.New("only a key with the scope admin may do this")})
	}
	return s.Of.Records(ctx, opts)
}

// VerifyTrail implements carrel.Trails.
func (s Trails) VerifyTrail(ctx context.Context) (carrel.TrailReport, error) {
	ctx, err := s.admin(ctx, "verify audit trail")
	if err != nil {
		return carrel.TrailReport{}, err
	}
	return s.Verify(ctx)
}
