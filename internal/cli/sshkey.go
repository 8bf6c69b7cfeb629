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

// keyring is the part of a client that keeps SSH keys.
type keyring interface {
	SSHKeys(ctx context.Context) ([]carrel.SSHKey, error)
	AddSSHKey(ctx context.Context, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error)
	RemoveSSHKey(ctx context.Context, name string) error
}

// withKeyring runs fn with the daemon's keys.
func (a *app) withKeyring(ctx context.Context, fn func(keyring) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		k, ok := svc.(keyring)
		if !ok {
			return &carrel.Error{Op: "open SSH keys", Kind: carrel.Unsupported, Err: errors.New("this service keeps none")}
		}
		return fn(k)
	})
}

// sshKeyCommand is "carrel ssh-key".
func (a *app) sshKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "ssh-key",
		Short: "The keys that may open SSH sessions (carrel serve --ssh-listen)",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.sshKeyAdd(), a.sshKeyList(), a.sshKeyRemove())
	return c
}

func (a *app) sshKeyAdd() *cobra.Command {
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
			return a.withKeyring(c.Context(), func(k keyring) error {
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

// readKey reads a public key's file. A private key is not even sent.
func (a *app) readKey(name string) (string, error) {
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

func (a *app) sshKeyList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the keys", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withKeyring(c.Context(), func(k keyring) error {
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

func (a *app) sshKeyRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Aliases: []string{"remove"}, Short: "Let keys in no more; what they opened goes on", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withKeyring(c.Context(), func(k keyring) error {
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
