package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind says what the numbers of a family mean.
type Kind string

// The kinds of families.
const (
	Counter   Kind = "counter" // since the daemon's start, unless the help says more
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family is one metric. Families are made by this package only.
type Family struct {
	Name   string
	Help   string
	Kind   Kind
	Labels []string

	desc *prometheus.Desc
}

var all []*Family

// Families lists all families, by name.
func Families() []*Family {
	out := slices.Clone(all)
	slices.SortFunc(out, func(a, b *Family) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

func family(kind Kind, name, help string, labels ...string) *Family {
	f := &Family{Name: name, Help: help, Kind: kind, Labels: labels,
		desc: prometheus.NewDesc(name, help, labels, nil)}
	all = append(all, f)
	return f
}

// The build.
var (
	BuildInfo = family(Gauge, "carrel_build_info", "Always 1. The labels say which build runs.",
		"version", "go")
)

// Requests to the control plane and to ports of sandboxes.
var (
	APIRequests = family(Counter, "carrel_api_requests_total",
		"Requests to the API that were answered.", "operation", "class")
	APIDuration = family(Histogram, "carrel_api_request_duration_seconds",
		"Time until the answer to a request began.", "operation")
	GatewayRequests = family(Counter, "carrel_gateway_requests_total",
		"Requests to ports of sandboxes that were answered.", "call", "class")
	GatewayDuration = family(Histogram, "carrel_gateway_request_duration_seconds",
		"Time until the answer of a sandbox began.", "call")
)

// Operations on sandboxes, however they were asked for.
var (
	OperationsTotal = family(Counter, "carrel_operations_total",
		"Operations on sandboxes that ended.", "operation", "outcome")
	OperationDuration = family(Histogram, "carrel_operation_duration_seconds",
		"How long operations on sandboxes took.", "operation")
)

// Sandboxes and projects.
var (
	Sandboxes = family(Gauge, "carrel_sandboxes", "Sandboxes.", "state", "tier")
	MaxBoxes  = family(Gauge, "carrel_sandboxes_limit",
		"How many sandboxes may live at once (--max-sandboxes).")
	Projects     = family(Gauge, "carrel_projects", "Projects that have a sandbox.")
	ProjectBoxes = family(Gauge, "carrel_project_sandboxes",
		"Sandboxes of a project.", "project", "state")
	ProjectCPUs = family(Gauge, "carrel_project_vcpus",
		"Processor cores that a project's living sandboxes may use.", "project")
	ProjectMemory = family(Gauge, "carrel_project_memory_bytes",
		"Memory that a project's living sandboxes may use.", "project")
)

// The pool of sandboxes that are kept ready.
var (
	PoolCap    = family(Gauge, "carrel_pool_limit", "How many sandboxes may be ready (--warm).")
	PoolHits   = family(Counter, "carrel_pool_hits_total", "Creations that found a sandbox ready.")
	PoolMisses = family(Counter, "carrel_pool_misses_total",
		"Creations that could have found a sandbox ready and did not.")
	PoolLost = family(Counter, "carrel_pool_lost_total",
		"Sandboxes that were ready and were given up.")
	PoolMemory = family(Gauge, "carrel_pool_memory",
		"What the machine's memory allows the pool: the state that holds is 1.", "state")
	PoolReady = family(Gauge, "carrel_pool_ready",
		"Sandboxes that are ready.", "template", "tier")
	PoolMaking = family(Gauge, "carrel_pool_making",
		"Sandboxes that are being made ready (refill).", "template", "tier")
	PoolTarget = family(Gauge, "carrel_pool_target",
		"How many sandboxes should be ready.", "template", "tier")
	BlanksReady = family(Gauge, "carrel_blank_sentries_ready",
		"gVisor kernels that were started before there is a sandbox for them.")
	BlanksTaken = family(Counter, "carrel_blank_sentries_taken_total",
		"Such kernels that a sandbox was given.")
	BlanksMissed = family(Counter, "carrel_blank_sentries_missed_total",
		"Sandboxes that found no such kernel.")
	BlanksFailed = family(Counter, "carrel_blank_sentries_failed_total",
		"Such kernels that ended before they had a sandbox.")
)

// The gate before each start.
var (
	GateLimit = family(Gauge, "carrel_gate_limit",
		"How many starts the machine sustains at once, as far as the gate has found out.")
	GateStarting = family(Gauge, "carrel_gate_starting", "Starts under way.")
	GateStuck    = family(Gauge, "carrel_gate_stuck",
		"Starts under way that wait for something else than the machine.")
	GateWaiting = family(Gauge, "carrel_gate_waiting",
		"Requests that wait for their turn.", "lane")
	GateTenants = family(Gauge, "carrel_gate_tenants",
		"Projects of which something starts or waits.")
	GateStart = family(Gauge, "carrel_gate_expected_start_seconds", "How long a start takes lately.")
	GateWait  = family(Gauge, "carrel_gate_expected_wait_seconds",
		"How long a request that came now would wait.")
	GateWaited = family(Histogram, "carrel_gate_wait_seconds",
		"How long requests waited before they were let in.", "lane")
	GateRefused = family(Counter, "carrel_gate_refused_total",
		"Requests that were refused.", "reason")
	GateLeft = family(Counter, "carrel_gate_left_total",
		"Requests that hung up while they waited.")
)

// The store of snapshots.
var (
	Snapshots     = family(Gauge, "carrel_snapshots", "Snapshots, with those of paused sandboxes.")
	SnapshotBytes = family(Gauge, "carrel_snapshot_logical_bytes",
		"Size of all snapshots' files, as if nothing were shared.")
	SnapshotHot = family(Gauge, "carrel_snapshot_hot_bytes",
		"Uncompressed copies of snapshots on the disk.")
	SnapshotPacked = family(Gauge, "carrel_snapshot_packed_bytes",
		"Packed content of snapshots, stored once and compressed.")
	SnapshotQuota = family(Gauge, "carrel_snapshot_limit_bytes",
		"What snapshots may take on the disk (--snapshot-quota); 0 is no bound.")
	SnapshotUnused = family(Gauge, "carrel_snapshot_unused_bytes",
		"Content that no snapshot uses and that is not removed yet, estimated.")
	Collections = family(Counter, "carrel_snapshot_collections_total",
		"Collections of unused content.", "outcome")
	Collected = family(Counter, "carrel_snapshot_collected_bytes_total",
		"Bytes that collections freed.")
	CollectTime = family(Counter, "carrel_snapshot_collection_seconds_total",
		"Time that collections took.")
)

// The wire, which is all traffic out of sandboxes.
var (
	WireLinks = family(Gauge, "carrel_wire_links", "Links of sandboxes.")
	WireConns = family(Gauge, "carrel_wire_connections",
		"Open connections from sandboxes to the outside.", "protocol")
	WireBytes = family(Counter, "carrel_wire_bytes_total",
		"Bytes of all frames on the links: out of sandboxes, and in to them.", "direction")
	WireDecisions = family(Counter, "carrel_wire_decisions_total",
		"Decisions about what may leave sandboxes.", "protocol", "verdict")
)

// Usage, webhooks and the audit trail.
var (
	LedgerOpen = family(Gauge, "carrel_ledger_open_pieces",
		"Pieces of usage that go on.")
	LedgerBeats = family(Counter, "carrel_ledger_heartbeats_total",
		"Times that the ledger saved what is due.", "outcome")
	LedgerSeen = family(Gauge, "carrel_ledger_last_heartbeat_timestamp_seconds",
		"When the ledger last saved what was due, in Unix time; 0 for never.")
	Webhooks        = family(Gauge, "carrel_webhooks", "Webhooks that are enabled.")
	WebhookWaiting  = family(Gauge, "carrel_webhook_deliveries_waiting", "Deliveries that wait.")
	WebhookDead     = family(Gauge, "carrel_webhook_deliveries_dead", "Deliveries that were given up.")
	WebhookAttempts = family(Counter, "carrel_webhook_attempts_total",
		"Attempts to deliver an event.", "outcome")
	TrailRecords = family(Counter, "carrel_trail_records_total",
		"Records of the audit trail, since it was begun.")
	TrailPending = family(Gauge, "carrel_trail_pending_bytes",
		"Records that wait for a disk that is full.")
	TrailLost = family(Counter, "carrel_trail_lost_records_total",
		"Records that could not even wait.")
	TrailUnsent = family(Gauge, "carrel_trail_unsent_records",
		"Records that a destination (--trail-syslog, --trail-otlp) has not taken.", "destination")
)
