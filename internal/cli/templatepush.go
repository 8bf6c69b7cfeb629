package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// registryLogin are the flags for a registry's credentials. A password is never an argument: other
// users of the machine see arguments.
type registryLogin struct {
	username string
	stdin    bool
	file     string
}

func (l *registryLogin) add(c *cobra.Command) {
	c.Flags().StringVar(&l.username, "username", "",
		"account of the registry (default: the daemon's docker configuration)")
	c.Flags().BoolVar(&l.stdin, "password-stdin", false,
		"read its password or token from standard input")
	c.Flags().StringVar(&l.file, "credentials", "",
		"file with credentials as JSON: {type: registry|aws|gcp, …} (see docs/registries.md)")
}

// maxCredentials bounds what is read, in bytes.
const maxCredentials = 64 << 10

// read returns the credentials; nil if no flag was given.
func (l *registryLogin) read(a *app) (*carrel.RegistryCredentials, error) {
	switch {
	case l.file != "" && (l.username != "" || l.stdin):
		return nil, usage(errors.New("--credentials goes without --username and --password-stdin"))
	case l.file != "":
		f, err := os.Open(l.file)
		if err != nil {
			return nil, usage(err)
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, maxCredentials))
		if err != nil {
			return nil, err
		}
		own := &carrel.RegistryCredentials{}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(own); err != nil {
			return nil, usage(fmt.Errorf("%s: %w", l.file, err))
		}
		return own, nil
	case l.username == "" && !l.stdin:
		return nil, nil
	case l.username == "" || !l.stdin:
		return nil, usage(errors.New("--username and --password-stdin go together"))
	}
	raw, err := io.ReadAll(io.LimitReader(a.in, maxCredentials))
	if err != nil {
		return nil, err
	}
	return &carrel.RegistryCredentials{Username: l.username,
		Password: strings.TrimRight(string(raw), "\r\n")}, nil
}

func (a templateCommands) templatePushCommand() *cobra.Command {
	var login registryLogin
	c := &cobra.Command{
		Use:   "push TEMPLATE|SNAPSHOT IMAGE",
		Short: "Send a template, or a snapshot's files, to a registry",
		Long: `Sends a template to a registry, as an OCI image of one layer. The image has the template's
environment, user, working directory, command and labels. Equal templates become equal images, with
the same digest. Parts that the registry has are not sent again. Of a snapshot the files are sent,
without memory and without the sandbox's host name.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			own, err := login.read(a.app)
			if err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				bar := newBar(a.err)
				p, err := svc.PushTemplate(c.Context(), args[0],
					carrel.PushOptions{Image: args[1], Credentials: own}, bar.update)
				bar.done()
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(p)
				}
				fmt.Fprintf(a.err, "%s of %s sent\n", bytesText(p.Sent), bytesText(p.Size))
				fmt.Fprintln(a.out, p.Image+"@"+p.Digest)
				return nil
			})
		},
	}
	login.add(c)
	return c
}
