package client

import (
	"context"
	"net/http"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Pools = (*Client)(nil)

// Pool implements carrel.Pools.
func (c *Client) Pool(ctx context.Context) (carrel.PoolStatus, error) {
	var st carrel.PoolStatus
	err := c.call(ctx, "look at the pool", http.MethodGet, "/pool", nil, nil, &st)
	return st, err
}
