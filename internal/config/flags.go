package config

import "github.com/spf13/pflag"

// Flags adds a flag for each setting. The settings' present values are the flags' defaults.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Listen, "listen", c.Listen, "address to listen on")
	f.StringVar(&c.Domain, "domain", c.Domain, "serve ports at <port>-<id>.DOMAIN")
	f.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "certificate file (PEM) for DOMAIN and *.DOMAIN")
	f.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "the certificate's key file (PEM)")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of what must survive: records, the API key, sandboxes' own files")
	f.BoolVar(&c.AdoptCopy, "adopt-copy", c.AdoptCopy,
		"this data directory is a copy, and its original is gone for good: own everything in it, under the old IDs (for one start)")
	f.StringVar(&c.CacheDir, "cache-dir", c.CacheDir,
		"directory of what can be made again (built-in templates)")
	f.StringVar((*string)(&c.DefaultTier), "default-tier", string(c.DefaultTier), "tier of sandboxes that ask for none (default: the strongest that works here)")
	f.StringVar(&c.DefaultTemplate, "default-template", c.DefaultTemplate, "template of sandboxes that ask for none")
	f.StringVar(&c.Base, "base", c.Base,
		"what the template base is: auto (Debian's once carrel template get base has made it, "+
			"until then this machine's tools), debian (made before anything is served) or host "+
			"(this machine's tools)")
	f.StringVar(&c.DebianMirror, "debian-mirror", c.DebianMirror,
		"address of Debian's archive, for the built-in templates (default: the one that this machine's apt uses)")
	f.StringVar(&c.PriceFile, "price-file", c.PriceFile, "price list that turns usage into money, of YAML or JSON (default: none)")
	f.BoolVar(&c.NoFirstUse, "no-first-use", c.NoFirstUse,
		"make built-in templates of Debian's packages only by carrel template get, not at their first use")
	f.IntVar(&c.MaxSandboxes, "max-sandboxes", c.MaxSandboxes, "how many may live at once; below that the machine's memory, disk and descriptors decide")
	f.IntVar(&c.MaxStarting, "max-starting", c.MaxStarting, "how many may start or resume at once (0: 32 for each processor; below that the daemon finds out what the machine sustains)")
	f.IntVar(&c.MaxQueued, "max-queued", c.MaxQueued, "how many may wait for that; more are refused, with when to try again")
	f.DurationVar(&c.MaxWait, "max-wait", c.MaxWait, "how long one may wait for it")
	f.IntVar(&c.MaxConnections, "max-connections", c.MaxConnections, "how many client connections may be open at once (0: as the limit on open files allows)")
	f.IntVar(&c.MaxSandboxConnections, "max-sandbox-connections", c.MaxSandboxConnections, "how many requests to one sandbox may be under way at once")
	f.Var((*Size)(&c.MemoryReserve), "memory-reserve", "memory that new sandboxes leave alone (0: a twentieth of the machine's)")
	f.Float64Var(&c.MemoryOvercommit, "memory-overcommit", c.MemoryOvercommit, "how many times the machine's memory all sandboxes' memory limits may come to (0: any number)")
	f.DurationVar(&c.DefaultTimeout, "default-timeout", c.DefaultTimeout, "life of sandboxes that ask for none")
	f.DurationVar(&c.MaxTimeout, "max-timeout", c.MaxTimeout, "the longest life that may be asked for")
	f.Float64Var(&c.Limits.CPUs, "default-cpus", c.Limits.CPUs, "processor cores of sandboxes that ask for none")
	f.IntVar(&c.Limits.MemoryMB, "default-memory", c.Limits.MemoryMB, "their memory in MiB")
	f.IntVar(&c.Limits.DiskMB, "default-disk", c.Limits.DiskMB, "their disk in MiB")
	f.IntVar(&c.Limits.Pids, "default-pids", c.Limits.Pids, "their processes and threads")
	f.IntVar(&c.Warm.Cap, "warm", c.Warm.Cap, "how many sandboxes may be kept ready, by what was asked for lately (0: none)")
	f.IntVar(&c.BlankSentries, "blank-sentries", c.BlankSentries, "how many kernels of gVisor sandboxes are started ahead, before there is a sandbox for them (0: none)")
	f.StringVar(&c.MicroVMKernel, "microvm-kernel", c.MicroVMKernel, "directory with the kernel of sandboxes of tier microvm: vmlinuz or vmlinux, and modules/*.ko (default: the one that carrel template get kernel brought)")
	f.StringVar(&c.MicroVMEngine, "microvm-engine", c.MicroVMEngine, "what runs sandboxes of tier microvm: qemu or firecracker (default: QEMU if it is installed)")
	f.BoolVar(&c.NoKVM, "no-kvm", c.NoKVM, "run sandboxes of tier microvm by emulation, even where /dev/kvm is")
	f.Var(&c.Warm.Floors, "warm-floor", "keep so many of a kind ready whatever is asked for, such as base=5 or py:2:1024=20 (repeat)")
	f.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen,
		"address where Prometheus reads /metrics without a key, such as 127.0.0.1:9464 (default: none; with the key it is on the daemon's own)")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	c.ingressFlags(f)
	c.snapshotFlags(f)
	c.registryFlags(f)
	c.wireFlags(f)
	c.Trail.Flags(f)
	c.SignIn.Flags(f)
	c.SignIn.idleFlag(f)
	c.fleetFlags(f)
}

// ingressFlags adds the flags for traffic in.
func (c *Config) ingressFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.Ingress.SelfSigned, "tls-self-signed", c.Ingress.SelfSigned, "serve TLS with an authority of this daemon's own, for development (see carrel ca)")
	f.StringSliceVar(&c.Ingress.ACMEDomains, "acme-domain", c.Ingress.ACMEDomains, "name to get a certificate for from an ACME authority (repeat)")
	f.StringVar(&c.Ingress.ACMEEmail, "acme-email", c.Ingress.ACMEEmail, "where that authority may write to")
	f.StringVar(&c.Ingress.ACMECA, "acme-ca", c.Ingress.ACMECA, "its directory's URL (default: Let's Encrypt)")
	f.StringVar(&c.Ingress.ACMERoots, "acme-ca-root", c.Ingress.ACMERoots, "file (PEM) that vouches for its own HTTPS (default: the system's)")
	f.StringVar(&c.Ingress.ACMEHTTPListen, "acme-http-listen", c.Ingress.ACMEHTTPListen, "address for HTTP-01 challenges, such as :80 (default: only TLS-ALPN-01, on the daemon's own)")
	f.BoolVar(&c.Ingress.ACMEOnDemand, "acme-on-demand", c.Ingress.ACMEOnDemand, "also get certificates for sandboxes' host names when they are asked for, 20 an hour at most")
	f.StringVar(&c.Ingress.SSHListen, "ssh-listen", c.Ingress.SSHListen, "address to serve SSH on, such as 127.0.0.1:2222 (default: none; carrel ssh needs none)")
}

// snapshotFlags adds the flags for snapshots.
func (c *Config) snapshotFlags(f *pflag.FlagSet) {
	f.StringVar(&c.SnapshotStore, "snapshot-store", c.SnapshotStore, "where snapshots are kept: a directory, or s3://BUCKET/PREFIX with AWS_* in the environment (default: in the data directory)")
	f.Var((*Size)(&c.SnapshotQuota), "snapshot-quota", "what they may take on this machine's disk, such as 200GiB (0: no bound)")
	f.Var((*Size)(&c.SnapshotCache), "snapshot-cache", "what of it may be uncompressed copies, for quick restoring")
	f.IntVar(&c.MaxPaused, "max-paused", c.MaxPaused, "how many sandboxes may be paused at once (0: no bound)")
	f.StringVar(&c.OnUpgrade, "on-upgrade", c.OnUpgrade,
		"how memory is saved of a sandbox that another build started: keep (that build's kernel is kept, and restores it), files (files only) or refuse")
}

// wireFlags adds the flags for traffic out of sandboxes.
func (c *Config) wireFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Wire.DefaultPolicy, "default-policy", c.Wire.DefaultPolicy, "network policy of sandboxes created without one: a file, a preset, deny or allow (default: deny; through E2B's API allow)")
	f.StringVar(&c.Wire.HostServices, "allow-host-services", c.Wire.HostServices, "whose sandboxes may reach services on this machine's 127.0.0.1 that their policy opens: none, own (the daemon's own key) or all (default: own when it listens on loopback, else none)")
	f.StringVar(&c.Wire.Presets, "presets", c.Wire.Presets, "file of policy presets of your own")
	f.StringVar(&c.Wire.SecretKeyFile, "secret-key-file", c.Wire.SecretKeyFile, "file of the key that secrets are sealed with (default: one in the data directory)")
	f.StringVar(&c.Wire.Issuer, "issuer", c.Wire.Issuer, "URL by which verifiers of identity tokens reach this daemon (default: where it listens)")
	f.Var((*Size)(&c.Wire.AuditSize), "audit-size", "how much of the audit log is kept")
	f.StringVar(&c.Wire.Table, "wire-table", c.Wire.Table, "file of names and addresses that stands for the whole network outside, for tests and closed set-ups")
}
