package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/version"
	"github.com/spf13/cobra"
)

// serveCommand is "carrel serve".
func (a *app) serveCommand() *cobra.Command {
	cfg := config.Default()
	envErr := cfg.ApplyEnv(os.Getenv) // before the flags, whose defaults it sets
	c := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the daemon",
		Long: `Runs the daemon until it is interrupted. Sandboxes outlive it: the next daemon
with the same data directory adopts them again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if envErr != nil {
				return envErr
			}
			if err := a.finishConfig(&cfg); err != nil {
				return err
			}
			return daemon.Run(c.Context(), cfg, daemon.Hooks{Ready: a.announce})
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Listen, "listen", cfg.Listen, "address to listen on")
	f.StringVar(&cfg.Domain, "domain", cfg.Domain, "serve ports at <port>-<id>.DOMAIN")
	f.StringVar(&cfg.TLSCert, "tls-cert", cfg.TLSCert, "certificate file (PEM) for DOMAIN and *.DOMAIN")
	f.StringVar(&cfg.TLSKey, "tls-key", cfg.TLSKey, "the certificate's key file (PEM)")
	f.StringVar(&cfg.CacheDir, "cache-dir", cfg.CacheDir, "directory of what can be made again (the base template)")
	f.StringVar((*string)(&cfg.DefaultTier), "default-tier", string(cfg.DefaultTier), "tier of sandboxes that ask for none (default: the strongest that works here)")
	f.StringVar(&cfg.DefaultTemplate, "default-template", cfg.DefaultTemplate, "template of sandboxes that ask for none")
	f.IntVar(&cfg.MaxSandboxes, "max-sandboxes", cfg.MaxSandboxes, "how many may live at once")
	f.DurationVar(&cfg.DefaultTimeout, "default-timeout", cfg.DefaultTimeout, "life of sandboxes that ask for none")
	f.DurationVar(&cfg.MaxTimeout, "max-timeout", cfg.MaxTimeout, "the longest life that may be asked for")
	f.Float64Var(&cfg.Limits.CPUs, "default-cpus", cfg.Limits.CPUs, "processor cores of sandboxes that ask for none")
	f.IntVar(&cfg.Limits.MemoryMB, "default-memory", cfg.Limits.MemoryMB, "their memory in MiB")
	f.IntVar(&cfg.Limits.DiskMB, "default-disk", cfg.Limits.DiskMB, "their disk in MiB")
	f.IntVar(&cfg.Limits.Pids, "default-pids", cfg.Limits.Pids, "their processes and threads")
	f.StringVar(&cfg.LogFormat, "log-format", cfg.LogFormat, "text or json")
	f.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "debug, info, warn or error")
	return c
}

// finishConfig sets what the shared flags say and checks the whole.
func (a *app) finishConfig(cfg *config.Config) error {
	cfg.DataDir = a.dataDirectory()
	for _, dir := range []*string{&cfg.DataDir, &cfg.CacheDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	return cfg.Validate()
}

// announce tells a person where the daemon is. The key is shown once, when it is made.
func (a *app) announce(url, key string, first bool) {
	if a.json {
		_ = a.printJSON(map[string]string{"url": url})
		return
	}
	fmt.Fprintf(a.err, "carrel: listening on %s\n", url)
	if first {
		fmt.Fprintf(a.err, "carrel: made an API key; it is kept in the data directory's file api-key\n\n")
		fmt.Fprintf(a.err, "  export E2B_API_URL=%s E2B_SANDBOX_URL=%s E2B_API_KEY=%s\n\n", url, url, key)
	}
}

// doctorCommand is "carrel doctor".
func (a *app) doctorCommand() *cobra.Command {
	cfg := config.Default()
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say which walls work on this host, and what to do where one does not",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.finishConfig(&cfg); err != nil {
				return err
			}
			rows, err := daemon.Doctor(c.Context(), cfg)
			if err != nil {
				return err
			}
			return a.printDoctor(c.Context(), rows)
		},
	}
	return c
}

func (a *app) printDoctor(_ context.Context, rows []daemon.DoctorRow) error {
	if a.json {
		return a.printJSON(rows)
	}
	for _, r := range rows {
		verdict := "works"
		if !r.OK {
			verdict = "does not work: " + r.Problem
		}
		fmt.Fprintf(a.out, "%-8s %s\n", r.Driver, verdict)
		if r.Hint != "" {
			fmt.Fprintf(a.out, "         hint: %s\n", r.Hint)
		}
		for _, f := range r.Findings {
			fmt.Fprintf(a.out, "         note: %s: %s\n", f.What, f.Why)
			if f.Hint != "" {
				fmt.Fprintf(a.out, "         hint: %s\n", f.Hint)
			}
		}
	}
	return nil
}

// versionCommand is "carrel version".
func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": version.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
			if a.json {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.out, "carrel %s (%s, %s/%s)\n", v["version"], v["go"], v["os"], v["arch"])
			return err
		},
	}
}
