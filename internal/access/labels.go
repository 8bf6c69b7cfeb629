package access

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// labels are a Service's calls about labels of sandboxes.
type labels struct{ s *Service }

// SetMetadata implements carrel.Sandboxes.
func (l labels) SetMetadata(ctx context.Context, id carrel.ID, c carrel.MetadataChange) (carrel.Sandbox, error) {
	ctx, err := l.s.sandbox(ctx, "set metadata", id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return l.s.opts.Core.SetMetadata(ctx, id, c)
}

// pastFiles are a Service's calls about files of snapshots.
type pastFiles struct{ s *Service }

// SnapshotFile implements carrel.Moments.
func (p pastFiles) SnapshotFile(ctx context.Context, id carrel.SnapshotID, name string) (carrel.SnapshotFile, error) {
	ctx, sn, err := p.s.snapshot(ctx, "read file of snapshot", string(id))
	if err != nil {
		return carrel.SnapshotFile{}, err
	}
	return p.s.opts.Core.SnapshotFile(ctx, sn.ID, name)
}
