package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/carrel-dev/carrel"
)

// secretCommands are the commands about secrets.
type secretCommands struct{ *app }

// mostSecret is larger than the greatest secret, so that the error can report too large a value.
const mostSecret = 128 << 10

// secretCommand is "carrel secret …".
func (a secretCommands) secretCommand() *cobra.Command {
	c := &cobra.Command{Use: "secret", Short: "Keep secrets that are put into sandboxes' requests, and never into sandboxes", Args: cobra.NoArgs,
		Long: `Keeps secrets such as API keys. A sandbox never holds one: a policy says into whose
requests it is put, on their way out. No command and no API tells a secret's value.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.secretSetCommand(), a.secretListCommand(), a.secretShowCommand(), a.secretRemoveCommand(),
		a.secretRekeyCommand())
	return c
}

// onSecrets runs fn with the service's secrets.
func (a secretCommands) onSecrets(ctx context.Context, fn func(carrel.Secrets) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		return fn(svc)
	})
}

func (a secretCommands) secretSetCommand() *cobra.Command {
	var hosts, metadata []string
	var file string
	c := &cobra.Command{
		Use: "set NAME", Short: "Keep a secret, or replace its value", Args: cobra.ExactArgs(1),
		Long: `Keeps a secret, or replaces the value of the one that has the name: running sandboxes'
requests have the new value from then on. The value is read from standard input, from a
file, or from the terminal without showing it; it can't be an argument, because arguments are
seen by others. One line break at its end is dropped.

--host bounds whose requests it may ever be put into, whatever a policy says. It is said
once, for good: to change it, remove the secret and set it anew.`,
		Example: "  carrel secret set openai-api-key --host api.openai.example.com < key.txt",
		RunE: func(c *cobra.Command, args []string) error {
			m, err := keyValues("--metadata", metadata)
			if err != nil {
				return err
			}
			value, err := a.secretValue(c.Context(), args[0], file)
			if err != nil {
				return err
			}
			return a.onSecrets(c.Context(), func(all carrel.Secrets) error {
				s, err := setSecret(c.Context(), all, carrel.NewSecret{Name: args[0], Value: value, Metadata: m, Hosts: hosts})
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(s)
				}
				_, err = fmt.Fprintln(a.out, s.Name)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&hosts, "host", nil, "a host whose requests it may be put into: api.example.com or *.example.com (repeatable; default: any that a policy names)")
	f.StringArrayVarP(&metadata, "metadata", "m", nil, "a label KEY=VALUE (repeatable)")
	f.StringVar(&file, "from-file", "", "read the value from this file; - is standard input")
	return c
}

// setSecret creates a secret, or replaces the value of an existing one.
func setSecret(ctx context.Context, all carrel.Secrets, s carrel.NewSecret) (carrel.Secret, error) {
	made, err := all.CreateSecret(ctx, s)
	if carrel.KindOf(err) != carrel.AlreadyExists {
		return made, err
	}
	old, err := all.GetSecret(ctx, s.Name)
	if err != nil {
		return carrel.Secret{}, err
	}
	if s.Hosts != nil && !sameHosts(s.Hosts, old.Hosts) {
		return carrel.Secret{}, &carrel.Error{Op: "set secret", Kind: carrel.Conflict, Field: "hosts",
			Err:  fmt.Errorf("%s is for %s, and that stays so", old.Name, hostsText(old.Hosts)),
			Hint: "leave out --host; or remove the secret first: carrel secret rm " + old.Name}
	}
	return all.UpdateSecret(ctx, old.ID, s.Value, s.Metadata)
}

func sameHosts(a, b []string) bool {
	a = slices.Clone(a)
	for i := range a {
		a[i] = strings.ToLower(a[i])
	}
	b = slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func hostsText(hosts []string) string { return first(strings.Join(hosts, ", "), "any host") }

// secretValue reads a value from a file, the terminal or standard input.
func (a secretCommands) secretValue(ctx context.Context, name, file string) (string, error) {
	var raw []byte
	var err error
	switch {
	case file != "" && file != "-":
		var f *os.File
		if f, err = os.Open(file); err == nil {
			raw, err = io.ReadAll(io.LimitReader(f, mostSecret))
			_ = f.Close()
		}
	case a.in == nil:
		err = errors.New("there is no standard input to read the value from")
	case isTerminal(a.in):
		fmt.Fprintf(a.err, "value of %s (it is not shown): ", printable(name))
		raw, err = readHidden(ctx, int(a.in.Fd()))
		fmt.Fprintln(a.err)
	default:
		raw, err = io.ReadAll(io.LimitReader(a.in, mostSecret))
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", usage(err)
	}
	value, cut := strings.CutSuffix(string(raw), "\n")
	if cut {
		value = strings.TrimSuffix(value, "\r")
	}
	if value == "" {
		return "", usage(errors.New("the value is empty: give it on standard input or with --from-file"))
	}
	return value, nil
}

// readHidden reads a line from a terminal without showing it. An interrupt ends it and turns the
// echo on again.
func readHidden(ctx context.Context, fd int) ([]byte, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	type line struct {
		raw []byte
		err error
	}
	read := make(chan line, 1)
	go func() { // after an interrupt it lives until the process ends
		raw, err := term.ReadPassword(fd)
		read <- line{raw, err}
	}()
	select {
	case l := <-read:
		return l.raw, l.err
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), term.Restore(fd, before))
	}
}

func (a secretCommands) secretListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List secrets, without their values", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.onSecrets(c.Context(), func(all carrel.Secrets) error {
				list, err := all.ListSecrets(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(list)
				}
				rows := make([][]string, 0, len(list))
				for _, s := range list {
					rows = append(rows, []string{s.Name, s.ID, strconv.Itoa(s.Version), ago(a.now(), s.Updated), hostsText(s.Hosts), first(labels(s.Metadata), "–")})
				}
				return a.table([]string{"NAME", "ID", "VERSION", "UPDATED", "HOSTS", "METADATA"}, rows)
			})
		},
	}
}

func (a secretCommands) secretShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME|ID", Aliases: []string{"inspect"}, Short: "Show what is told of a secret, which is not its value", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSecrets(c.Context(), func(all carrel.Secrets) error {
				s, err := all.GetSecret(c.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(s)
				}
				return a.table([]string{"FIELD", "VALUE"}, [][]string{
					{"name", s.Name}, {"id", s.ID}, {"version", strconv.Itoa(s.Version)}, {"hosts", hostsText(s.Hosts)}, {"metadata", first(labels(s.Metadata), "–")},
					{"created", s.Created.Format(time.RFC3339)}, {"updated", s.Updated.Format(time.RFC3339)},
				})
			})
		},
	}
}

func (a secretCommands) secretRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME|ID…", Short: "Remove secrets; requests that need them fail from then on", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSecrets(c.Context(), func(all carrel.Secrets) error {
				removed := []string{}
				failed, err := a.forEach(c.Context(), args, func(name string) error {
					if err := all.DeleteSecret(c.Context(), name); err != nil {
						return err
					}
					removed = append(removed, name)
					return a.printLine(name)
				})
				return a.printSeveral(err, map[string]any{"removed": removed, "failed": failed})
			})
		},
	}
}

func (a secretCommands) secretRekeyCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "rekey", Short: "Seal all secrets anew under another key", Args: cobra.NoArgs,
		Long: `Seals all secrets anew under another key: a random one, which takes the old one's place in
the data directory. A daemon that was started with --secret-key-file needs --key-file with
the new key; put that into the daemon's key file, too.`,
		RunE: func(c *cobra.Command, _ []string) error {
			var key []byte
			if file != "" {
				var err error
				if key, err = os.ReadFile(file); err != nil {
					return usage(err)
				}
			}
			return a.onSecrets(c.Context(), func(all carrel.Secrets) error {
				r, ok := all.(interface {
					RekeySecrets(ctx context.Context, key []byte) error
				})
				if !ok {
					return &carrel.Error{Op: "change key of secrets", Kind: carrel.Unsupported, Err: errors.New("this service can't")}
				}
				if err := r.RekeySecrets(c.Context(), key); err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]bool{"rekeyed": true})
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&file, "key-file", "", "the new key: 32 bytes or 64 hexadecimal digits")
	return c
}
