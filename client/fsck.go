package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Checks = (*Client)(nil)

// Unclaimed implements carrel.Checks.
func (c *Client) Unclaimed(ctx context.Context) ([]carrel.Unclaimed, error) {
	var list []carrel.Unclaimed
	err := c.call(ctx, "list unclaimed things", http.MethodGet, "/unclaimed", nil, nil, &list)
	return list, err
}

// Reclaim implements carrel.Checks.
func (c *Client) Reclaim(ctx context.Context, id string) error {
	return c.call(ctx, "reclaim", http.MethodPost, "/unclaimed/"+url.PathEscape(id)+"/reclaim", nil, nil, nil)
}

// Discard implements carrel.Checks.
func (c *Client) Discard(ctx context.Context, id string) error {
	return c.call(ctx, "discard", http.MethodDelete, "/unclaimed/"+url.PathEscape(id), nil, nil, nil)
}
