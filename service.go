package carrel

import (
	"context"
	"io"
	"iter"
	"sync"
	"time"
)

// Service makes, finds and ends sandboxes. It is safe for concurrent use. The two implementations,
// package client and [Open], behave alike.
//
// Every call is made by the [Caller] in its context. A caller sees its own project only: things of
// other projects are NotFound, as if they did not exist. A client's caller is the owner of its key.
// A service from Open has one caller, [Local].
type Service interface {
	Sandboxes
	Moments
	Templates
	Extras
	// Close releases the resources of this value. A client drops its connection; a service from
	// Open kills its sandboxes.
	Close() error
}

// Sandboxes is the life of sandboxes.
type Sandboxes interface {
	// Create makes a sandbox and returns once its guest answers. The record is
	// durable before Create returns. Errors: Invalid, NotFound (template),
	// Exhausted, Unsupported (tier), Unavailable.
	Create(ctx context.Context, opts CreateOptions) (Sandbox, error)
	// Get returns one sandbox. Error: NotFound.
	Get(ctx context.Context, id ID) (Sandbox, error)
	List(ctx context.Context, opts ListOptions) (Page, error)
	// Kill ends a running or paused sandbox. It returns when nothing of the sandbox is left but
	// snapshots that were asked for. Error: NotFound.
	Kill(ctx context.Context, id ID) error
	// SetTimeout makes the sandbox end after d, counted from now; with extendOnly it never makes it
	// end earlier. Errors: NotFound, Invalid.
	SetTimeout(ctx context.Context, id ID, d time.Duration, extendOnly bool) (Sandbox, error)
	// SetMetadata changes labels of a running or paused sandbox, and wakes nothing. Snapshots that
	// were taken before keep their labels, and what was used before is counted under the old ones.
	// Changes at the same time are all made. Errors: NotFound, Invalid, Conflict (it ends).
	SetMetadata(ctx context.Context, id ID, c MetadataChange) (Sandbox, error)
	// SetNetwork replaces all network rules of a running sandbox and cuts connections that the new
	// rules forbid. Errors: NotFound, Invalid, Conflict (it does not run).
	SetNetwork(ctx context.Context, id ID, n Network) (Sandbox, error)
	// Computer returns the inside of a running sandbox. Errors: NotFound, Conflict.
	Computer(ctx context.Context, id ID) (Computer, error)
	// Metrics returns samples between from and to (zero means open), oldest first.
	Metrics(ctx context.Context, id ID, from, to time.Time) ([]Metric, error)
	Logs(ctx context.Context, id ID, opts LogOptions) ([]LogEntry, error)
	// Events streams events after seq (0: from now) until ctx ends.
	Events(ctx context.Context, after int64) iter.Seq2[Event, error]
}

// Templates is the set of templates.
type Templates interface {
	ListTemplates(ctx context.Context) ([]Template, error)
	// GetTemplate finds a template by ID or name, in the order of [TemplateRef]. Errors: NotFound
	// (also for a text that means a snapshot), Invalid.
	GetTemplate(ctx context.Context, nameOrID string) (Template, error)
	// ImportTemplate makes a template from an archive stream: a tarball of a root
	// filesystem, an OCI layout or a docker-save archive, plain or compressed.
	// progress, which may be nil, is called now and then.
	ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(Progress)) (Template, error)
	// PullTemplate makes a template from an image in a registry. Without an image it makes the
	// built-in template with that name ahead of its first use; the name "kernel" brings the kernel of
	// virtual machines, which is no template. Errors: Invalid, NotFound (no such
	// image, or no such built-in template), Unavailable (the registry or mirror is away).
	PullTemplate(ctx context.Context, name, image string, progress func(Progress)) (Template, error)
	// UpdateTemplate changes how a template starts. Errors: NotFound, Invalid, Forbidden
	// (a built-in one).
	UpdateTemplate(ctx context.Context, nameOrID string, u TemplateUpdate) (Template, error)
	// DeleteTemplate removes a template; running sandboxes keep it. Errors:
	// NotFound, Forbidden (a built-in one).
	DeleteTemplate(ctx context.Context, nameOrID string) error
}

// Progress says how far a long job is.
type Progress struct {
	// "pull", "fetch", "unpack", "configure", "write", "pack", "push"
	Stage string `json:"stage"`
	Done  int64  `json:"done"`            // bytes
	Total int64  `json:"total,omitempty"` // bytes; 0 when not known
}

// Config configures [Open]. The zero value means simulated sandboxes and a temporary directory.
type Config struct {
	// Tier is the default tier of new sandboxes; "" is Sim.
	Tier Tier
	// DataDir holds templates and secrets; "" is a temporary directory that Close removes.
	DataDir string
	// Limits are the defaults for new sandboxes.
	Limits Limits
	// Programs are in every simulated sandbox. To add programs to one sandbox, see [Programs].
	Programs []Program
}

var (
	openerMu sync.Mutex
	opener   func(context.Context, Config) (Service, error)
)

// RegisterOpener is called by package local when it is imported; programs do not
// call it.
func RegisterOpener(open func(context.Context, Config) (Service, error)) {
	openerMu.Lock()
	defer openerMu.Unlock()
	opener = open
}

// Open starts a service inside this process: no daemon, no port. It has all of [Extras] but
// [Tracer] and [SSHAccess]. The program must import the implementation, as with database/sql:
//
//	import _ "github.com/carrel-dev/carrel/local"
//
// The service offers every tier that works on this machine, and opens a tier on its first use. For
// others the error is Unsupported and says what the machine lacks. Close kills every sandbox of the
// service. If the process ends without Close, they are killed, too.
func Open(ctx context.Context, cfg Config) (Service, error) {
	openerMu.Lock()
	open := opener
	openerMu.Unlock()
	if open == nil {
		return nil, &Error{Op: "open", Kind: Unsupported,
			Hint: `add: import _ "github.com/carrel-dev/carrel/local"`}
	}
	return open(ctx, cfg)
}
