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
	"slices"
	"strings"

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
	// Root is a directory of this driver alone.
	Root string
	// Identity is the ID of the data directory around Root. It tells this driver's processes and
	// groups from those of others on the same host, wherever the directory lies. "" takes the path
	// of Root for that.
	Identity string
	// Home is the data directory itself: the sandboxes' own directories lie two levels below. A
	// record of a sandbox that was started before the directory was moved names the earlier path.
	// "" is a directory that nobody moves.
	Home string
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

// Mark is a short word that tells this driver's groups and processes from those of others.
func (o *Options) Mark() string {
	if o.Identity == "" {
		sum := sha256.Sum256([]byte(o.Root))
		return hex.EncodeToString(sum[:4])
	}
	sum := sha256.Sum256([]byte(o.Identity + "/" + filepath.Base(o.Root)))
	return hex.EncodeToString(sum[:8])
}

// RootArg is the argument by which a driver recognises its own processes.
func (o *Options) RootArg() string { return "--root=" + o.markedRoot() }

// markedRoot is the path of Root, for people, and the mark. The path alone would not do: the
// directory may be moved, and another put in its place.
func (o *Options) markedRoot() string {
	if o.Identity == "" {
		return o.Root
	}
	return o.Root + "#" + o.Mark()
}

// IsOurs reports whether arguments of a process are those of this driver's processes. The path
// before the mark may be an earlier one.
func (o *Options) IsOurs(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		if o.Identity == "" {
			return a == o.RootArg()
		}
		return strings.HasPrefix(a, "--root=") && strings.HasSuffix(a, "#"+o.Mark())
	})
}

// home is the data directory that a record speaks of; "" if that can't be told.
func (o *Options) home(r *Record) string {
	if o.Home == "" || filepath.Base(r.Dir) != string(r.ID) {
		return ""
	}
	return filepath.Dir(filepath.Dir(r.Dir))
}

// Follow returns the present path of a file that a sandbox's record names. The data directory may
// have been moved since then.
func (o *Options) Follow(r *Record) func(path string) string {
	was := o.home(r)
	return func(path string) string {
		if rest, below := strings.CutPrefix(path, was+"/"); was != "" && was != o.Home && below {
			return filepath.Join(o.Home, rest)
		}
		return path
	}
}

// CheckOurs refuses a record of a sandbox that belongs to another data directory, of which this one
// is a copy. Nothing of such a sandbox may be touched. It is the second barrier: the service gives
// no such record to a driver. A record without an owner is of an older build; there the path
// decides. Errors: Unavailable (it is left alone), NotFound.
func (o *Options) CheckOurs(r *Record) error {
	if r.Owner != "" && r.Owner != o.Identity {
		return &carrel.Error{Op: OpRecover, Kind: carrel.Unavailable, ID: r.ID,
			Err: fmt.Errorf("it belongs to the data directory %s, which is another one", r.Owner)}
	}
	was := o.home(r)
	if r.Owner != "" || was == "" || was == o.Home {
		return nil
	}
	a, errA := os.Stat(was)
	b, errB := os.Stat(o.Home)
	if errA == nil && errB == nil && !os.SameFile(a, b) {
		return &carrel.Error{Op: OpRecover, Kind: carrel.NotFound, ID: r.ID,
			Err: fmt.Errorf("it belongs to the data directory %s, which is another one", was)}
	}
	return nil
}
