package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/catalog"
)

// gcAge is how old the cache of a build must be before gc takes it, unless the caller says another
// age.
const gcAge = 24 * time.Hour

// templateHistoryCommand is "carrel template history".
func (a templateCommands) templateHistoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "history NAME",
		Short: "List a template's builds, newest first, and the tags that point to them",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				builds, err := svc.ListBuilds(c.Context(), carrel.BuildListOptions{Template: args[0]})
				if err != nil {
					return err
				}
				tags, err := svc.TemplateTags(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]any{"builds": builds, "tags": tags})
				}
				now := map[string][]string{}
				for _, t := range tags {
					now[t.BuildID] = append(now[t.BuildID], t.Tag)
				}
				rows := buildCommands(a).buildRows(builds)
				for i, b := range builds {
					rows[i][1] = first(strings.Join(now[b.ID], " "), "–")
				}
				return a.table([]string{"BUILD", "TAGS", "STATE", "AGE", "TOOK", "STEPS", "SIZE"}, rows)
			})
		},
	}
}

// templateTagCommand is "carrel template tag".
func (a templateCommands) templateTagCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "tag NAME[:TAG] TAG…",
		Short:   "Make tags of a template point to its present build, or to that of a tag",
		Args:    cobra.MinimumNArgs(2),
		Example: "  carrel template tag web:v2 stable",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				t, err := svc.TagTemplate(c.Context(), args[0], args[1:])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(t)
				}
				fmt.Fprintln(a.out, t.TemplateID, t.BuildID)
				return nil
			})
		},
	}
}

// templateUntagCommand is "carrel template untag".
func (a templateCommands) templateUntagCommand() *cobra.Command {
	return &cobra.Command{
		Use: "untag NAME TAG…", Short: "Remove tags of a template", Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				if err := svc.UntagTemplate(c.Context(), args[0], args[1:]); err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]any{"removed": args[1:]})
				}
				return nil
			})
		},
	}
}

// templateTagsCommand is "carrel template tags".
func (a templateCommands) templateTagsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tags NAME", Short: "List the tags of a template", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				tags, err := svc.TemplateTags(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(tags)
				}
				rows := make([][]string, 0, len(tags))
				for _, t := range tags {
					rows = append(rows, []string{t.Tag, t.BuildID, span(a.now().Sub(t.Created))})
				}
				return a.table([]string{"TAG", "BUILD", "AGE"}, rows)
			})
		},
	}
}

// templateDiffCommand is "carrel template diff".
func (a templateCommands) templateDiffCommand() *cobra.Command {
	var stat bool
	c := &cobra.Command{
		Use: "diff FROM TO", Short: "List which files differ between two templates",
		Long: `Lists which files differ between two templates, or two tags of one: A added, M modified,
D removed, m only the mode or owner. Times do not count.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				changes, err := svc.TemplateChanges(c.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return a.printDiff(diff{From: carrel.SnapshotID(args[0]), To: carrel.SnapshotID(args[1]),
					Changes: changes}, stat)
			})
		},
	}
	c.Flags().BoolVar(&stat, "stat", false, "print the sums only")
	return c
}

// templateSBOMCommand is "carrel template sbom".
func (a templateCommands) templateSBOMCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "sbom NAME",
		Short:   "List the packages in a template: Debian's and Alpine's, pip's and npm's",
		Example: "  carrel template sbom web --format cyclonedx > web.cdx.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if format != "table" && format != "cyclonedx" {
				return usage(fmt.Errorf("--format %q is neither table nor cyclonedx", format))
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				list, err := svc.TemplatePackages(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printPackages(list, format)
			})
		},
	}
	c.Flags().StringVar(&format, "format", "table",
		"table, or cyclonedx for a bill of materials in JSON")
	return c
}

// printPackages prints a list of packages.
func (a templateCommands) printPackages(list carrel.TemplatePackages, format string) error {
	switch {
	case format == "cyclonedx":
		raw, err := catalog.CycloneDX(list)
		if err == nil {
			_, err = a.out.Write(raw)
		}
		return err
	case a.json:
		return a.printJSON(list)
	}
	rows := make([][]string, 0, len(list.Packages))
	for _, p := range list.Packages {
		rows = append(rows, []string{p.Kind, p.Name, p.Version, first(p.License, "–"), p.Path})
	}
	return a.table([]string{"KIND", "NAME", "VERSION", "LICENSE", "FOUND IN"}, rows)
}

// templateCollectCommand is "carrel template gc".
func (a templateCommands) templateCollectCommand() *cobra.Command {
	opts := carrel.CollectOptions{OlderThan: gcAge}
	var all bool
	c := &cobra.Command{
		Use: "gc", Short: "Remove the caches of builds: pulled bases and layers of steps",
		Args: cobra.NoArgs,
		Long: `Removes the caches of builds: bases that were pulled, and layers of steps. Templates stay, and
so does everything that a sandbox or a snapshot lies on. Later builds do again what they miss.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				opts.OlderThan = 0
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				done, err := svc.CollectTemplates(c.Context(), opts)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(done)
				}
				rows := make([][]string, 0, len(done.Items))
				for _, it := range done.Items {
					rows = append(rows, []string{it.Kind, it.ID, bytesText(it.Bytes),
						span(a.now().Sub(it.Created)), it.Name})
				}
				if err := a.table([]string{"KIND", "ID", "SIZE", "AGE", "OF"}, rows); err != nil {
					return err
				}
				verb := "removed"
				if opts.DryRun {
					verb = "would remove"
				}
				fmt.Fprintf(a.err, "%s %d, of %s\n", verb, len(done.Items), bytesText(done.Bytes))
				return nil
			})
		},
	}
	c.Flags().DurationVar(&opts.OlderThan, "older-than", gcAge, "only what is older than this")
	c.Flags().BoolVar(&all, "all", false, "whatever its age")
	c.Flags().BoolVar(&opts.DryRun, "dry-run", false, "remove nothing, and say what would go")
	return c
}

// templateRows are templates as a table's rows, with what lies on each. A service without a catalog
// does not say what does.
func (a templateCommands) templateRows(ctx context.Context, svc carrel.Service,
	all []carrel.Template) ([][]string, error) {
	uses, err := svc.TemplateUses(ctx)
	if err != nil && carrel.KindOf(err) != carrel.Unsupported {
		return nil, err
	}
	rows := make([][]string, 0, len(all))
	for _, t := range all {
		age := "–"
		if !t.Created.IsZero() {
			age = span(a.now().Sub(t.Created))
		}
		used := "–"
		if i := slices.IndexFunc(uses, func(u carrel.TemplateUse) bool { return u.ID == t.ID }); i >= 0 {
			used = usedText(uses[i])
		}
		source := t.Source
		if t.StandIn != "" {
			source = t.StandIn + " stands in"
		}
		rows = append(rows, []string{t.FullName(), t.LastingID(), bytesText(t.Size), age, used, source})
	}
	return rows, nil
}

// usedText says what lies on an image.
func usedText(u carrel.TemplateUse) string {
	var parts []string
	for _, c := range []struct {
		n         int
		one, many string
	}{{u.Sandboxes, "sandbox", "sandboxes"}, {u.Snapshots, "snapshot", "snapshots"}} {
		switch {
		case c.n == 1:
			parts = append(parts, "1 "+c.one)
		case c.n > 1:
			parts = append(parts, fmt.Sprint(c.n, " ", c.many))
		}
	}
	return strings.Join(parts, ", ")
}
