package guest

import (
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// InitRequest is the body of POST /init: what makes a booted guest this sandbox
// and no other. It is sent after every start and every restore. The first six
// fields are envd's own.
type InitRequest struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    string            `json:"accessToken,omitempty"` // "" opens the guest to all who reach it
	Timestamp      time.Time         `json:"timestamp,omitzero"`    // sets the clock
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
	SandboxID      string            `json:"sandboxID,omitempty"`
	Hostname       string            `json:"hostname,omitempty"`
	TemplateID     string            `json:"templateID,omitempty"`
	// Restored says that this is the first /init after a restore with memory: the guest
	// drops every connection it had, writes its identity files afresh and runs the hooks,
	// before anything else is served. Its Order and Timestamp may be older than those of the
	// /init before. A repeat with the same SandboxID and Generation is an ordinary one.
	Restored bool `json:"restored,omitempty"`
	// Order rises from each /init to the next that is meant to replace it, whatever the host's clock
	// does: the guest ignores one of a lower order than the newest, so that a delayed repeat can't put
	// an old token back. Where either has none (0) the Timestamps decide, as with envd.
	Order uint64 `json:"order,omitempty"`
	// Generation counts the sandbox's restores.
	Generation int `json:"generation,omitempty"`
	// CheckpointBefore are regular expressions: before a command that one of them matches
	// the guest asks the host for a checkpoint. Each /init replaces them all. They see
	// commands that are started through the guest, not what is typed into a shell.
	CheckpointBefore []string `json:"checkpointBefore,omitempty"`
	// Authority is a certificate in PEM that programs inside are to trust: the one with
	// which the wire opens TLS. The guest puts it, with those that the template trusts, into
	// AuthorityFile and BundleFile and points the variables there that Node, Python, Go, git,
	// curl, Java and others read. "" leaves what there is.
	Authority string `json:"authority,omitempty"`
	// Silent: no refusals are explained inside.
	Silent bool `json:"silent,omitempty"`
}

// LeaveRequest is the body of POST LeavePath: the sandbox is about to be paused or
// rolled back. The guest ends every open stream with the reason and answers when
// that is sent; processes run on.
type LeaveRequest struct {
	Reason string `json:"reason"` // for the clients: "the sandbox was paused"
}

// LeavePath is where the guest takes a LeaveRequest.
const LeavePath = "/carrel/leave"

// ActivityPath is where the guest answers an [Activity] to a GET.
const ActivityPath = "/carrel/activity"

// Activity is what goes on in a guest now.
type Activity struct {
	// Processes were started through the guest and still run; the template's own start
	// command ([StartTag]) is not counted.
	Processes int `json:"processes"`
	// Streams are the requests that are open: process and watch streams, uploads and
	// downloads, tunnels.
	Streams int `json:"streams"`
}

// Where the sandbox finds the wire's authority: alone, with all others that it
// trusts in PEM, and the same as a PKCS #12 trust store (password "changeit") for Java.
const (
	AuthorityFile  = "/run/carrel/ca.pem"
	BundleFile     = "/run/carrel/ca-bundle.pem"
	TrustStoreFile = "/run/carrel/ca-bundle.p12"
)

// RefusedPath is where the guest takes a [Refusal], from the host alone, and answers
// with a RefusalReply.
const RefusedPath = "/carrel/refused"

// DeniedFile holds what the wire refused, one [carrel.Decision] in JSON on each line,
// the oldest dropped when it grows too large.
const DeniedFile = "/run/carrel/denied.jsonl"

// Refusal tells a sandbox that something of it was refused, before it notices.
type Refusal struct {
	Event carrel.Decision `json:"event"`
	// Line is for whoever runs the program: what, why, and what to ask for. The guest
	// writes it to the standard error of the command that the program belongs to.
	Line string `json:"line"`
	// SourcePort is the sandbox's port of the connection or question.
	SourcePort uint16 `json:"sourcePort"`
	UDP        bool   `json:"udp,omitempty"`
}

// RefusalReply says which program it was, if that could be found out: "curl (pid 12)".
type RefusalReply struct {
	Process string `json:"process,omitempty"`
}

// StartTag marks the template's own start command among the processes.
const StartTag = "carrel.start"

// Files by which programs in a restored sandbox can know of it. They are replaced
// by renaming, so watch their directory. What the guest can't do is to refresh a
// process's own state: a random generator that was seeded before the snapshot, or
// an id that was drawn, is the same in every copy. A program that cares compares
// the generation before it draws; see also the hooks in [HookDir].
const (
	// AnnounceDir holds the sandbox's and its template's ids, where E2B's templates look for them.
	AnnounceDir = "/run/e2b"
	// GenerationFile holds the sandbox's InitRequest.Generation in decimal. It is written
	// last, and absent before the first restore; its directory is there from the start.
	GenerationFile = "/run/carrel/generation"
	// RestoredFile holds the time of the restore, RFC 3339.
	RestoredFile = "/run/carrel/snapshot-restored"
	// HookDir holds executables that run as root, in the order of their names, after a
	// restore with memory and before the first request is served, each for at most 10 s, with
	// CARREL_GENERATION and CARREL_SANDBOX_ID in the environment.
	HookDir = "/etc/carrel/after-restore.d"
)

// What a sandbox may ask of its host, over plain HTTP at the gateway's address and
// [HostPort]: POST CheckpointPath with a CheckpointRequest, answered by a
// CheckpointReply or an error as E2B's API forms it.
//
// The same door is open at [MetadataIPv4] and port 80, as clouds have it: GET
// TokenPath?audience=… or ?name=…, with the header "Metadata-Flavor: Carrel", is
// answered by a [carrel.Token].
const (
	HostPort       uint16 = 49980
	MetadataIPv4          = "169.254.169.254"
	TokenPath             = "/carrel/v1/identity/token"
	CheckpointPath        = "/checkpoint"
)

// CheckpointRequest asks for a snapshot of the sandbox that asks.
type CheckpointRequest struct {
	Label     string `json:"label,omitempty"`
	FilesOnly bool   `json:"filesOnly,omitempty"`
	// Command is the line of the command that is about to start, where CheckpointBefore
	// matched.
	Command string `json:"command,omitempty"`
}

// CheckpointReply names the snapshot.
type CheckpointReply struct {
	SnapshotID string `json:"snapshotID"`
	Generation int    `json:"generation"` // of the sandbox that asked
}

// Tunnel is how the host reaches listeners on the sandbox's loopback: GET
// TunnelPath + port with "Upgrade: carrel-tunnel". The answer is 101 and then raw
// bytes both ways, or 502 when nothing listens.
const (
	TunnelPath     = "/carrel/tunnel/"
	TunnelProtocol = "carrel-tunnel"
)

// Internal reports whether a guest route is for the host alone. The gateway
// answers 404 for these, as E2B's does; the guest itself answers them only to
// trusted peers.
func Internal(path string) bool {
	switch path {
	case "/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade":
		return true
	}
	return strings.HasPrefix(path, "/carrel/")
}
