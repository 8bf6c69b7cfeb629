package client

import (
	"context"
	"net/http"

	"github.com/carrel-dev/carrel"
)

// labelCalls are a Client's calls about labels of sandboxes.
type labelCalls struct{ c *Client }

// SetMetadata implements carrel.Sandboxes.
func (p labelCalls) SetMetadata(ctx context.Context, id carrel.ID, m carrel.MetadataChange) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := p.c.change(ctx, "set metadata", http.MethodPatch, id, "/metadata", m, &sb)
	return sb, err
}
