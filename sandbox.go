package carrel

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// Tier is how strong a sandbox's wall is.
type Tier string

// The tiers, beginning with the one that needs least from the host.
const (
	Sim     Tier = "sim"     // an interpreter of our own: no syscalls at all
	NS      Tier = "ns"      // Linux namespaces, Landlock and seccomp on the host kernel
	GVisor  Tier = "gvisor"  // a second kernel in software
	MicroVM Tier = "microvm" // a kernel of its own in a virtual machine
)

// State is a stage of a sandbox's life.
type State string

// The states. A sandbox that ended is no longer listed; its end is an [Event].
const (
	Starting State = "starting"
	Running  State = "running"
	Pausing  State = "pausing" // its state is being saved; if that fails it runs on
	Paused   State = "paused"
	Resuming State = "resuming" // if that fails it is paused again
	Stopping State = "stopping"
)

// Well-known ports inside every sandbox.
const (
	// GuestPort is where the guest serves the envd protocol.
	GuestPort uint16 = 49983
	// InterpreterPort is where a code interpreter serves, if the template has one.
	InterpreterPort uint16 = 49999
)

// EnvdVersion is the version of the envd protocol that the guest speaks. E2B's SDKs decide by it
// which features they use.
const EnvdVersion = "0.6.13"

// Limits bounds what one sandbox may use. Zero fields take the service's
// defaults.
type Limits struct {
	CPUs     float64 `json:"cpus,omitempty"`     // cores; 0.5 is half of one
	MemoryMB int     `json:"memoryMB,omitempty"` // MiB of memory, everything in the sandbox together
	DiskMB   int     `json:"diskMB,omitempty"`   // MiB that may be written on top of the template
	Pids     int     `json:"pids,omitempty"`     // processes and threads inside the sandbox
}

// Network says which traffic may leave a sandbox and who may come in. The zero value lets nothing
// out. There are two forms for outgoing traffic: Policy is Carrel's; Internet, AllowOut, DenyOut,
// Rules and EgressProxy are E2B's, with E2B's meaning. Both forms at once are Invalid, except that
// EgressProxy may go with Policy.
type Network struct {
	// Policy is the complete rule set for outgoing traffic; nil for E2B's form.
	Policy *Policy `json:"policy,omitempty"`
	// Internet is the simple switch: true lets everything out except to this host, link-local and
	// private addresses.
	Internet bool `json:"internet"`
	// AllowOut are names ("example.com", "*.example.com"), addresses and CIDRs. DenyOut are
	// addresses and CIDRs. AllowOut wins over DenyOut.
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`
	// Rules change requests, by host. They open nothing.
	Rules map[string][]NetworkRule `json:"rules,omitempty"`
	// EgressProxy is the proxy for all TCP; nil for none.
	EgressProxy *EgressProxy `json:"egressProxy,omitempty"`
	// PrivateTraffic demands the sandbox's traffic token from outside requests to all ports but the
	// guest's.
	PrivateTraffic bool `json:"privateTraffic,omitempty"`
	// MaskHost replaces the Host header of outside requests to all ports but the guest's; "${PORT}"
	// in it stands for the port. "" leaves the header alone.
	MaskHost string `json:"maskHost,omitempty"`
	// HTTPSPorts are ports whose servers speak TLS. The gateway connects to them with TLS and
	// accepts any certificate: nobody is between it and the server.
	HTTPSPorts []uint16 `json:"httpsPorts,omitempty"`
}

// CreateOptions says what sandbox to make. The zero value means the default template, the default
// limits and the service's default timeout.
type CreateOptions struct {
	// Name is an extra name for the sandbox in its project; "" for none. See [CheckName].
	Name     string        `json:"name,omitempty"`
	Template string        `json:"template,omitempty"` // a TemplateRef; "" is "base"
	Tier     Tier          `json:"tier,omitempty"`     // "" is the template's, or the service's default
	Timeout  time.Duration `json:"timeout,omitempty"`  // until it is killed; 0 is the default, negative is Invalid
	// NoTimeout gives it the longest timeout that the service allows. Timeout must then be 0.
	NoTimeout bool              `json:"noTimeout,omitempty"`
	Limits    Limits            `json:"limits,omitzero"`
	Env       map[string]string `json:"env,omitempty"`      // default environment of every command
	Metadata  map[string]string `json:"metadata,omitempty"` // the caller's own labels, searchable with List
	Network   Network           `json:"network,omitzero"`
	// Tokens are the identity tokens that the sandbox may have, by names that the caller chooses.
	Tokens map[string]TokenSpec `json:"tokens,omitempty"`
	// Lifecycle says what the service does to the sandbox by itself.
	Lifecycle Lifecycle `json:"lifecycle,omitzero"`
	// Insecure leaves the guest open to anyone who can reach the gateway, as E2B's v1 API does for
	// secure=false. By default the guest demands an access token.
	Insecure bool `json:"insecure,omitempty"`
	// IdempotencyKey makes it safe to send one creation several times. The first one with a key
	// makes the sandbox; the others of the project get the same sandbox, or wait for it. "" is none.
	// See [CheckIdempotencyKey].
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// Sandbox is the service's knowledge of one sandbox at one moment.
type Sandbox struct {
	ID       ID     `json:"id"`
	Name     string `json:"name,omitempty"`    // extra name in its project
	Project  string `json:"project,omitempty"` // whose it is
	Template string `json:"template"`          // the template's ID
	Alias    string `json:"alias,omitempty"`   // the template's name, if it has one
	// TemplateOf is the lasting ID of a template that was built; Template is then the ID of the one
	// build that the sandbox was made from.
	TemplateOf string            `json:"templateOf,omitempty"`
	Tier       Tier              `json:"tier"`
	State      State             `json:"state"`
	Limits     Limits            `json:"limits"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Network    Network           `json:"network"`
	// Tokens are the identity tokens that the sandbox may have.
	Tokens  map[string]TokenSpec `json:"tokens,omitempty"`
	Started time.Time            `json:"started"`
	// Ends is when the timeout kills or pauses the sandbox. For a paused sandbox it is the time of
	// the pause.
	Ends      time.Time `json:"ends"`
	Lifecycle Lifecycle `json:"lifecycle,omitzero"`
	// Snapshot is the last snapshot before the present state; "" for none.
	Snapshot SnapshotID `json:"snapshot,omitempty"`
	// Generation counts how often the sandbox was restored: resumed, rolled back, or made from a
	// snapshot.
	Generation int `json:"generation,omitempty"`
	// AccessToken opens the guest (header X-Access-Token); "" when Insecure.
	AccessToken string `json:"accessToken,omitempty"`
	// TrafficToken opens other ports when Network.PrivateTraffic is set.
	TrafficToken string `json:"trafficToken,omitempty"`
	EnvdVersion  string `json:"envdVersion"`
	// Build is the build whose steps run in the sandbox; "" for a sandbox that a caller made.
	Build string `json:"build,omitempty"`
	// Domain is the service's domain: ports are at <port>-<id>.<domain>. May be "".
	Domain string `json:"domain,omitempty"`
}

// MetadataChange changes a sandbox's labels: it removes some, and then sets some. Others stay.
type MetadataChange struct {
	Set    map[string]string `json:"set,omitempty"`
	Remove []string          `json:"remove,omitempty"` // what is not there is removed already
}

// ListOptions filters and pages List. Newest sandboxes come first.
type ListOptions struct {
	// Match is a name, an ID or the beginning of an ID. It selects only sandboxes in the caller's
	// own project, also for an administrator. A beginning has [MinPrefix] letters or more.
	Match        string
	Metadata     map[string]string // every pair must be equal
	States       []State           // any of them; empty means all
	Project      string            // for an administrator: only this project's
	Template     string            // name or ID of the template, as in the sandbox's record
	StartedAfter time.Time
	OldestFirst  bool
	Builds       bool   // also the sandboxes of builds
	Limit        int    // 1–100; 0 is 100
	Cursor       string // Page.Next of the page before
}

// Page is one page of a List.
type Page struct {
	Sandboxes []Sandbox
	Next      string // cursor of the next page; "" on the last
	Running   int    // running sandboxes that match, on all pages
	// Missing names the nodes of a fleet that did not answer in time. Their sandboxes are not in the
	// page, and not counted. A service of one machine has none.
	Missing []string
}

// Metric is one sample of what a sandbox uses.
type Metric struct {
	Time       time.Time `json:"time"`
	CPUCount   float64   `json:"cpuCount"`
	CPUUsedPct float64   `json:"cpuUsedPct"` // of one core: 200 is two cores busy
	MemUsed    int64     `json:"memUsed"`    // bytes
	MemTotal   int64     `json:"memTotal"`   // bytes
	MemCache   int64     `json:"memCache"`   // bytes
	DiskUsed   int64     `json:"diskUsed"`   // bytes
	DiskTotal  int64     `json:"diskTotal"`  // bytes
	// NetSent and NetReceived are the bytes that the sandbox sent and received on its link, since
	// it was made, resumed, or adopted by the present daemon. They include what its owner does with
	// it: commands, files and visits to its ports.
	NetSent     int64 `json:"netSent"`
	NetReceived int64 `json:"netReceived"`
}

// LogEntry is one line of a sandbox's log. The log lists events of the sandbox in order.
type LogEntry struct {
	Time    time.Time         `json:"time"`
	Level   string            `json:"level"` // debug, info, warn, error
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// LogOptions selects log entries.
type LogOptions struct {
	Since       time.Time // the earliest; zero is no bound
	Until       time.Time // the latest; zero is no bound
	Limit       int       // 0 is 1000, at most MaxLogs
	NewestFirst bool
}

// MaxLogs is the most log entries that one call returns.
const MaxLogs = 10000

// EndReason says why a sandbox ended.
type EndReason string

// The reasons.
const (
	EndKilled      EndReason = "killed"        // someone asked for it
	EndTimeout     EndReason = "timeout"       // its timeout passed
	EndOutOfMemory EndReason = "out of memory" // over Limits.MemoryMB
	EndCrashed     EndReason = "crashed"       // the wall or the guest died by itself
	EndLost        EndReason = "lost"          // gone while the daemon was away
)

// ProjectMetric is how many sandboxes of one project ran at one time.
type ProjectMetric struct {
	Time    time.Time `json:"time"`
	Running int       `json:"running"`
	// StartRate is the number of sandboxes that were created or resumed each second since the
	// metric before.
	StartRate float64 `json:"startRate"`
}

// Busy reports whether anything ran or started.
func (m ProjectMetric) Busy() bool { return m.Running > 0 || m.StartRate > 0 }

// Event is one thing that happened. The events of all sandboxes have one common order.
type Event struct {
	Seq     int64             `json:"seq"`
	Time    time.Time         `json:"time"`
	Type    string            `json:"type"` // "sandbox.created", "sandbox.ended", …
	ID      ID                `json:"id,omitempty"`
	Project string            `json:"project,omitempty"` // whose sandbox it is
	Reason  EndReason         `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"`
	// Of is the sandbox at that moment, in the events of its life.
	Of *EventSandbox `json:"of,omitempty"`
}

// EventSandbox is what an [Event] says of its sandbox. It holds no token and no environment.
type EventSandbox struct {
	Template   string            `json:"template"`             // as in [Sandbox]
	TemplateOf string            `json:"templateOf,omitempty"` // as in [Sandbox]
	Metadata   map[string]string `json:"metadata,omitempty"`
	Started    time.Time         `json:"started"`
	Ends       time.Time         `json:"ends"`
	CPUs       float64           `json:"cpus"`
	MemoryMB   int               `json:"memoryMB"`
}

// Template is an immutable root filesystem from which sandboxes are made.
type Template struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Size    int64     `json:"size"` // bytes on disk
	Tier    Tier      `json:"tier,omitempty"`
	Source  string    `json:"source"` // where it came from, for people
	// of the image in its registry, or of a built image's file
	Digest  string            `json:"digest,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`    // default user; "" is "user"
	WorkDir string            `json:"workDir,omitempty"` // default working directory; "" is the user's home
	Labels  map[string]string `json:"labels,omitempty"`  // of the image that it was made from
	Start   []string          `json:"start,omitempty"`   // the image's entrypoint and command, or their replacement
	// Entry is how many of Start's words are the image's entrypoint, before which no CMD of a
	// Dockerfile that begins from it goes.
	Entry int `json:"entry,omitempty"`
	// OnBuild are instructions that a Dockerfile which begins from it carries out first.
	OnBuild []string `json:"onBuild,omitempty"`
	// Ready is a shell command that succeeds once the program of Start is ready. With it, the
	// service starts the template once, takes a snapshot, and begins each sandbox from there.
	Ready string `json:"ready,omitempty"`
	// ReadyCheck says how Ready is tried.
	ReadyCheck ReadyCheck `json:"readyCheck,omitzero"`
	// Golden is the state of that snapshot: "", "making", "ready", or the reason why it failed.
	Golden  string `json:"golden,omitempty"`
	BuiltIn bool   `json:"builtIn,omitempty"`
	// StandIn names the built-in template whose image this one has until its own is made.
	StandIn string `json:"standIn,omitempty"`
	// Project owns the template; "" for a built-in one.
	Project string `json:"project,omitempty"`
	// Public lets every project make sandboxes from it.
	Public bool `json:"public,omitempty"`
	// Of is the lasting ID of a template that was built. Each build of it is an image with an ID of
	// its own; all have the same Of.
	Of    string `json:"of,omitempty"`
	Build string `json:"build,omitempty"` // the build that made it
	Tag   string `json:"tag,omitempty"`   // "" is the default one
	Key   string `json:"key,omitempty"`   // equal builds have equal keys
	// Limits are those of the template's sandboxes, unless a request names others. Zero fields are
	// the service's defaults.
	Limits Limits `json:"limits,omitzero"`
	// Lazy is there while the image is not whole.
	Lazy *Lazy `json:"lazy,omitempty"`
}

// ReadyCheck says how a template's ready command is tried. Zero fields are the service's defaults.
type ReadyCheck struct {
	Interval time.Duration `json:"interval,omitempty"` // between two tries
	Timeout  time.Duration `json:"timeout,omitempty"`  // of one try
	// Within is how long the start may take. A service has an upper bound for it.
	Within time.Duration `json:"within,omitempty"`
}

// LastingID returns the ID by which callers know the template.
func (t Template) LastingID() string {
	if t.Of != "" {
		return t.Of
	}
	return t.ID
}

// FullName returns the template's name, with its tag unless that is the default one.
func (t Template) FullName() string {
	if t.Tag == "" {
		return t.Name
	}
	return t.Name + ":" + t.Tag
}

// BuildID returns the ID of the template's build, a UUID. E2B's clients want one also for a template
// that was not built: it is made from fixed properties.
func (t Template) BuildID() string {
	if t.Build != "" {
		return t.Build
	}
	return UUID([]byte(t.ID + "\x00" + t.Digest + "\x00" + t.Created.UTC().Format(time.RFC3339Nano)))
}

// UUID makes a UUID of version 8 from a text. Equal texts have equal ones.
func UUID(of []byte) string {
	h := sha256.Sum256(of)
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8 (our own), variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// TemplateUpdate changes how a template starts and who may use it. A nil field changes nothing.
type TemplateUpdate struct {
	Start *[]string `json:"start,omitempty"` // an empty one starts nothing
	Ready *string   `json:"ready,omitempty"`
	// Public can be changed by an administrator only.
	Public *bool `json:"public,omitempty"`
}
