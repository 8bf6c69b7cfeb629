package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/spf13/cobra"
)

// storeKeeper is the part of the client for a daemon's snapshot store. It is not in
// [carrel.Service], because only the operator of the daemon needs it.
type storeKeeper interface {
	SnapshotUsage(ctx context.Context) (client.SnapshotUsage, error)
	CollectSnapshots(ctx context.Context) (client.SnapshotsCollected, error)
}

var _ storeKeeper = (*client.Client)(nil)

// withStore runs fn with the connected daemon's snapshot store.
func (a *app) withStore(ctx context.Context, fn func(storeKeeper) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		keeper, ok := svc.(storeKeeper)
		if !ok {
			return &carrel.Error{Op: "ask the snapshot store", Kind: carrel.Unsupported, Err: errors.New("this service has none to ask")}
		}
		return fn(keeper)
	})
}

func (a *app) snapshotUsageCommand() *cobra.Command {
	return &cobra.Command{
		Use: "usage", Short: "Show what all snapshots cost", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withStore(c.Context(), func(store storeKeeper) error {
				u, err := store.SnapshotUsage(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(u)
				}
				quota := "none"
				if u.Quota > 0 {
					quota = bytesText(u.Quota)
				}
				return a.table([]string{"FIELD", "VALUE"}, [][]string{
					{"snapshots", fmt.Sprint(u.Snapshots)}, {"what they hold", bytesText(u.Size)}, {"stored", bytesText(u.Packs)},
					{"uncompressed copies", bytesText(u.Hot)}, {"quota", quota},
				})
			})
		},
	}
}

func (a *app) snapshotGCCommand() *cobra.Command {
	return &cobra.Command{
		Use: "gc", Short: "Free what no snapshot needs any more", Args: cobra.NoArgs,
		Long: "Frees what no snapshot needs any more, and prints how many bytes that was. The\ndaemon does so by itself now and then.",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withStore(c.Context(), func(store storeKeeper) error {
				done, err := store.CollectSnapshots(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(done)
				}
				fmt.Fprintln(a.out, done.Freed)
				fmt.Fprintf(a.err, "carrel: freed %s: %s removed or rewritten, %s\n", bytesText(done.Freed), plural(done.Packs, "pack"),
					plural(done.Drafts, "unfinished snapshot"))
				return nil
			})
		},
	}
}
