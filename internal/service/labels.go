package service

import (
	"context"
	"maps"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// labels changes the labels of sandboxes.
type labels struct{ li *lifecycle }

// SetMetadata implements carrel.Sandboxes. The ledger of use reads labels from the record that is
// written, so that it counts under the new ones from now on.
func (la labels) SetMetadata(ctx context.Context, id carrel.ID, c carrel.MetadataChange) (carrel.Sandbox, error) {
	const op = "set metadata"
	if err := checkMetadata(op, c.Set); err != nil { // also before the sandbox is looked for
		return carrel.Sandbox{}, err
	}
	b, err := la.li.table.find(op, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	change := func(r *state.Record) error {
		all := maps.Clone(r.Sandbox.Metadata)
		if all == nil {
			all = map[string]string{}
		}
		for _, k := range c.Remove {
			delete(all, k)
		}
		maps.Copy(all, c.Set)
		if err := checkMetadata(op, all); err != nil {
			return err
		}
		r.Sandbox.Metadata = all
		return nil
	}
	sb, err := la.li.settled(ctx, op, b, change, func() (carrel.Sandbox, error) {
		return la.li.records.updateRules(ctx, op, b, nil, change)
	})
	if err == nil {
		la.li.journal.tell(updatedEvent(sb, "has other labels", "metadata"))
	}
	return sb, err
}
