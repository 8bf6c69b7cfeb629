package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/spf13/cobra"
)

// nodeCommands are the commands about the machines of a fleet.
type nodeCommands struct{ *app }

// nodeCommand is "carrel node".
func (a nodeCommands) nodeCommand() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "See, drain and remove the machines of a fleet", Args: cobra.NoArgs,
		Long: "Speaks to a front (carrel front): --url or $CARREL_URL is its address.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	list := &cobra.Command{Use: "ls", Short: "List the nodes", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withNodes(c.Context(), func(n carrel.Nodes) error { return a.list(c.Context(), n) })
		}}
	drain := &cobra.Command{Use: "drain NODE", Short: "Move all sandboxes of a node to others, and keep new ones away", Args: cobra.ExactArgs(1),
		Long: `Moves all sandboxes of a node to other nodes: running ones are paused, with memory, and resumed
there. Requests wait meanwhile. New sandboxes go elsewhere, until "carrel node undrain". What could
not be moved is named and stays where it is; the exit status is then not 0.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withNodes(c.Context(), func(n carrel.Nodes) error { return a.drain(c.Context(), n, args[0]) })
		}}
	undrain := &cobra.Command{Use: "undrain NODE", Short: "Let a node get new sandboxes again", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withNodes(c.Context(), func(n carrel.Nodes) error { return n.UndrainNode(c.Context(), args[0]) })
		}}
	var force bool
	remove := &cobra.Command{Use: "rm NODE", Short: "Forget a node whose daemon has stopped for good", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withNodes(c.Context(), func(n carrel.Nodes) error { return n.RemoveNode(c.Context(), args[0], force) })
		}}
	remove.Flags().BoolVar(&force, "force", false, "give up the sandboxes that nobody could take over")
	c.AddCommand(list, drain, undrain, remove)
	return c
}

// withNodes runs fn with the fleet's nodes.
func (a nodeCommands) withNodes(ctx context.Context, fn func(carrel.Nodes) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		switch s := svc.(type) {
		case *client.Client:
			return fn(s.Nodes())
		case carrel.Nodes:
			return fn(s)
		}
		return fn(carrel.NoNodes{})
	})
}

func (a nodeCommands) list(ctx context.Context, n carrel.Nodes) error {
	list, err := n.Nodes(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{}
	for _, n := range list {
		var tiers []string
		for _, t := range n.Tiers {
			tiers = append(tiers, string(t))
		}
		rows = append(rows, []string{n.Name, string(n.State), strconv.Itoa(n.Running), strconv.Itoa(n.Paused), strconv.Itoa(n.Lost),
			freeOf(n), strings.Join(tiers, ","), n.Version, n.URL})
	}
	return a.table([]string{"NODE", "STATE", "RUNNING", "PAUSED", "LOST", "FREE", "TIERS", "VERSION", "URL"}, rows)
}

// freeOf is the free part of a node's memory.
func freeOf(n carrel.Node) string {
	if n.MemoryTotal == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", n.Memory*100/n.MemoryTotal)
}

func (a nodeCommands) drain(ctx context.Context, n carrel.Nodes, name string) error {
	got, err := n.DrainNode(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(got); err != nil {
			return err
		}
	} else {
		for _, id := range got.Moved {
			if err := a.printLine(id); err != nil {
				return err
			}
		}
	}
	if len(got.Failed) == 0 {
		return nil
	}
	for _, f := range got.Failed {
		fmt.Fprintf(a.err, "carrel: sandbox %s stays on node %s: %s\n", f.ID, name, printable(f.Error))
	}
	return &carrel.Error{Op: "drain node", Kind: carrel.Conflict, Field: "node",
		Err: fmt.Errorf("%d of %d sandboxes could not be moved", len(got.Failed), len(got.Failed)+len(got.Moved)), Hint: got.Failed[0].Hint}
}
