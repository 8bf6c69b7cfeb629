//go:build linux

package hosted

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// SelfName is a path of the running binary. It stays valid after the binary was replaced on disk.
const SelfName = "/proc/self/exe"

// Options are the parameters of every driver of this kind. A driver's own Options embed them.
type Options struct {
	// Root is a directory of this driver alone. Its path also tells this driver's sandboxes from
	// those of another on the same host.
	Root string
	// Network makes the daemon's ends of the links.
	Network driver.Network
	// Keeper holds the links while the daemon is away. Without a keeper nothing can be recovered.
	Keeper FDKeeper
	// Executable is the binary of the sandboxes' first processes. "" is the running binary, whose
	// main must call reexec.Run with the driver's Parts. Every user must be allowed to execute it.
	Executable string
	// Log takes messages that a person may need later. nil discards them.
	Log *slog.Logger
}

// Prepare checks the options of a driver and fills in defaults. It makes the driver's root and the
// parents of its control groups; their name begins with prefix and ends with [Options.Mark]. The
// caller closes the groups. Errors: Invalid, and Unsupported when the program never called
// reexec.Run.
func (o *Options) Prepare(op, prefix string) (*cgroup.Hierarchy, error) {
	// Sandboxes must not inherit descriptors from this process. An inherited one would stay open,
	// and could occupy a number that a sentry needs.
	proc.CloseOnExec(3)
	fail := func(kind carrel.Kind, field string, err error, hint string) (*cgroup.Hierarchy, error) {
		return nil, &carrel.Error{Op: op, Kind: kind, Field: field, Err: err, Hint: hint}
	}
	if !filepath.IsAbs(o.Root) {
		return fail(carrel.Invalid, "root", fmt.Errorf("%q is not an absolute path", o.Root), "")
	}
	if o.Network == nil {
		return fail(carrel.Invalid, "network", errors.New("no network given"), "")
	}
	if o.Executable == "" {
		if !reexec.Ready() {
			return fail(carrel.Unsupported, "", errors.New("this program can't start itself as a sandbox"),
				"call carrel's re-exec hook first thing in main, or name the carrel binary")
		}
		o.Executable = SelfName
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return fail(carrel.Internal, "", err, "")
	}
	groups, err := cgroup.Open(prefix + o.Mark())
	if err != nil {
		return fail(carrel.Internal, "", err, "")
	}
	return groups, nil
}

// Mark is a short word that tells drivers with different roots apart.
func (o *Options) Mark() string {
	sum := sha256.Sum256([]byte(o.Root))
	return hex.EncodeToString(sum[:4])
}
