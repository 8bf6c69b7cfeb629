// Package config holds the daemon's settings: one struct, its defaults and its checks. Only this
// package and package cli read the environment.
//
// The order is defaults, a file, the environment, flags; each overrides the one before.
// [Config.Flags] declares the settings once for all of these, and [Config.Load] sets them.
// [Config.Validate] is called once, at the end, and names the bad field.
package config

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/carrel-dev/carrel"
)

// KeyFile is the file in the data directory that holds the daemon's API key.
const KeyFile = "api-key"

// The values of [Config.Base].
const (
	BaseAuto   = "auto"   // Debian's once it has been made; the template host until then
	BaseDebian = "debian" // Debian's; it is made before anything is served
	BaseHost   = "host"   // the template host, always
)

// Config has all settings of the daemon.
type Config struct {
	// Listen is the one address for the API and the gateway, host:port.
	Listen string
	// DataDir holds data that must survive: records, the API key, sandboxes' own files.
	DataDir string
	// AdoptCopy makes a daemon on a copy of a data directory the owner of everything in it. Its
	// original must be gone for good.
	AdoptCopy bool
	// CacheDir holds data that can be made again: templates built from this machine.
	CacheDir string
	// Domain is the end of sandboxes' host names: <port>-<id>.<Domain>. It may carry a port, for
	// clients that must add one. Empty means header routing only.
	Domain string
	// TLSCert and TLSKey are PEM files; both or neither. The files are read again when they change,
	// and on SIGHUP.
	TLSCert, TLSKey string

	// DefaultTier is the tier of sandboxes that ask for none; "" takes the strongest tier that
	// works on this host.
	DefaultTier carrel.Tier
	// DefaultTemplate is the template of sandboxes that ask for none.
	DefaultTemplate string
	// Base says what the template base is: [BaseAuto], [BaseDebian] or [BaseHost]; "" is the first.
	Base string
	// DebianMirror is the address of Debian's archive, from which built-in templates are made; "" is
	// the one that this machine's apt uses. NoFirstUse makes such templates only on request.
	DebianMirror string
	NoFirstUse   bool
	// PriceFile is the price list for usage; "" is none.
	PriceFile string
	// Limits are the defaults for sandboxes that ask for none.
	Limits carrel.Limits
	// MaxLimits bounds the limits that a request may ask for. Zero fields are not bounded.
	MaxLimits carrel.Limits
	// MaxSandboxes bounds how many sandboxes live at once.
	MaxSandboxes int
	// MaxStarting bounds how many sandboxes start or resume at once. MaxQueued bounds how many more
	// may wait for that. 0 takes a value that suits the machine. MaxWait bounds the wait of each.
	MaxStarting, MaxQueued int
	MaxWait                time.Duration
	// BlankSentries is how many gVisor kernels to keep that were started before there is a sandbox
	// for them; 0 is none.
	BlankSentries int
	// MicroVMKernel is a directory with the kernel of virtual machines: vmlinuz or vmlinux, and the
	// modules it needs as modules/NAME.ko. "" is the one that the daemon got as the template
	// "kernel". NoKVM runs them by emulation only.
	MicroVMKernel string
	// MicroVMEngine is the program that runs virtual machines: qemu, firecracker, or "" for the first
	// of them that is there.
	MicroVMEngine string
	NoKVM         bool
	// MemoryReserve is the memory, in bytes, that new sandboxes leave free; 0 is a twentieth of the
	// machine's.
	MemoryReserve int64
	// MemoryOvercommit bounds the sum of all sandboxes' memory limits, as a multiple of the
	// machine's memory; 0 is no bound.
	MemoryOvercommit float64
	// DefaultTimeout ends sandboxes that are created through our own API without a timeout. E2B's
	// endpoints use E2B's defaults.
	DefaultTimeout time.Duration
	// MaxTimeout bounds the timeout that a request may ask for.
	MaxTimeout time.Duration
	// MaxConnections bounds the client connections held open at once; 0 derives
	// it from the limit on open files.
	MaxConnections int
	// MaxSandboxConnections bounds the open requests to one sandbox.
	MaxSandboxConnections int

	// SnapshotStore is the place of snapshots: a directory, or s3://bucket/prefix; "" is the
	// directory snapshots in the data directory.
	SnapshotStore string
	// SnapshotQuota bounds the space of snapshots on this machine's disk, in bytes; 0 is no bound.
	SnapshotQuota int64
	// SnapshotCache bounds the uncompressed copies of snapshots, in bytes. The newest snapshots are
	// restored from these copies, without unpacking.
	SnapshotCache int64
	// MaxPaused bounds how many sandboxes may be paused at once; 0 is no bound.
	MaxPaused int
	// OnUpgrade says how the memory of a sandbox is saved that another build started: "keep",
	// "files" or "refuse".
	OnUpgrade string
	// S3 is the access to a SnapshotStore of the form s3://….
	S3 S3

	// Warm is what is kept ready.
	Warm Warm
	// AllowWebhooks are hosts that webhooks may be sent to wherever they are: HOST, HOST:PORT or
	// http://HOST:PORT.
	AllowWebhooks []string
	// Registries has the settings for registries of images.
	Registries Registries
	// Trail has the settings for the audit trail of what callers did.
	Trail Trail
	// SignIn has the settings for people who sign in.
	SignIn SignIn
	// Wire has the settings for traffic out of sandboxes.
	Wire Wire
	// Ingress has the settings for traffic in.
	Ingress Ingress

	// Fleet makes the daemon a node of a fleet.
	Fleet Fleet

	// MetricsListen is the address where metrics need no key; "" is none.
	MetricsListen string

	LogFormat string // "text" or "json"
	LogLevel  string // "debug", "info", "warn" or "error"
}

// Default returns the default settings. The directories depend on the user: root gets the system's,
// others their own.
func Default() Config {
	return Config{
		Listen:                "127.0.0.1:7070",
		DataDir:               dataDir(os.Geteuid(), os.Getenv),
		CacheDir:              cacheDir(os.Geteuid(), os.Getenv),
		DefaultTemplate:       "base",
		Base:                  BaseAuto,
		Limits:                carrel.Limits{CPUs: 2, MemoryMB: 1024, DiskMB: 10240, Pids: 1024},
		MaxLimits:             carrel.Limits{CPUs: float64(max(2, runtime.NumCPU())), MemoryMB: 65536, DiskMB: 1 << 20, Pids: 32768},
		MaxSandboxes:          10000,
		MaxQueued:             1000,
		BlankSentries:         2,
		MaxWait:               20 * time.Second,
		DefaultTimeout:        5 * time.Minute,
		MaxTimeout:            720 * time.Hour,
		MaxSandboxConnections: 1024,
		SnapshotCache:         8 << 30,
		MaxPaused:             10000,
		OnUpgrade:             "keep",
		Warm:                  Warm{Cap: defaultWarm},
		Registries:            Registries{LayerCache: 4 << 30},
		Wire:                  defaultWire,
		Trail:                 defaultTrail,
		Fleet:                 defaultFleet,
		SignIn:                defaultSignIn,
		LogFormat:             "text",
		LogLevel:              "info",
	}
}

// dataDir returns the directory of records.
func dataDir(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/var/lib/carrel"
	}
	return userDir(getenv, "XDG_DATA_HOME", ".local/share")
}

// cacheDir returns the directory of templates that can be made again.
func cacheDir(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/var/cache/carrel"
	}
	return userDir(getenv, "XDG_CACHE_HOME", ".cache")
}

// userDir follows the XDG base directory rules: a relative value is ignored.
func userDir(getenv func(string) string, variable, below string) string {
	if d := getenv(variable); filepath.IsAbs(d) {
		return filepath.Join(d, "carrel")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, below, "carrel")
	}
	return filepath.Join(os.TempDir(), "carrel")
}
