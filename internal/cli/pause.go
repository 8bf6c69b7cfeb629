package cli

import (
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// pauseCommand is "carrel pause".
func (a *app) pauseCommand() *cobra.Command {
	var opts carrel.PauseOptions
	c := &cobra.Command{
		Use:   "pause ID…",
		Short: "Keep the state of sandboxes and give up everything else",
		Long: `Keeps memory, processes and files of sandboxes, and gives up all else: a paused
sandbox costs no process and no memory. carrel resume brings it back.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkIDs(args); err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				paused := []carrel.ID{}
				failed, err := a.forEach(c.Context(), args, func(name string) error {
					sb, err := svc.Pause(c.Context(), carrel.ID(name), opts)
					if err != nil {
						return err
					}
					paused = append(paused, sb.ID)
					return a.printLine(sb.ID)
				})
				return a.printSeveral(err, map[string]any{"paused": paused, "failed": failed})
			})
		},
	}
	c.Flags().BoolVar(&opts.FilesOnly, "files-only", false, "keep the files only: it boots afresh when it is resumed")
	return c
}

// resumeCommand is "carrel resume".
func (a *app) resumeCommand() *cobra.Command {
	var opts carrel.ResumeOptions
	c := &cobra.Command{
		Use:   "resume ID…",
		Short: "Bring paused sandboxes back",
		Long: `Brings paused sandboxes back as they were: same ID, same processes, same memory.
One that runs already goes on, with its timeout extended if --timeout says so.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkIDs(args); err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				resumed, running := []carrel.ID{}, []carrel.ID{}
				failed, err := a.forEach(c.Context(), args, func(name string) error {
					sb, was, err := svc.Resume(c.Context(), carrel.ID(name), opts)
					switch {
					case err != nil:
						return err
					case was:
						resumed = append(resumed, sb.ID)
					default:
						running = append(running, sb.ID)
						fmt.Fprintf(a.err, "carrel: %s was running already\n", sb.ID)
					}
					return a.printLine(sb.ID)
				})
				return a.printSeveral(err, map[string]any{"resumed": resumed, "running": running, "failed": failed})
			})
		},
	}
	c.Flags().DurationVar(&opts.Timeout, "timeout", 0, "life from now on (default: what it last had)")
	c.Flags().BoolVar(&opts.FilesOnly, "files-only", false, "give up memory and processes, and boot it afresh on its files")
	return c
}

// printLine prints one result. With --json it prints nothing, because all results come at the end.
func (a *app) printLine(result any) error {
	if a.json {
		return nil
	}
	_, err := fmt.Fprintln(a.out, result)
	return err
}

// printSeveral prints, with --json, the results for several things, and returns err.
func (a *app) printSeveral(err error, result any) error {
	if a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	}
	return err
}
