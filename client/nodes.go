package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/carrel-dev/carrel"
)

// Nodes are the nodes of a fleet, at one of its fronts. The key must be an administrator's.
type Nodes struct{ c *Client }

var _ carrel.Nodes = Nodes{}

// Nodes returns the nodes of the fleet whose front this is.
func (p machineCalls) Nodes() Nodes { return Nodes(p) }

// Nodes implements carrel.Nodes.
func (n Nodes) Nodes(ctx context.Context) ([]carrel.Node, error) {
	var out struct {
		Nodes []carrel.Node `json:"nodes"`
	}
	err := n.c.call(ctx, "list nodes", http.MethodGet, "/nodes", nil, nil, &out)
	return out.Nodes, err
}

// DrainNode implements carrel.Nodes.
func (n Nodes) DrainNode(ctx context.Context, name string) (out carrel.Drained, err error) {
	err = n.c.call(ctx, "drain node", http.MethodPost, "/nodes/"+url.PathEscape(name)+"/drain", nil, nil, &out)
	return out, err
}

// UndrainNode implements carrel.Nodes.
func (n Nodes) UndrainNode(ctx context.Context, name string) error {
	return n.c.call(ctx, "undrain node", http.MethodDelete, "/nodes/"+url.PathEscape(name)+"/drain", nil, nil, nil)
}

// RemoveNode implements carrel.Nodes.
func (n Nodes) RemoveNode(ctx context.Context, name string, force bool) error {
	q := url.Values{}
	if force {
		q.Set("force", strconv.FormatBool(force))
	}
	return n.c.call(ctx, "remove node", http.MethodDelete, "/nodes/"+url.PathEscape(name), q, nil, nil)
}
