package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// templateCommands are the commands about templates.
type templateCommands struct{ *app }

// templateCommand is "carrel template …".
func (a templateCommands) templateCommand() *cobra.Command {
	c := &cobra.Command{Use: "template", Short: "Keep templates, the filesystems sandboxes start from", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.templateListCommand(), a.templateBuildCommand(), a.templateImportCommand(),
		a.templatePullCommand(), a.templatePushCommand(), a.templateGetCommand(),
		a.templateInspectCommand(), a.templateStartCommand(), a.templateHistoryCommand(),
		a.templateTagCommand(), a.templateUntagCommand(),
		a.templateTagsCommand(), a.templateDiffCommand(), a.templateSBOMCommand(),
		a.templateCollectCommand(), a.templateRemoveCommand())
	return c
}

func (a templateCommands) templateListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				all, err := svc.ListTemplates(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(all)
				}
				rows, err := a.templateRows(c.Context(), svc, all)
				if err != nil {
					return err
				}
				return a.table([]string{"NAME", "ID", "SIZE", "AGE", "USED BY", "SOURCE"}, rows)
			})
		},
	}
}

func (a templateCommands) templateImportCommand() *cobra.Command {
	var how startFlags
	c := &cobra.Command{
		Use:   "import NAME PATH|-",
		Short: "Make a template from a directory, tarball, OCI layout or docker-save archive",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			archive, err := a.openArchive(args[1])
			if err != nil {
				return err
			}
			defer archive.Close()
			return a.makeTemplate(c, func(svc carrel.Service, progress func(carrel.Progress)) (carrel.Template, error) {
				t, err := svc.ImportTemplate(c.Context(), args[0], archive, progress)
				return how.apply(c, svc, t, err)
			})
		},
	}
	how.add(c)
	return c
}

// openArchive opens the input of import: standard input, a file, or a directory, which is sent as a
// tar stream.
func (a templateCommands) openArchive(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.in), nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, usage(err)
	}
	if info.IsDir() {
		return tarDirectory(path), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usage(err)
	}
	return f, nil
}

func (a templateCommands) templatePullCommand() *cobra.Command {
	var how startFlags
	var login registryLogin
	var platform string
	var lazy bool
	c := &cobra.Command{
		Use:   "pull NAME IMAGE",
		Short: "Make a template from an image in a registry",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.makeTemplate(c, func(svc carrel.Service, progress func(carrel.Progress)) (carrel.Template, error) {
				own, err := login.read(a.app)
				if err != nil {
					return carrel.Template{}, err
				}
				t, err := svc.PullImage(c.Context(), args[0],
					carrel.PullOptions{Image: args[1], Credentials: own, Platform: platform, Lazy: lazy},
					progress)
				if lazy && err == nil {
					fmt.Fprintln(a.err, lazyNote(t))
				}
				return how.apply(c, svc, t, err)
			})
		},
	}
	how.add(c)
	login.add(c)
	c.Flags().StringVar(&platform, "platform", "",
		"this machine's platform, such as linux/amd64; others are refused")
	c.Flags().BoolVar(&lazy, "lazy", false,
		"let sandboxes start before the whole image is here, if its layers are eStargz")
	return c
}

// lazyNote says what came of a lazy pull.
func lazyNote(t carrel.Template) string {
	switch l := t.Lazy; {
	case l == nil:
		return "the image is whole"
	case l.State == carrel.LazyWhole:
		return "pulled whole: " + l.Reason
	case l.Reason != "":
		return fmt.Sprintf("sandboxes can start; %d MB follow; %s", l.Missing>>20, l.Reason)
	default:
		return fmt.Sprintf("sandboxes can start; %d MB follow", l.Missing>>20)
	}
}

func (a templateCommands) templateGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME…",
		Short: "Make built-in templates ahead of their first use",
		Long: "get makes built-in templates from Debian's packages ahead of their first use: debian, python, node, go, rust, java.\n" +
			"It prints each template's digest. host is made from this machine's own tools, and stands in\n" +
			"for base until 'carrel template get base' has made that from Debian's packages.\n\n" +
			"'carrel template get kernel' brings Debian's kernel for the daemon's virtual machines (tier microvm), and prints\n" +
			"the digest of its package. The next sandbox of that tier boots it, without a restart.",
		Example: "  carrel template get python\n  carrel create --template python\n" +
			"  carrel template get kernel\n  carrel create --tier microvm",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range args {
				err := a.getTemplate(c, name)
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// getTemplate makes one built-in template and prints its name and digest.
func (a templateCommands) getTemplate(c *cobra.Command, name string) error {
	return a.withService(c.Context(), func(svc carrel.Service) error {
		bar := newBar(a.err)
		t, err := svc.PullTemplate(c.Context(), name, "", bar.update)
		bar.done()
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(t)
		}
		fmt.Fprintln(a.out, strings.TrimSpace(t.Name+" "+t.Digest))
		return nil
	})
}

// makeTemplate runs a job that makes a template, with progress on stderr.
func (a templateCommands) makeTemplate(c *cobra.Command, job func(carrel.Service, func(carrel.Progress)) (carrel.Template, error)) error {
	return a.withService(c.Context(), func(svc carrel.Service) error {
		bar := newBar(a.err)
		t, err := job(svc, bar.update)
		bar.done()
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(t)
		}
		fmt.Fprintln(a.out, t.Name)
		return nil
	})
}

func (a templateCommands) templateInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect NAME", Aliases: []string{"show"}, Short: "Show one template",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				t, err := svc.GetTemplate(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(t)
				}
				return a.table([]string{"FIELD", "VALUE"}, [][]string{
					{"name", t.Name}, {"id", t.ID}, {"size", bytesText(t.Size)}, {"source", t.Source}, {"digest", t.Digest},
					{"stand-in", t.StandIn}, {"user", first(t.User, "user")}, {"workdir", t.WorkDir},
					{"env", labels(t.Env)},
					{"start", strings.Join(t.Start, " ")}, {"ready", t.Ready}, {"golden", t.Golden},
				})
			})
		},
	}
}

func (a templateCommands) templateRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Remove templates; running sandboxes keep theirs", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				for _, name := range args {
					if err := svc.DeleteTemplate(c.Context(), name); err != nil {
						return err
					}
					if !a.json {
						fmt.Fprintln(a.out, name)
					}
				}
				if a.json {
					return a.printJSON(map[string]any{"removed": args})
				}
				return nil
			})
		},
	}
}
