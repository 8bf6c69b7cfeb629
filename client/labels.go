package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// labelCalls are a Client's calls about labels of sandboxes and files of snapshots.
type labelCalls struct{ c *Client }

// SetMetadata implements carrel.Sandboxes.
func (p labelCalls) SetMetadata(ctx context.Context, id carrel.ID, m carrel.MetadataChange) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := p.c.change(ctx, "set metadata", http.MethodPatch, id, "/metadata", m, &sb)
	return sb, err
}

// SnapshotFile implements carrel.Moments.
func (p labelCalls) SnapshotFile(ctx context.Context, id carrel.SnapshotID, name string) (carrel.SnapshotFile, error) {
	const op = "read file of snapshot"
	path, err := snapshotPath(op, string(id), "/file")
	if err != nil {
		return carrel.SnapshotFile{}, err
	}
	var f carrel.SnapshotFile
	err = p.c.call(ctx, op, http.MethodGet, path, url.Values{"path": {name}}, nil, &f)
	return f, err
}
