package cli

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/version"
	"github.com/spf13/cobra"
)

// serveCommand is "carrel serve".
func (a *app) serveCommand() *cobra.Command {
	src := newSources()
	c := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the daemon",
		Long: `Runs the daemon until it is interrupted. Sandboxes outlive it: the next daemon
with the same data directory adopts them again.

Each flag can also be set by a variable (--max-paused by CARREL_MAX_PAUSED) and by
a line of a YAML file (max-paused: 10). A flag wins over a variable, and that over
the file. "carrel config" shows what holds and where it comes from.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.daemonConfig("carrel serve", src); err != nil {
				return err
			}
			return a.runDaemon(c.Context(), src.cfg)
		},
	}
	c.Flags().AddFlagSet(src.flags)
	return c
}

// daemonConfig loads the settings of a command that runs a daemon in this process, and checks them.
func (a *app) daemonConfig(command string, src *sources) error {
	if err := localDaemons(command); err != nil {
		return err
	}
	if err := src.load(); err != nil {
		return err
	}
	a.dataDir = src.cfg.DataDir
	if err := finishConfig(&src.cfg); err != nil {
		return src.origins.Explain(err)
	}
	return nil
}

// finishConfig makes directories absolute and checks all settings.
func finishConfig(cfg *config.Config) error {
	dirs := []*string{&cfg.DataDir, &cfg.CacheDir}
	if s := cfg.SnapshotStore; s != "" && !strings.Contains(s, "://") {
		dirs = append(dirs, &cfg.SnapshotStore)
	}
	for _, dir := range dirs {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	return cfg.Validate()
}

// announce tells a person the daemon's address and, after it made its API key, how to use it. It
// names the key's file and never the key, because stderr often goes to logs that others read.
func (a *app) announce(url, _ string, first bool) {
	if a.json {
		_ = a.printJSON(map[string]string{"url": url})
		return
	}
	fmt.Fprintf(a.err, "carrel: listening on %s\n", url)
	if !first {
		return
	}
	file := filepath.Join(a.dataDirectory(), config.KeyFile)
	fmt.Fprintf(a.err, "carrel: made an API key; it is kept in %s\n\n", file)
	fmt.Fprintf(a.err, "  export E2B_API_URL=%s E2B_SANDBOX_URL=%s E2B_API_KEY=\"$(cat '%s')\"\n\n", url, url, strings.ReplaceAll(file, "'", `'\''`))
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
