package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// peopleCommands are the commands about projects and keys.
type peopleCommands struct{ *app }

// onPeople runs fn with the daemon's projects and keys.
func (a peopleCommands) onPeople(ctx context.Context, fn func(carrel.People) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		c, ok := svc.(*client.Client)
		if !ok {
			return &carrel.Error{Op: "manage keys", Kind: carrel.Unsupported,
				Err: errors.New("only a daemon has projects and keys")}
		}
		return fn(c.People())
	})
}

// noun is a command that only groups others.
func noun(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}

// projectCommand is "carrel project …".
func (a peopleCommands) projectCommand() *cobra.Command {
	return noun("project", "Projects, each with its own sandboxes, templates, snapshots, secrets and keys",
		a.projectCreate(), a.projectList(), a.projectRemove())
}

func (a peopleCommands) projectCreate() *cobra.Command {
	return &cobra.Command{
		Use: "create NAME", Short: "Make a project, and print its name", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				made, err := p.CreateProject(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(made)
				}
				_, err = fmt.Fprintln(a.out, made.Name)
				return err
			})
		},
	}
}

func (a peopleCommands) projectList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the projects that the key sees", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				all, err := p.Projects(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(all)
				}
				rows := make([][]string, len(all))
				for i, p := range all {
					rows[i] = []string{p.Name, p.ID, day(p.Created)}
				}
				return a.table([]string{"NAME", "E2B TEAM", "CREATED"}, rows)
			})
		},
	}
}

func (a peopleCommands) projectRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Revoke the keys of empty projects, and remove them", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				for _, name := range args {
					if err := p.DeleteProject(c.Context(), name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// keyCommand is "carrel key …".
func (a peopleCommands) keyCommand() *cobra.Command {
	return noun("key", "API keys of projects",
		a.keyCreate(), a.keyList(), a.keyShow(), a.keyRotate(), a.keyRevoke())
}

func (a peopleCommands) keyCreate() *cobra.Command {
	var scope string
	var expires time.Duration
	var hard, soft []string
	var bounds ceilingFlags
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a key, and print its secret, which is shown only now",
		Args: cobra.ExactArgs(1),
		Long: `Makes an API key of a project and prints its secret. The daemon keeps only a hash of it,
so nobody can show it again. E2B's SDKs take it as E2B_API_KEY.

A key with the scope read sees what there is, and enters no sandbox. The scope run makes and
uses sandboxes. The scope admin also manages the project's keys.

With the daemon's own key, --project says whose key it is; carrel project create makes one.

--quota and the flags of carrel ceiling set say what the key may use and what its sandboxes may
be. They bind it from its first moment on.`,
		Example: `  carrel --project web key create ci --scope run --expires 2160h
  carrel --project web key create bot --quota sandboxes=5 --egress '*.example.com' --tier gvisor`,
		RunE: func(c *cobra.Command, args []string) error {
			n := carrel.NewKey{Name: args[0], Scope: carrel.KeyScope(scope)}
			if expires != 0 {
				n.Expires = time.Now().Add(expires).UTC().Truncate(time.Second)
			}
			if err := keyLimits(c, &n, hard, soft, &bounds); err != nil {
				return err
			}
			return a.onPeople(c.Context(), func(p carrel.People) error {
				made, err := p.CreateKey(c.Context(), n)
				return a.printSecret(made, err)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&scope, "scope", string(carrel.ScopeRun), "what it may do: read, run or admin")
	f.DurationVar(&expires, "expires", 0, "how long it works (default: until it is revoked)")
	f.StringArrayVar(&hard, "quota", nil, "LIMIT=N that is never passed; carrel quota set names them")
	f.StringArrayVar(&soft, "soft", nil, "LIMIT=N that only warns")
	bounds.add(c)
	return c
}

// keyLimits puts the limits that flags say into a request for a key.
func keyLimits(c *cobra.Command, n *carrel.NewKey, hard, soft []string, b *ceilingFlags) error {
	q := carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{},
		Soft: map[carrel.LimitName]carrel.Milli{}}
	if err := addLimits(&q, hard, soft); err != nil {
		return err
	}
	if !q.IsZero() {
		n.Quota = &q
	}
	if ceiling := b.of(c); !ceiling.IsZero() {
		n.Ceiling = &ceiling
	}
	return nil
}

// printSecret prints a new secret: alone on stdout, so that a script can take it.
func (a peopleCommands) printSecret(made carrel.IssuedKey, err error) error {
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(made)
	}
	if _, err := fmt.Fprintf(a.err, "key %s of project %s (%s); this is shown only once:\n", made.ID, made.Project, made.Scope); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, made.Secret)
	return err
}

func (a peopleCommands) keyList() *cobra.Command {
	var dead bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the keys that work", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				all, err := p.Keys(c.Context())
				if err != nil {
					return err
				}
				out, rows, now := []carrel.APIKey{}, [][]string{}, time.Now()
				for _, k := range all {
					if !dead && !k.Works(now) {
						continue
					}
					out = append(out, k)
					rows = append(rows, []string{k.Name, k.Project, string(k.Scope), k.Mask, day(k.LastUsed), keyState(k, now), k.ID})
				}
				if a.json {
					return a.printJSON(out)
				}
				return a.table([]string{"NAME", "PROJECT", "SCOPE", "SECRET", "LAST USED", "STATE", "ID"}, rows)
			})
		},
	}
	c.Flags().BoolVar(&dead, "all", false, "also those that were revoked or expired in the last 30 days")
	return c
}

// keyState says whether a key works, and until when.
func keyState(k carrel.APIKey, now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked " + day(k.Revoked)
	case !k.Works(now):
		return "expired " + day(k.Expires)
	case !k.Expires.IsZero():
		return "until " + day(k.Expires)
	}
	return "works"
}

// day shows a time to people; a zero one is a dash.
func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func (a peopleCommands) keyShow() *cobra.Command {
	return &cobra.Command{
		Use: "show KEY", Short: "Tell everything about a key but its secret", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				k, err := p.GetKey(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(k)
				}
				return a.table([]string{"KEY", k.Name}, [][]string{
					{"id", k.ID}, {"project", k.Project}, {"scope", string(k.Scope)}, {"secret", k.Mask},
					{"state", keyState(k, time.Now())}, {"created", day(k.Created)}, {"by", cmp.Or(k.CreatedBy, "-")},
					{"last used", day(k.LastUsed)}, {"old secret until", day(k.OldUntil)},
				})
			})
		},
	}
}

func (a peopleCommands) keyRotate() *cobra.Command {
	var overlap time.Duration
	c := &cobra.Command{
		Use: "rotate KEY", Short: "Give a key another secret, and print it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				made, err := p.RotateKey(c.Context(), args[0], overlap)
				return a.printSecret(made, err)
			})
		},
	}
	c.Flags().DurationVar(&overlap, "overlap", 0, "how long the old secret works, too")
	return c
}

func (a peopleCommands) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY…", Aliases: []string{"rm"},
		Short: "End keys for good, and cut the streams that they opened", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onPeople(c.Context(), func(p carrel.People) error {
				for _, ref := range args {
					if err := p.RevokeKey(c.Context(), ref); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
