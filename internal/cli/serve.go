package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/carrel-dev/carrel/internal/config"
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
			if err := localDaemons("carrel serve"); err != nil {
				return err
			}
			if envErr != nil {
				return envErr
			}
			if err := a.finishConfig(&cfg); err != nil {
				return err
			}
			return a.runDaemon(c.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Listen, "listen", cfg.Listen, "address to listen on")
	f.StringVar(&cfg.Domain, "domain", cfg.Domain, "serve ports at <port>-<id>.DOMAIN")
	f.StringVar(&cfg.TLSCert, "tls-cert", cfg.TLSCert, "certificate file (PEM) for DOMAIN and *.DOMAIN")
	f.StringVar(&cfg.TLSKey, "tls-key", cfg.TLSKey, "the certificate's key file (PEM)")
	f.BoolVar(&cfg.Ingress.SelfSigned, "tls-self-signed", cfg.Ingress.SelfSigned, "serve TLS with an authority of this daemon's own, for development (see carrel ca)")
	f.StringSliceVar(&cfg.Ingress.ACMEDomains, "acme-domain", cfg.Ingress.ACMEDomains, "name to get a certificate for from an ACME authority (repeat)")
	f.StringVar(&cfg.Ingress.ACMEEmail, "acme-email", cfg.Ingress.ACMEEmail, "where that authority may write to")
	f.StringVar(&cfg.Ingress.ACMECA, "acme-ca", cfg.Ingress.ACMECA, "its directory's URL (default: Let's Encrypt)")
	f.StringVar(&cfg.Ingress.ACMERoots, "acme-ca-root", cfg.Ingress.ACMERoots, "file (PEM) that vouches for its own HTTPS (default: the system's)")
	f.StringVar(&cfg.Ingress.ACMEHTTPListen, "acme-http-listen", cfg.Ingress.ACMEHTTPListen, "address for HTTP-01 challenges, such as :80 (default: only TLS-ALPN-01, on the daemon's own)")
	f.BoolVar(&cfg.Ingress.ACMEOnDemand, "acme-on-demand", cfg.Ingress.ACMEOnDemand, "also get certificates for sandboxes' host names when they are asked for, 20 an hour at most")
	f.StringVar(&cfg.Ingress.SSHListen, "ssh-listen", cfg.Ingress.SSHListen, "address to serve SSH on, such as 127.0.0.1:2222 (default: none; carrel ssh needs none)")
	f.StringVar(&cfg.CacheDir, "cache-dir", cfg.CacheDir, "directory of what can be made again (the base template)")
	f.StringVar((*string)(&cfg.DefaultTier), "default-tier", string(cfg.DefaultTier), "tier of sandboxes that ask for none (default: the strongest that works here)")
	f.StringVar(&cfg.DefaultTemplate, "default-template", cfg.DefaultTemplate, "template of sandboxes that ask for none")
	f.IntVar(&cfg.MaxSandboxes, "max-sandboxes", cfg.MaxSandboxes, "how many may live at once; below that the machine's memory, disk and descriptors decide")
	f.IntVar(&cfg.MaxStarting, "max-starting", cfg.MaxStarting, "how many may start or resume at once (0: 32 for each processor; below that the daemon finds out what the machine sustains)")
	f.IntVar(&cfg.MaxQueued, "max-queued", cfg.MaxQueued, "how many may wait for that; more are refused, with when to try again")
	f.DurationVar(&cfg.MaxWait, "max-wait", cfg.MaxWait, "how long one may wait for it")
	f.Var((*config.Size)(&cfg.MemoryReserve), "memory-reserve", "memory that new sandboxes leave alone (0: a twentieth of the machine's)")
	f.Float64Var(&cfg.MemoryOvercommit, "memory-overcommit", cfg.MemoryOvercommit, "how many times the machine's memory all sandboxes' memory limits may come to (0: any number)")
	f.DurationVar(&cfg.DefaultTimeout, "default-timeout", cfg.DefaultTimeout, "life of sandboxes that ask for none")
	f.DurationVar(&cfg.MaxTimeout, "max-timeout", cfg.MaxTimeout, "the longest life that may be asked for")
	f.Float64Var(&cfg.Limits.CPUs, "default-cpus", cfg.Limits.CPUs, "processor cores of sandboxes that ask for none")
	f.IntVar(&cfg.Limits.MemoryMB, "default-memory", cfg.Limits.MemoryMB, "their memory in MiB")
	f.IntVar(&cfg.Limits.DiskMB, "default-disk", cfg.Limits.DiskMB, "their disk in MiB")
	f.IntVar(&cfg.Limits.Pids, "default-pids", cfg.Limits.Pids, "their processes and threads")
	f.StringVar(&cfg.SnapshotStore, "snapshot-store", cfg.SnapshotStore, "where snapshots are kept: a directory, or s3://BUCKET/PREFIX with AWS_* in the environment (default: in the data directory)")
	f.Var((*config.Size)(&cfg.SnapshotQuota), "snapshot-quota", "what they may take on this machine's disk, such as 200GiB (0: no bound)")
	f.Var((*config.Size)(&cfg.SnapshotCache), "snapshot-cache", "what of it may be uncompressed copies, for quick restoring")
	f.IntVar(&cfg.MaxPaused, "max-paused", cfg.MaxPaused, "how many sandboxes may be paused at once (0: no bound)")
	f.IntVar(&cfg.Warm.Cap, "warm", cfg.Warm.Cap, "how many sandboxes may be kept ready, by what was asked for lately (0: none)")
	f.IntVar(&cfg.BlankSentries, "blank-sentries", cfg.BlankSentries, "how many kernels of gVisor sandboxes are started ahead, before there is a sandbox for them (0: none)")
	f.Var(&cfg.Warm.Floors, "warm-floor", "keep so many of a kind ready whatever is asked for, such as base=5 or py:2:1024=20 (repeat)")
	f.StringVar(&cfg.Wire.DefaultPolicy, "default-policy", cfg.Wire.DefaultPolicy, "network policy of sandboxes created without one: a file, a preset, deny or allow (default: deny; through E2B's API allow)")
	f.StringVar(&cfg.Wire.Presets, "presets", cfg.Wire.Presets, "file of policy presets of your own")
	f.StringVar(&cfg.Wire.SecretKeyFile, "secret-key-file", cfg.Wire.SecretKeyFile, "file of the key that secrets are sealed with (default: one in the data directory)")
	f.StringVar(&cfg.Wire.Issuer, "issuer", cfg.Wire.Issuer, "URL by which verifiers of identity tokens reach this daemon (default: where it listens)")
	f.Var((*config.Size)(&cfg.Wire.AuditSize), "audit-size", "how much of the audit log is kept")
	f.StringVar(&cfg.Wire.Table, "wire-table", cfg.Wire.Table, "file of names and addresses that stands for the whole network outside, for tests and closed set-ups")
	f.StringVar(&cfg.LogFormat, "log-format", cfg.LogFormat, "text or json")
	f.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "debug, info, warn or error")
	return c
}

// finishConfig sets what the shared flags say and checks the whole.
func (a *app) finishConfig(cfg *config.Config) error {
	cfg.DataDir = a.dataDirectory()
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

// announce tells a person where the daemon is, and how to use it after its API key was made. It names
// the key's file and never the key: stderr often goes to logs that others read.
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
