package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// withKeyring runs fn with the daemon's keys.
func (a sshCommands) withKeyring(ctx context.Context, fn func(carrel.SSHAccess) error) error {
	return a.withService(ctx, func(svc carrel.Service) error { return fn(svc) })
}

// sshKeyCommand is "carrel ssh-key".
func (a sshCommands) sshKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "ssh-key",
		Short: "The keys that may open SSH sessions (carrel serve --ssh-listen)",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.sshKeyAdd(), a.sshKeyList(), a.sshKeyRemove())
	return c
}

func (a sshCommands) sshKeyAdd() *cobra.Command {
	var boxes []string
	c := &cobra.Command{
		Use:   "add NAME FILE",
		Short: "Let a public key in (FILE ends in .pub; - is standard input)",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var ids []carrel.ID
			for _, b := range boxes {
				id, err := carrel.ParseID(b)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			key, err := a.readKey(args[1])
			if err != nil {
				return err
			}
			return a.withKeyring(c.Context(), func(k carrel.SSHAccess) error {
				added, err := k.AddSSHKey(c.Context(), args[0], key, ids)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(added)
				}
				_, err = fmt.Fprintln(a.out, added.Fingerprint)
				return err
			})
		},
	}
	c.Flags().StringArrayVar(&boxes, "sandbox", nil, "only into this sandbox (repeat)")
	return c
}

// readKey reads a public key's file. It refuses a private key, which is never sent.
func (a sshCommands) readKey(name string) (string, error) {
	var in io.Reader = a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", usage(err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if err != nil {
		return "", err
	}
	if strings.Contains(string(raw), "PRIVATE KEY") {
		return "", &carrel.Error{Op: "read key", Kind: carrel.Invalid, Field: name, Err: errors.New("this is a private key"), Hint: "give the public one: " + name + ".pub"}
	}
	return strings.TrimSpace(string(raw)), nil
}

func (a sshCommands) sshKeyList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the keys", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withKeyring(c.Context(), func(k carrel.SSHAccess) error {
				keys, err := k.SSHKeys(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(keys)
				}
				rows := make([][]string, 0, len(keys))
				for _, key := range keys {
					boxes := "all"
					if len(key.Sandboxes) > 0 {
						boxes = fmt.Sprint(len(key.Sandboxes))
					}
					rows = append(rows, []string{key.Name, key.Fingerprint, boxes, key.Added.Local().Format(time.DateTime)})
				}
				return a.table([]string{"NAME", "FINGERPRINT", "SANDBOXES", "ADDED"}, rows)
			})
		},
	}
}

func (a sshCommands) sshKeyRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Aliases: []string{"remove"}, Short: "Let keys in no more; what they opened goes on", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withKeyring(c.Context(), func(k carrel.SSHAccess) error {
				for _, name := range args {
					if err := k.RemoveSSHKey(c.Context(), name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
