package cli

import (
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// startFlags are the flags for a template's start, and for who may use it.
type startFlags struct {
	start, ready string
	public       bool
}

func (f *startFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.start, "start", "", "shell command that sandboxes start with, in place of the image's own (\"\": none)")
	c.Flags().StringVar(&f.ready, "ready", "", "shell command that succeeds when that is up: it is then started once, and each sandbox goes on from there")
	c.Flags().BoolVar(&f.public, "public", false, "let every project make sandboxes of it (administrators; --public=false: no more)")
}

// update returns the changes that the given flags ask for; ok is false if there are none.
func (f *startFlags) update(c *cobra.Command) (u carrel.TemplateUpdate, ok bool) {
	if c.Flags().Changed("start") {
		args := []string{}
		if f.start != "" {
			args = []string{"/bin/sh", "-c", f.start}
		}
		u.Start = &args
	}
	if c.Flags().Changed("ready") {
		u.Ready = &f.ready
	}
	if c.Flags().Changed("public") {
		u.Public = &f.public
	}
	return u, u != (carrel.TemplateUpdate{})
}

// apply changes a new template.
func (f *startFlags) apply(c *cobra.Command, svc carrel.Service, t carrel.Template, err error) (carrel.Template, error) {
	u, ok := f.update(c)
	if err != nil || !ok {
		return t, err
	}
	out, err := svc.UpdateTemplate(c.Context(), t.ID, u)
	if err != nil {
		return t, fmt.Errorf("template %s was made, but not how it starts: %w", t.Name, err)
	}
	return out, nil
}

// templateStartCommand is "carrel template start".
func (a templateCommands) templateStartCommand() *cobra.Command {
	var how startFlags
	c := &cobra.Command{
		Use:   "start NAME [--start COMMAND] [--ready COMMAND] [--public]",
		Short: "Change how a template starts, and who may use it",
		Long: `Changes the command that sandboxes of a template start with. With --ready too, the template is
started once, in the background; when the ready command succeeds, that moment is kept, and
each sandbox goes on from it with the command's server up. Until then, and where that fails,
sandboxes start the command themselves. See carrel template inspect.`,
		Example: `  carrel template start py --start "python3 -m http.server 8000" --ready "curl -sf localhost:8000"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			u, ok := how.update(c)
			if !ok {
				return usage(errors.New("nothing to change: give --start, --ready or --public"))
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				t, err := svc.UpdateTemplate(c.Context(), args[0], u)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(t)
				}
				fmt.Fprintln(a.out, t.Name)
				return nil
			})
		},
	}
	how.add(c)
	return c
}
