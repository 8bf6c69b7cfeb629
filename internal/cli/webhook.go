package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/spf13/cobra"
)

// webhookCommands are the commands about webhooks.
type webhookCommands struct{ *app }

// webhookCommand is "carrel webhook".
func (a webhookCommands) webhookCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "webhook",
		Short: "Who is told what happens to the project's sandboxes",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.createWebhook(), a.listWebhooks(), a.updateWebhook(), a.removeWebhook(), a.deliveries(), a.replay())
	return c
}

// withWebhooks runs fn with the daemon's webhooks.
func (a webhookCommands) withWebhooks(ctx context.Context, fn func(carrel.Webhooks) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		switch s := svc.(type) {
		case *client.Client:
			return fn(s.Webhooks())
		case carrel.Webhooks:
			return fn(s)
		}
		return fn(carrel.NoWebhooks{})
	})
}

// fullTypes completes the short names of events, such as created.
func fullTypes(names []string) []string {
	out := []string{}
	for _, n := range names {
		if !strings.Contains(n, ".") {
			n = "sandbox.lifecycle." + n
		}
		out = append(out, n)
	}
	return out
}

const eventHelp = "event to send: created, updated, killed, paused, resumed, checkpointed, connection.held or connection.answered (repeat)"

func (a webhookCommands) createWebhook() *cobra.Command {
	var n carrel.NewWebhook
	var events []string
	var disabled bool
	var secretFile string
	c := &cobra.Command{
		Use: "create NAME URL", Short: "Send each event to a URL from now on, at least once", Args: cobra.ExactArgs(2),
		Long: `Sends each event to a URL from now on, at least once, and the events of one sandbox in
order. A secret signs them; without --secret-file one is made, and shown only now.`,
		RunE: func(c *cobra.Command, args []string) error {
			n.Name, n.URL, n.Events = args[0], args[1], fullTypes(events)
			if len(n.Events) == 0 {
				n.Events = carrel.LifecycleTypes()
			}
			enabled := !disabled
			n.Enabled = &enabled
			if secretFile != "" {
				var err error
				if n.Secret, err = sshCommands(a).readKey(secretFile); err != nil {
					return err
				}
			}
			return a.withWebhooks(c.Context(), func(w carrel.Webhooks) error {
				made, err := w.CreateWebhook(c.Context(), n)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(made)
				}
				if made.Secret != "" {
					fmt.Fprintf(a.err, "signatureSecret: %s\n", made.Secret)
				}
				_, err = fmt.Fprintln(a.out, made.ID)
				return err
			})
		},
	}
	c.Flags().StringSliceVar(&events, "event", nil, eventHelp+"; default: all")
	c.Flags().BoolVar(&disabled, "disabled", false, "send nothing yet")
	c.Flags().StringVar(&secretFile, "secret-file", "", "file with the secret that signs; - is standard input")
	return c
}

func (a webhookCommands) listWebhooks() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the project's webhooks", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withWebhooks(c.Context(), func(w carrel.Webhooks) error {
				all, err := w.ListWebhooks(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(all)
				}
				rows := [][]string{}
				for _, k := range all {
					state := "enabled"
					if !k.Enabled {
						state = "disabled"
					}
					events := "all"
					if len(k.Events) < len(carrel.LifecycleTypes()) {
						events = strings.ReplaceAll(strings.Join(k.Events, ","), "sandbox.lifecycle.", "")
					}
					rows = append(rows, []string{k.ID, k.Name, state, events, k.URL})
				}
				return a.table([]string{"ID", "NAME", "STATE", "EVENTS", "URL"}, rows)
			})
		},
	}
}

func (a webhookCommands) updateWebhook() *cobra.Command {
	var name, url string
	var events []string
	var enabled bool
	c := &cobra.Command{
		Use: "update HOOK", Short: "Change a webhook", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var u carrel.WebhookUpdate
			if c.Flags().Changed("name") {
				u.Name = &name
			}
			if c.Flags().Changed("url") {
				u.URL = &url
			}
			if c.Flags().Changed("event") {
				full := fullTypes(events)
				u.Events = &full
			}
			if c.Flags().Changed("enabled") {
				u.Enabled = &enabled
			}
			return a.withWebhooks(c.Context(), func(w carrel.Webhooks) error {
				k, err := w.UpdateWebhook(c.Context(), args[0], u)
				if err != nil || !a.json {
					return err
				}
				return a.printJSON(k)
			})
		},
	}
	c.Flags().StringVar(&name, "name", "", "new name")
	c.Flags().StringVar(&url, "url", "", "new URL")
	c.Flags().StringSliceVar(&events, "event", nil, eventHelp)
	c.Flags().BoolVar(&enabled, "enabled", true, "--enabled=false sends nothing more and drops what waits")
	return c
}

func (a webhookCommands) removeWebhook() *cobra.Command {
	return &cobra.Command{
		Use: "rm HOOK…", Aliases: []string{"remove"}, Short: "Remove webhooks; nothing more is sent", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withWebhooks(c.Context(), func(w carrel.Webhooks) error {
				for _, id := range args {
					if err := w.DeleteWebhook(c.Context(), id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (a webhookCommands) deliveries() *cobra.Command {
	var opts carrel.DeliveryOptions
	c := &cobra.Command{
		Use: "deliveries HOOK", Short: "List what waits, what was given up and what was delivered lately", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withWebhooks(c.Context(), func(w carrel.Webhooks) error {
				all, err := w.Deliveries(c.Context(), args[0], opts)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(all)
				}
				rows := [][]string{}
				for _, d := range all {
					next := ""
					if !d.Next.IsZero() {
						next = d.Next.Local().Format(time.DateTime)
					}
					rows = append(rows, []string{d.Event, strings.TrimPrefix(d.Type, "sandbox.lifecycle."), string(d.SandboxID),
						d.Time.Local().Format(time.DateTime), d.State, fmt.Sprint(d.Attempts), next, d.Error})
				}
				return a.table([]string{"EVENT", "TYPE", "SANDBOX", "TIME", "STATE", "ATTEMPTS", "NEXT", "ERROR"}, rows)
			})
		},
	}
	c.Flags().StringVar(&opts.State, "state", "", "only those in a state: pending, delivered or dead")
	c.Flags().IntVarP(&opts.Limit, "limit", "n", 0, "how many, at most 1000 (default 100)")
	return c
}

func (a webhookCommands) replay() *cobra.Command {
	var dead bool
	var since time.Duration
	c := &cobra.Command{
		Use: "replay HOOK [EVENT…]", Short: "Send events again: those named, all dead ones, or all of a time", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			opts := carrel.ReplayOptions{Events: slices.Clone(args[1:]), Dead: dead}
			if since < 0 {
				return usage(errors.New("--since: give a time such as 1h"))
			}
			if since > 0 {
				opts.Since = time.Now().Add(-since)
			}
			return a.withWebhooks(c.Context(), func(w carrel.Webhooks) error {
				n, err := w.Replay(c.Context(), args[0], opts)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(n)
				}
				_, err = fmt.Fprintln(a.out, n.Events)
				return err
			})
		},
	}
	c.Flags().BoolVar(&dead, "dead", false, "all that were given up")
	c.Flags().DurationVar(&since, "since", 0, "all events of the last while, such as 1h")
	return c
}
