package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
)

// buildCommands are the commands about builds of templates.
type buildCommands struct{ *app }

// buildCommand is "carrel build …".
func (a buildCommands) buildCommand() *cobra.Command {
	c := &cobra.Command{Use: "build", Short: "Look at builds of templates",
		Long: "Shows and cancels builds of templates. To begin one: carrel template build NAME.",
		Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.listCommand(), a.showCommand(), a.logsCommand(), a.cancelCommand())
	return c
}

func (a buildCommands) listCommand() *cobra.Command {
	var opts carrel.BuildListOptions
	var states []string
	c := &cobra.Command{
		Use: "ls [TEMPLATE]", Aliases: []string{"list"}, Short: "List builds, newest first",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				opts.Template = args[0]
			}
			for _, s := range states {
				opts.States = append(opts.States, carrel.BuildState(s))
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				all, err := svc.ListBuilds(c.Context(), opts)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(all)
				}
				return a.table([]string{"ID", "TEMPLATE", "STATE", "AGE", "TOOK", "STEPS", "SIZE"},
					a.buildRows(all))
			})
		},
	}
	c.Flags().StringArrayVar(&states, "state", nil,
		"only those that are waiting, building, ready, error or cancelled (repeat)")
	c.Flags().IntVar(&opts.Limit, "limit", 0, "how many (default 100)")
	return c
}

// buildRows are builds as a table's rows.
func (a buildCommands) buildRows(all []carrel.Build) [][]string {
	rows := make([][]string, 0, len(all))
	for _, b := range all {
		size := "–"
		if b.Size > 0 {
			size = bytesText(b.Size)
		}
		rows = append(rows, []string{b.ID, first(b.Name, b.TemplateID), string(b.State),
			span(a.now().Sub(b.Created)), a.took(b),
			fmt.Sprint(len(b.Steps)), size})
	}
	return rows
}

// took says how long a build has run, or ran.
func (a buildCommands) took(b carrel.Build) string {
	switch {
	case b.Started.IsZero():
		return "–"
	case b.Ended.IsZero():
		return span(a.now().Sub(b.Started))
	}
	return b.Ended.Sub(b.Started).Round(10 * time.Millisecond).String()
}

func (a buildCommands) showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show BUILD", Short: "Show a build and its steps", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				b, err := svc.GetBuild(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(b)
				}
				fields := [][]string{
					{"id", b.ID}, {"template", b.Name + " " + b.TemplateID}, {"tags", strings.Join(b.Tags, " ")},
					{"state", string(b.State)},
					{"created", b.Created.Format(time.RFC3339)}, {"took", a.took(b)},
				}
				if b.Reason != nil {
					fields = append(fields, []string{"reason", buildFailure(b).Error()},
						[]string{"hint", b.Reason.Hint})
				}
				if err := a.table([]string{"FIELD", "VALUE"}, fields); err != nil || len(b.Steps) == 0 {
					return err
				}
				fmt.Fprintln(a.out)
				return a.table([]string{"#", "LINE", "STATE", "TOOK", "STEP"}, stepRows(b.Steps))
			})
		},
	}
}

// stepRows are a build's steps as a table's rows.
func stepRows(steps []carrel.BuildStep) [][]string {
	rows := make([][]string, 0, len(steps))
	for i, s := range steps {
		state := string(s.State)
		if s.Cached {
			state = "cached"
		}
		text := s.Text
		if s.Stage != "" {
			text = "[" + s.Stage + "] " + text
		}
		line := "–"
		if s.Line > 0 {
			line = fmt.Sprint(s.Line)
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), line, state,
			s.Took.Round(time.Millisecond).String(), text})
	}
	return rows
}

func (a buildCommands) logsCommand() *cobra.Command {
	var opts carrel.BuildLogOptions
	c := &cobra.Command{
		Use: "logs BUILD", Short: "Print a build's log", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				for l, err := range svc.BuildLogs(c.Context(), args[0], opts) {
					if err != nil {
						return err
					}
					if a.json {
						err = a.printJSON(l)
					} else {
						_, err = fmt.Fprintln(a.out, buildLine(l))
					}
					if err != nil {
						return err
					}
				}
				return c.Context().Err()
			})
		},
	}
	c.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "go on until the build has ended")
	c.Flags().StringVar(&opts.MinLevel, "level", "",
		"lowest level: debug, info, warn or error (default debug)")
	c.Flags().IntVar(&opts.Offset, "offset", 0, "lines to pass over")
	c.Flags().IntVar(&opts.Limit, "limit", 0, "how many lines (default: all)")
	return c
}

func (a buildCommands) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel BUILD…", Short: "End builds; nothing of them runs any more when this returns",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				for _, id := range args {
					b, err := svc.CancelBuild(c.Context(), id)
					if err != nil {
						return err
					}
					if a.json {
						err = a.printJSON(b)
					} else {
						_, err = fmt.Fprintln(a.out, b.ID, b.State)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
