package guest

import (
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// InitRequest is the body of POST /init: it turns a booted guest into this one sandbox. It is sent
// after every start and every restore. The first six fields are envd's own.
type InitRequest struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    string            `json:"accessToken,omitempty"` // "" opens the guest to everyone who reaches it
	Timestamp      time.Time         `json:"timestamp,omitzero"`    // sets the clock
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
	SandboxID      string            `json:"sandboxID,omitempty"`
	Hostname       string            `json:"hostname,omitempty"`
	TemplateID     string            `json:"templateID,omitempty"`
	// Restored marks the first /init after a restore with memory. Before the guest serves anything
	// else, it drops every old connection, writes its identity files afresh and runs the hooks.
	// Order and Timestamp may be older than those of the /init before. A repeat with the same
	// SandboxID and Generation is an ordinary /init.
	Restored bool `json:"restored,omitempty"`
	// Order rises with each new /init, whatever the host's clock does. The guest ignores a request
	// with a lower order than the newest, so a delayed repeat can't put an old token back. If
	// either has no order (0), the Timestamps decide, as with envd.
	Order uint64 `json:"order,omitempty"`
	// Generation counts the sandbox's restores.
	Generation int `json:"generation,omitempty"`
	// CheckpointBefore are regular expressions. If one of them matches a command, the guest asks
	// the host for a checkpoint before it starts that command. Each /init replaces the whole list.
	// They see commands that are started through the guest, not lines typed into a shell.
	CheckpointBefore []string `json:"checkpointBefore,omitempty"`
	// Authority is a certificate in PEM that programs inside must trust: the wire opens TLS with
	// it. The guest writes it, with the certificates that the template trusts, into AuthorityFile
	// and BundleFile. It points the variables of Node, Python, Go, git, curl, Java and others to
	// these files. "" changes nothing.
	Authority string `json:"authority,omitempty"`
	// Silent turns off the explanation of refusals inside.
	Silent bool `json:"silent,omitempty"`
}

// LeaveRequest is the body of POST LeavePath: the sandbox is about to be paused or rolled back. The
// guest ends every open stream with the reason and answers once the reason is sent. Processes run
// on.
type LeaveRequest struct {
	Reason string `json:"reason"` // for the clients: "the sandbox was paused"
}

// LeavePath is where the guest takes a LeaveRequest.
const LeavePath = "/carrel/leave"

// ActivityPath is where the guest answers an [Activity] to a GET.
const ActivityPath = "/carrel/activity"

// Activity is the present activity of a guest.
type Activity struct {
	// Processes counts running processes that were started through the guest, without the
	// template's own start command ([StartTag]).
	Processes int `json:"processes"`
	// Streams counts open requests: process and watch streams, uploads and downloads, tunnels.
	Streams int `json:"streams"`
}

// Files with the wire's authority inside the sandbox: alone; together with all others that the
// sandbox trusts, in PEM; and the same as a PKCS #12 trust store (password "changeit") for Java.
const (
	AuthorityFile  = "/run/carrel/ca.pem"
	BundleFile     = "/run/carrel/ca-bundle.pem"
	TrustStoreFile = "/run/carrel/ca-bundle.p12"
)

// RefusedPath is where the guest takes a [Refusal], only from the host, and answers with a
// RefusalReply.
const RefusedPath = "/carrel/refused"

// DeniedFile holds the traffic that the wire refused, one [carrel.Decision] in JSON on each line.
// When it grows too large, it is renamed to DeniedFile + ".1" and a new file begins.
const DeniedFile = "/run/carrel/denied.jsonl"

// Refusal tells a sandbox about refused traffic, before its program notices.
type Refusal struct {
	Event carrel.Decision `json:"event"`
	// Line is for the person who runs the program: the refused destination, the reason, and the
	// rule to ask for. The guest writes it to the standard error of the command that the program
	// belongs to.
	Line string `json:"line"`
	// SourcePort is the sandbox's port of the connection or DNS query.
	SourcePort uint16 `json:"sourcePort"`
	UDP        bool   `json:"udp,omitempty"`
	// Held says that the connection is not refused: it waits for a person. It is no denial.
	Held bool `json:"held,omitempty"`
}

// RefusalReply names the program, if it is known: "curl (pid 12)".
type RefusalReply struct {
	Process string `json:"process,omitempty"`
}

// StartTag is the tag of the process of the template's own start command.
const StartTag = "carrel.start"

// Files that tell programs about a restore. They are replaced by renaming, so watch their
// directory. The guest can't refresh a process's own state. A random generator that was seeded
// before the snapshot, or an id that was drawn before it, is the same in every copy. A program that
// cares compares the generation before it draws; see also the hooks in [HookDir].
const (
	// AnnounceDir holds the ids of the sandbox and its template, where E2B's templates look for
	// them.
	AnnounceDir = "/run/e2b"
	// GenerationFile holds the sandbox's InitRequest.Generation in decimal. It is written last.
	// Before the first restore it is absent, but its directory exists.
	GenerationFile = "/run/carrel/generation"
	// RestoredFile holds the time of the restore, RFC 3339.
	RestoredFile = "/run/carrel/snapshot-restored"
	// HookDir holds executables that the guest runs after a restore with memory, before it serves
	// the first request. They run as root, in the order of their names, each for at most 10 s, with
	// CARREL_GENERATION and CARREL_SANDBOX_ID in the environment.
	HookDir = "/etc/carrel/after-restore.d"
)

// Requests from a sandbox to its host, over plain HTTP at the gateway's address and [HostPort]:
// POST CheckpointPath takes a CheckpointRequest. The answer is a CheckpointReply, or an error in
// the form of E2B's API.
//
// The same server answers at [MetadataIPv4] and port 80, as in clouds: GET TokenPath?audience=… or
// ?name=…, with the header "Metadata-Flavor: Carrel", returns a [carrel.Token].
const (
	HostPort       uint16 = 49980
	MetadataIPv4          = "169.254.169.254"
	TokenPath             = "/carrel/v1/identity/token"
	CheckpointPath        = "/checkpoint"
)

// CheckpointRequest asks for a snapshot of the sandbox that sends it.
type CheckpointRequest struct {
	Label     string `json:"label,omitempty"`
	FilesOnly bool   `json:"filesOnly,omitempty"`
	// Command is the line of the command that is about to start, if CheckpointBefore matched it.
	Command string `json:"command,omitempty"`
}

// CheckpointReply names the snapshot.
type CheckpointReply struct {
	SnapshotID string `json:"snapshotID"`
	Generation int    `json:"generation"` // of the sandbox that asked
}

// The tunnel lets the host reach listeners on the sandbox's loopback: GET TunnelPath + port with
// "Upgrade: carrel-tunnel". The answer is 101, followed by raw bytes both ways, or 502 if nothing
// listens.
const (
	TunnelPath     = "/carrel/tunnel/"
	TunnelProtocol = "carrel-tunnel"
)

// Internal reports whether a guest route is only for the host. The gateway answers 404 for such
// routes, as E2B's does; the guest itself answers them only to trusted peers.
func Internal(path string) bool {
	switch path {
	case "/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade":
		return true
	}
	return strings.HasPrefix(path, "/carrel/")
}
