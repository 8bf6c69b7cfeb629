package carrel

import "time"

// Tier is how strong a sandbox's wall is.
type Tier string

// The tiers, weakest need of the host first.
const (
	Sim     Tier = "sim"     // an interpreter of our own: no syscalls at all
	NS      Tier = "ns"      // Linux namespaces, Landlock and seccomp on the host kernel
	GVisor  Tier = "gvisor"  // a second kernel in software
	MicroVM Tier = "microvm" // a kernel of its own in a virtual machine
)

// State is where a sandbox is in its life.
type State string

// The states. A sandbox that ended is no longer listed; its end is an [Event].
const (
	Starting State = "starting"
	Running  State = "running"
	Pausing  State = "pausing" // its state is being kept; it runs on if that fails
	Paused   State = "paused"
	Resuming State = "resuming" // it is paused again if that fails
	Stopping State = "stopping"
)

// Well-known ports inside every sandbox.
const (
	// GuestPort is where the guest serves the envd protocol.
	GuestPort uint16 = 49983
	// InterpreterPort is where a code interpreter, if the template has one, serves.
	InterpreterPort uint16 = 49999
)

// EnvdVersion is the version of the envd protocol the guest speaks; E2B's SDKs
// switch features on by it.
const EnvdVersion = "0.6.13"

// Limits bounds what one sandbox may use. Zero fields take the service's
// defaults.
type Limits struct {
	CPUs     float64 `json:"cpus,omitempty"`     // cores; 0.5 is half of one
	MemoryMB int     `json:"memoryMB,omitempty"` // MiB of memory, everything in the sandbox together
	DiskMB   int     `json:"diskMB,omitempty"`   // MiB that may be written on top of the template
	Pids     int     `json:"pids,omitempty"`     // processes and threads inside the sandbox
}

// Network says what may leave a sandbox and who may come in. The zero value lets
// nothing out. What may leave is said in one of two forms: Policy, which is Carrel's, or
// Internet, AllowOut, DenyOut, Rules and EgressProxy, which are E2B's and mean what E2B
// means by them. Both at once are Invalid, but for EgressProxy.
type Network struct {
	// Policy is the whole of what may leave; nil for E2B's form.
	Policy *Policy `json:"policy,omitempty"`
	// Internet is the plain switch: true lets everything out except to this host,
	// link-local and private addresses.
	Internet bool `json:"internet"`
	// AllowOut are names ("example.com", "*.example.com"), addresses and CIDRs, DenyOut
	// addresses and CIDRs. What is allowed beats what is denied.
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`
	// Rules are what is put into requests, by host. They open nothing.
	Rules map[string][]NetworkRule `json:"rules,omitempty"`
	// EgressProxy is what all TCP goes through; nil for none.
	EgressProxy *EgressProxy `json:"egressProxy,omitempty"`
	// PrivateTraffic demands the sandbox's traffic token on requests from outside
	// to ports other than the guest's.
	PrivateTraffic bool `json:"privateTraffic,omitempty"`
	// MaskHost replaces the Host header of requests from outside to ports other than
	// the guest's; "${PORT}" in it stands for the port. "" leaves the header alone.
	MaskHost string `json:"maskHost,omitempty"`
	// HTTPSPorts are those whose servers speak TLS. Requests from outside reach them
	// with TLS, whatever certificate they show: nobody is between.
	HTTPSPorts []uint16 `json:"httpsPorts,omitempty"`
}

// CreateOptions says what sandbox to make. The zero value makes one from the
// default template, with the default limits, that ends after the service's
// default timeout.
type CreateOptions struct {
	// Name is what else it is called by in its project; "" for nothing. See [CheckName].
	Name     string        `json:"name,omitempty"`
	Template string        `json:"template,omitempty"` // a TemplateRef; "" is "base"
	Tier     Tier          `json:"tier,omitempty"`     // "" is the service's default, or what the template demands
	Timeout  time.Duration `json:"timeout,omitempty"`  // until it is killed; 0 is the default, negative is Invalid
	// NoTimeout gives it the longest timeout that the service allows. It goes with a Timeout of 0 only.
	NoTimeout bool              `json:"noTimeout,omitempty"`
	Limits    Limits            `json:"limits,omitzero"`
	Env       map[string]string `json:"env,omitempty"`      // default environment of every command
	Metadata  map[string]string `json:"metadata,omitempty"` // the caller's own labels, searchable with List
	Network   Network           `json:"network,omitzero"`
	// Tokens are the identity tokens that it may have, by a name of the caller's choice.
	Tokens map[string]TokenSpec `json:"tokens,omitempty"`
	// Lifecycle is what happens to it by itself.
	Lifecycle Lifecycle `json:"lifecycle,omitzero"`
	// Insecure leaves the guest open to anyone who can reach the gateway, as E2B's
	// v1 API does for secure=false. By default an access token is demanded.
	Insecure bool `json:"insecure,omitempty"`
}

// Sandbox is what the service knows of one sandbox at one moment.
type Sandbox struct {
	ID       ID                `json:"id"`
	Name     string            `json:"name,omitempty"`    // what else it is called by in its project
	Project  string            `json:"project,omitempty"` // whose it is
	Template string            `json:"template"`          // the template's ID
	Alias    string            `json:"alias,omitempty"`   // the template's name, if it has one
	Tier     Tier              `json:"tier"`
	State    State             `json:"state"`
	Limits   Limits            `json:"limits"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Network  Network           `json:"network"`
	// Tokens are the identity tokens that it may have.
	Tokens  map[string]TokenSpec `json:"tokens,omitempty"`
	Started time.Time            `json:"started"`
	// Ends is when the timeout kills or pauses it; while it is paused, when that was.
	Ends      time.Time `json:"ends"`
	Lifecycle Lifecycle `json:"lifecycle,omitzero"`
	// Snapshot is the moment that its present state came after; "" for none.
	Snapshot SnapshotID `json:"snapshot,omitempty"`
	// Generation counts how often it was restored: resumed, rolled back, or born from a
	// snapshot.
	Generation int `json:"generation,omitempty"`
	// AccessToken opens the guest (header X-Access-Token); "" when Insecure.
	AccessToken string `json:"accessToken,omitempty"`
	// TrafficToken opens other ports when Network.PrivateTraffic is set.
	TrafficToken string `json:"trafficToken,omitempty"`
	EnvdVersion  string `json:"envdVersion"`
	// Domain is the service's domain: ports are at <port>-<id>.<domain>. May be "".
	Domain string `json:"domain,omitempty"`
}

// ListOptions filters and pages List. Newest sandboxes come first.
type ListOptions struct {
	// Match is a name, an ID or the beginning of an ID: only what it may mean to the caller, in
	// its own project, also to an administrator. A beginning has [MinPrefix] letters or more.
	Match        string
	Metadata     map[string]string // every pair must be equal
	States       []State           // any of them; empty means all
	Project      string            // for an administrator: of this project only
	Template     string            // name or ID of the template, as the sandbox's record has it
	StartedAfter time.Time
	OldestFirst  bool
	Limit        int    // 1–100; 0 is 100
	Cursor       string // Page.Next of the page before
}

// Page is one page of a List.
type Page struct {
	Sandboxes []Sandbox
	Next      string // cursor of the next page; "" on the last
	Running   int    // running sandboxes in all that match, whatever the page
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
}

// LogEntry is one line of a sandbox's log: what happened to it, in order.
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

// MaxLogs is how many entries of a log one call returns at most.
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

// Event is one thing that happened. Events have one order over all sandboxes.
type Event struct {
	Seq     int64             `json:"seq"`
	Time    time.Time         `json:"time"`
	Type    string            `json:"type"` // "sandbox.created", "sandbox.ended", …
	ID      ID                `json:"id,omitempty"`
	Project string            `json:"project,omitempty"` // whose sandbox it is
	Reason  EndReason         `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// Template is an immutable root filesystem from which sandboxes are made.
type Template struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Created time.Time         `json:"created"`
	Size    int64             `json:"size"` // bytes on disk
	Tier    Tier              `json:"tier,omitempty"`
	Source  string            `json:"source"`           // where it came from, for people
	Digest  string            `json:"digest,omitempty"` // of the image source, if it has one
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`    // default user; "" is "user"
	WorkDir string            `json:"workDir,omitempty"` // default working directory; "" is the user's home
	Start   []string          `json:"start,omitempty"`   // the image's entrypoint and command, or what replaced them
	// Ready is a shell command that succeeds when what Start began is up. With it, the template is
	// started once, and each sandbox goes on from that moment.
	Ready string `json:"ready,omitempty"`
	// Golden says how that is doing: "", "making", "ready", or why it could not be done.
	Golden  string `json:"golden,omitempty"`
	BuiltIn bool   `json:"builtIn,omitempty"`
	// Project is whose it is; "" for a built-in one.
	Project string `json:"project,omitempty"`
	// Public lets every project make sandboxes of it.
	Public bool `json:"public,omitempty"`
}

// TemplateUpdate changes how a template starts and who may use it. A nil field stays.
type TemplateUpdate struct {
	Start *[]string `json:"start,omitempty"` // an empty one starts nothing
	Ready *string   `json:"ready,omitempty"`
	// Public is an administrator's to change.
	Public *bool `json:"public,omitempty"`
}
