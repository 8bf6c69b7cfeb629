package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/front"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// frontCommand is "carrel front".
func (a *app) frontCommand() *cobra.Command {
	cfg := front.Config{Listen: "127.0.0.1:7070", NodesListen: "0.0.0.0:7071", SignIn: config.Default().SignIn, Trail: config.Default().Trail,
		LogFormat: "text", LogLevel: "info"}
	var stateFile string
	c := &cobra.Command{
		Use: "front --state postgres://… --join-token-file FILE", Short: "Run a front: one API over many nodes", Args: cobra.NoArgs,
		Long: `Runs a front until it is interrupted. Clients use it as they use a daemon. It spreads sandboxes
over the nodes that joined (carrel serve --join), and finds them again. It keeps nothing itself:
projects, keys and places are in the database, so any number of fronts may run.

Each flag can also be set by a variable: --nodes-listen by CARREL_NODES_LISTEN. The database's
address may hold a password: give it in CARREL_STATE or in a file (--state-file).`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnvironment(c.Flags()); err != nil {
				return err
			}
			if stateFile != "" {
				raw, err := os.ReadFile(stateFile)
				if err != nil {
					return &carrel.Error{Op: "start front", Kind: carrel.Invalid, Field: "state-file", Err: err}
				}
				cfg.State = firstLine(raw)
			}
			if cfg.KeyFile == "" {
				cfg.KeyFile = filepath.Join(a.dataDirectory(), "front", config.KeyFile)
			}
			return a.runFront(c.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Listen, "listen", cfg.Listen, "address for clients")
	f.StringVar(&cfg.NodesListen, "nodes-listen", cfg.NodesListen, "address for nodes, with TLS of the fleet's own")
	f.StringVar(&cfg.SSHListen, "ssh-listen", "", "address to serve SSH on (default: none)")
	f.StringVar(&cfg.State, "state", "", "address of the PostgreSQL database, postgres://USER@HOST/DATABASE")
	f.StringVar(&stateFile, "state-file", "", "file with that address")
	f.BoolVar(&cfg.StatePlain, "state-plain", false, "allow connections to it over a network without encryption")
	f.StringVar(&cfg.TokenFile, "join-token-file", "", "file with the fleet's join token")
	f.StringVar(&cfg.KeyFile, "api-key-file", "", "file with the administrator's API key, made if it is missing; the same for all fronts (default: in the data directory)")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "certificate file (PEM) for clients")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "the certificate's key file (PEM)")
	f.DurationVar(&cfg.Lease, "node-lease", fleet.Lease, "how long a node is a member without a word from it; the same for all fronts")
	f.StringSliceVar(&cfg.Tolerate, "tolerate", nil, "let a project's sandboxes onto nodes with a taint, PROJECT=TAINT (repeat)")
	cfg.SignIn.Flags(f)
	f.StringVar(&cfg.TrailDir, "trail-dir", "", "directory of this front's audit trail (default: none)")
	cfg.Trail.Flags(f)
	config.AllowWebhookFlag(f, &cfg.AllowWebhooks)
	f.StringVar(&cfg.LogFormat, "log-format", cfg.LogFormat, "text or json")
	f.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "debug, info, warn or error")
	return c
}

// fromEnvironment sets flags from their variables that were not given.
func fromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		text, ok := os.LookupEnv(config.Variable(f.Name))
		if f.Changed || !ok || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, text); err != nil {
			errs = append(errs, &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: f.Name, Err: err})
		}
	})
	return errors.Join(errs...)
}

// firstLine is a file's first line without its end.
func firstLine(raw []byte) string {
	for i, b := range raw {
		if b == '\n' || b == '\r' {
			return string(raw[:i])
		}
	}
	return string(raw)
}

func (a *app) runFront(ctx context.Context, cfg front.Config) error {
	if cfg.State == "" {
		return &carrel.Error{Op: "start front", Kind: carrel.Invalid, Field: "state", Err: errors.New("a front needs a database"),
			Hint: "give its address with --state or CARREL_STATE: postgres://carrel@db.example.com/carrel"}
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		return &carrel.Error{Op: "start front", Kind: carrel.Invalid, Field: "tls-key", Err: errors.New("a certificate and its key are given together")}
	}
	log, err := frontLogger(cfg)
	if err != nil {
		return err
	}
	f, err := front.New(ctx, cfg, log)
	if err != nil {
		return err
	}
	if _, made := f.Key(); a.json {
		_ = a.printJSON(map[string]string{"url": f.URL(), "nodes": f.NodesURL()})
	} else {
		fmt.Fprintf(a.err, "carrel: listening on %s, for nodes on %s\n", f.URL(), f.NodesURL())
		if addr := f.SSHAddr(); addr != "" {
			fmt.Fprintf(a.err, "carrel: SSH on %s, with the host key %s\n", addr, f.SSHHostKey())
		}
		if made {
			fmt.Fprintf(a.err, "carrel: made an API key; it is kept in %s\n", cfg.KeyFile)
		}
	}
	err = f.Serve(ctx)
	return errors.Join(err, f.Close())
}

func frontLogger(cfg front.Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return nil, &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: "log-level", Err: err}
	}
	opts := &slog.HandlerOptions{Level: level}
	switch cfg.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	}
	return nil, &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: "log-format", Err: fmt.Errorf("%q is neither text nor json", cfg.LogFormat)}
}
