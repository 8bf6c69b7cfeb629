package access

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Nodes are a fleet's nodes, for administrators only.
type Nodes struct {
	*Service
	Core carrel.Nodes
}

var _ carrel.Nodes = Nodes{}

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
