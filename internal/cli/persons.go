package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// personCommands are the commands about people, members and organisations.
type personCommands struct{ *app }

// on runs fn with the daemon's people.
func (a personCommands) on(ctx context.Context, fn func(carrel.Persons) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		c, ok := svc.(*client.Client)
		if !ok {
			return &carrel.Error{Op: "manage people", Kind: carrel.Unsupported,
				Err: errors.New("only a daemon has people")}
		}
		return fn(c.Persons())
	})
}

// each runs fn with the daemon's people and each argument.
func (a personCommands) each(fn func(context.Context, carrel.Persons, string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		return a.on(c.Context(), func(p carrel.Persons) error {
			for _, arg := range args {
				if err := fn(c.Context(), p, arg); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// whoAmICommand is "carrel whoami".
func (a personCommands) whoAmICommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Tell who the daemon takes you for, and in which projects you may act",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(p carrel.Persons) error {
				self, err := p.Self(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(self)
				}
				rows := [][]string{{"role", string(self.Role)}, {"project", cmp.Or(self.Project, "-")}}
				for _, m := range self.Projects {
					rows = append(rows, []string{"may act in", m.Project + " (" + string(m.Role) + ")"})
				}
				rows = append(rows, []string{"until", day(self.Expires)})
				return a.table([]string{"NAME", self.Name}, rows)
			})
		},
	}
}

// personCommand is "carrel person …".
func (a personCommands) personCommand() *cobra.Command {
	disable := func(use, short string, disabled bool) *cobra.Command {
		return &cobra.Command{Use: use + " PERSON…", Short: short, Args: cobra.MinimumNArgs(1),
			RunE: a.each(func(ctx context.Context, p carrel.Persons, name string) error {
				_, err := p.UpdatePerson(ctx, name, carrel.PersonUpdate{Disabled: &disabled})
				return err
			})}
	}
	return noun("person", "People who sign in",
		a.personAdd(), a.personList(), a.personPassword(),
		disable("disable", "End people's sessions and streams, and let them sign in no more", true),
		disable("enable", "Let disabled people sign in again", false),
		&cobra.Command{Use: "rm PERSON…", Short: "Remove people, with their sessions and rights",
			Args: cobra.MinimumNArgs(1),
			RunE: a.each(func(ctx context.Context, p carrel.Persons, name string) error {
				return p.DeletePerson(ctx, name)
			})})
}

// readPassword reads one line from stdin.
func (a personCommands) readPassword() (string, error) {
	line, err := bufio.NewReader(io.LimitReader(a.in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	return line, carrel.CheckPassword(line)
}

// printPassword prints a password that was made: alone on stdout, so that a script can take it.
func (a personCommands) printPassword(made carrel.IssuedPerson) error {
	if a.json {
		return a.printJSON(made)
	}
	if made.NewPassword == "" {
		return nil
	}
	if _, err := fmt.Fprintf(a.err, "password of %s; this is shown only once:\n", made.Name); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, made.NewPassword)
	return err
}

func (a personCommands) personAdd() *cobra.Command {
	var n carrel.NewPerson
	var stdin bool
	c := &cobra.Command{
		Use: "add NAME", Short: "Make a person, and print a first password", Args: cobra.ExactArgs(1),
		Long: `Makes a person who signs in with a password, and prints one that is made up. With
--password-stdin it is the first line of stdin. With --provider the person signs in at the
identity provider, and NAME is the email address that the provider has verified.

A person may do nothing until carrel member add gives a right in a project.`,
		Example: "  carrel person add zoe\n  carrel member add zoe --of web --role run",
		RunE: func(c *cobra.Command, args []string) error {
			n.Name = args[0]
			if stdin {
				var err error
				if n.Password, err = a.readPassword(); err != nil {
					return err
				}
			}
			return a.on(c.Context(), func(p carrel.Persons) error {
				made, err := p.CreatePerson(c.Context(), n)
				if err != nil {
					return err
				}
				return a.printPassword(made)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&n.Email, "email", "", "address, only to be shown")
	f.BoolVar(&n.Provider, "provider", false, "signs in at the identity provider")
	f.BoolVar(&stdin, "password-stdin", false, "take the password from stdin")
	return c
}

func (a personCommands) personPassword() *cobra.Command {
	var stdin bool
	c := &cobra.Command{
		Use: "passwd PERSON", Short: "Give a person another password, and end the sessions",
		Args: cobra.ExactArgs(1),
		Long: `Gives a person another password, and prints it. With --password-stdin it is the first line
of stdin. People change their own password on the daemon's page /password.`,
		RunE: func(c *cobra.Command, args []string) error {
			var ch carrel.PasswordChange
			if stdin {
				var err error
				if ch.New, err = a.readPassword(); err != nil {
					return err
				}
			}
			return a.on(c.Context(), func(p carrel.Persons) error {
				made, err := p.SetPassword(c.Context(), args[0], ch)
				if err != nil {
					return err
				}
				return a.printPassword(made)
			})
		},
	}
	c.Flags().BoolVar(&stdin, "password-stdin", false, "take the password from stdin")
	return c
}

// showAll prints a list: as JSON, or as a table with a row for each.
func showAll[T any](a *app, all []T, columns []string, row func(T) []string) error {
	if a.json {
		return a.printJSON(all)
	}
	rows := make([][]string, len(all))
	for i, one := range all {
		rows[i] = row(one)
	}
	return a.table(columns, rows)
}

func (a personCommands) personList() *cobra.Command {
	return &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the people", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(p carrel.Persons) error {
				all, err := p.People(c.Context())
				if err != nil {
					return err
				}
				columns := []string{"NAME", "SIGNS IN BY", "LAST SEEN", "STATE", "ID"}
				return showAll(a.app, all, columns, func(one carrel.Person) []string {
					by, is := "password", "works"
					if one.Provider {
						by = "provider"
					}
					if !one.Disabled.IsZero() {
						is = "disabled " + day(one.Disabled)
					}
					return []string{one.Name, by, day(one.LastSeen), is, one.ID}
				})
			})
		}}
}

// memberCommand is "carrel member …".
func (a personCommands) memberCommand() *cobra.Command {
	return noun("member", "What people may do in a project or in an organisation",
		a.memberAdd(), a.memberList(), a.memberRemove())
}

// whereFlags are the flags that say where a member is.
func whereFlags(c *cobra.Command, m *carrel.Member) {
	c.Flags().StringVar(&m.Project, "of", "", "the project (default: the key's own)")
	c.Flags().StringVar(&m.Organisation, "org", "", "the organisation, instead of a project")
}

func (a personCommands) memberAdd() *cobra.Command {
	var m carrel.Member
	var role string
	c := &cobra.Command{
		Use: "add PERSON…", Short: "Let people act in a project, or change their role",
		Args: cobra.MinimumNArgs(1),
		Long: `Gives people a right in a project or in all projects of an organisation. There need be no
such person yet: the right waits for the first sign-in with this name, or with this address at
the identity provider.

The roles are read, run and admin. They allow what the scopes of a key allow.`,
		Example: "  carrel member add zoe@example.com --of web --role admin",
		RunE: a.each(func(ctx context.Context, p carrel.Persons, name string) error {
			m.Person, m.Role = name, carrel.KeyScope(role)
			_, err := p.SetMember(ctx, m)
			return err
		}),
	}
	whereFlags(c, &m)
	c.Flags().StringVar(&role, "role", string(carrel.ScopeRun), "read, run or admin")
	return c
}

func (a personCommands) memberRemove() *cobra.Command {
	var m carrel.Member
	c := &cobra.Command{
		Use: "rm PERSON…", Short: "Take rights away, and cut the streams that they opened",
		Args: cobra.MinimumNArgs(1),
		RunE: a.each(func(ctx context.Context, p carrel.Persons, name string) error {
			m.Person = name
			return p.DeleteMember(ctx, m)
		}),
	}
	whereFlags(c, &m)
	return c
}

func (a personCommands) memberList() *cobra.Command {
	var m carrel.Member
	c := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Args: cobra.NoArgs,
		Short: "List who may act in a project, and by what",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(p carrel.Persons) error {
				all, err := p.Members(c.Context(), m.Project, m.Organisation)
				if err != nil {
					return err
				}
				columns := []string{"PERSON", "ROLE", "BY", "SINCE"}
				return showAll(a.app, all, columns, func(one carrel.Member) []string {
					by := one.Project
					switch {
					case one.Organisation != "":
						by = "organisation " + one.Organisation
					case one.Group != "":
						by = "group " + one.Group
					}
					return []string{one.Person, string(one.Role), by, day(one.Since)}
				})
			})
		}}
	whereFlags(c, &m)
	return c
}

// orgCommand is "carrel org …".
func (a personCommands) orgCommand() *cobra.Command {
	return noun("org", "Organisations: projects that have members in common",
		&cobra.Command{Use: "create NAME…", Short: "Make organisations", Args: cobra.MinimumNArgs(1),
			RunE: a.each(func(ctx context.Context, p carrel.Persons, name string) error {
				_, err := p.CreateOrganisation(ctx, name)
				return err
			})},
		a.orgList(),
		&cobra.Command{Use: "rm NAME…", Short: "Remove organisations; their projects stay",
			Args: cobra.MinimumNArgs(1),
			RunE: a.each(func(ctx context.Context, p carrel.Persons, name string) error {
				return p.DeleteOrganisation(ctx, name)
			})},
		a.orgChange("add-project", "Put projects into an organisation",
			func(had, named []string) []string { return append(had, named...) }),
		a.orgChange("rm-project", "Take projects out of an organisation",
			func(had, named []string) []string {
				return slices.DeleteFunc(had, func(p string) bool { return slices.Contains(named, p) })
			}))
}

func (a personCommands) orgList() *cobra.Command {
	return &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the organisations", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(p carrel.Persons) error {
				all, err := p.Organisations(c.Context())
				if err != nil {
					return err
				}
				columns := []string{"NAME", "PROJECTS", "CREATED"}
				return showAll(a.app, all, columns, func(o carrel.Organisation) []string {
					return []string{o.Name, cmp.Or(strings.Join(o.Projects, " "), "-"), day(o.Created)}
				})
			})
		}}
}

// orgChange is a command that changes the projects of an organisation.
func (a personCommands) orgChange(use, short string, fn func(had, named []string) []string) *cobra.Command {
	return &cobra.Command{Use: use + " NAME PROJECT…", Short: short, Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.on(c.Context(), func(p carrel.Persons) error {
				all, err := p.Organisations(c.Context())
				if err != nil {
					return err
				}
				var had []string
				for _, o := range all {
					if o.Name == args[0] {
						had = o.Projects
					}
				}
				_, err = p.SetOrganisation(c.Context(), args[0], fn(had, args[1:]))
				return err
			})
		}}
}
