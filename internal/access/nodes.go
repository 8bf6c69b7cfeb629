package access

import (
	"context"
	"errors"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Nodes are a fleet's nodes, for administrators only.
type Nodes struct {
	*Service
	Core carrel.Nodes
}

var _ carrel.Nodes = Nodes{}

// admin checks that the caller is an administrator.
func (n Nodes) admin(ctx context.Context, op string) (context.Context, error) {
	c, ctx, err := n.user(ctx, op)
	if err == nil && c.Role != carrel.RoleAdmin {
		err = &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: errors.New("nodes are for administrators")}
	}
	return ctx, err
}

// Nodes implements carrel.Nodes.
func (n Nodes) Nodes(ctx context.Context) ([]carrel.Node, error) {
	ctx, err := n.admin(ctx, "list nodes")
	if err != nil {
		return nil, err
	}
	return n.Core.Nodes(ctx)
}

// DrainNode implements carrel.Nodes.
func (n Nodes) DrainNode(ctx context.Context, name string) (carrel.Drained, error) {
	ctx, err := n.admin(ctx, "drain node")
	if err != nil {
		return carrel.Drained{}, err
	}
	request.Touch(ctx, name)
	return n.Core.DrainNode(ctx, name)
}

// UndrainNode implements carrel.Nodes.
func (n Nodes) UndrainNode(ctx context.Context, name string) error {
	ctx, err := n.admin(ctx, "undrain node")
	if err != nil {
		return err
	}
	request.Touch(ctx, name)
	return n.Core.UndrainNode(ctx, name)
}

// RemoveNode implements carrel.Nodes.
func (n Nodes) RemoveNode(ctx context.Context, name string, force bool) error {
	ctx, err := n.admin(ctx, "remove node")
	if err != nil {
		return err
	}
	request.Touch(ctx, name)
	return n.Core.RemoveNode(ctx, name, force)
}
