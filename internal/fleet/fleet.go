// Package fleet has the words and the contract of what the machines of a fleet share: which nodes
// there are, and which of them each sandbox lives on. Fronts read and write it, in a [Registry].
// Nodes never do: they ask a front, so that a node can't write about the sandboxes of others.
//
// # Who may let a sandbox run
//
// A node is a member for a time, its lease, which it renews while it lives. Whether a lease has
// expired is decided by the registry's clock alone. Each start of a node is a membership of its own
// with a [Node.Token]. A token that another start has replaced is refused ([ErrFenced]).
//
// Each sandbox has one [Home]: the node that may run it. A home moves to another node only when its
// node gave it up, or when the node's lease has expired. A node asks [Registry.Begin] before a
// paused sandbox runs again, and is refused if the home is not its own any more. A node whose lease
// ends by its own clock, which began to count before the registry's, freezes its sandboxes by
// itself. So a sandbox has one life also when a node was stopped or cut off and comes back.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/quota"
)

// The reasons of errors of kind Conflict.
var (
	// ErrFenced: the node's membership has ended, or the sandbox's home is another node.
	ErrFenced = errors.New("this node is not the owner any more")
	// ErrHeld: the sandbox's node is alive, or the node's name is another machine's.
	ErrHeld = errors.New("another node is the owner")
)

// Times of leases.
const (
	// Lease is how long a node is a member without a word from it, unless the fronts say otherwise. Its
	// running sandboxes count as lost afterwards, and others may take what it had paused. The database
	// may be away for a little less without any effect on what runs.
	Lease = 15 * time.Second
	// ShortestLease leaves room for two renewals that fail.
	ShortestLease = 6 * time.Second
	// RenewEvery is how often a node renews it.
	RenewEvery = 2 * time.Second
)

// Node is one machine of the fleet.
type Node struct {
	// Name is its lasting name; see [CheckName].
	Name string
	// URL is where fronts reach its daemon. Key is the daemon's API key.
	URL, Key string
	// Public is the SHA-256 of the public key of the node's certificate. It stays the same while the
	// node lives: another machine can take the name only when its lease has expired.
	Public []byte
	// Token is the number of this start of the node; higher than those of all earlier ones.
	Token int64
	// Version is the node's build.
	Version string
	// Taints keep new sandboxes away, except those of projects that tolerate them.
	Taints []string `json:",omitempty"`
	// Draining keeps all new sandboxes away.
	Draining bool
	// Left is what was left of the lease when it was read; 0 or less is expired.
	Left time.Duration
}

// Format implements fmt.Formatter: no verb prints the key.
func (n Node) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "node %s (%d) at %s", n.Name, n.Token, n.URL)
}

// LogValue implements slog.LogValuer.
func (n Node) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(n)) }

// Alive reports whether the lease had not expired when it was read.
func (n Node) Alive() bool { return n.Left > 0 }

// CheckName checks a node's name: 1 to 63 lower-case letters, digits, dots and hyphens. Error:
// Invalid.
func CheckName(name string) error {
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return &carrel.Error{Op: "check node", Kind: carrel.Invalid, Field: "name",
			Err:  fmt.Errorf("%.80q is not a node's name", name),
			Hint: "use 1 to 63 lower-case letters, digits, dots and hyphens, such as the machine's host name"}
	}
	return nil
}

// Departed is the name in a home whose node's name was taken over by another machine. It is no valid
// name of a node. token is the number of the last start before.
func Departed(name string, token int64) string { return fmt.Sprintf("~%s~%d", name, token) }

// State says what a sandbox does at its home.
type State string

// The states of a home.
const (
	Running State = "running"
	Paused  State = "paused" // and published: its passport is with the home
	Lost    State = "lost"   // it ran when its node's lease expired
	Moving  State = "moving" // its new node has not taken it over yet
	Ended   State = "ended"  // a caller ended it while its node was away
)

// Home is where a sandbox lives.
type Home struct {
	Sandbox carrel.ID
	Project string
	Node    string
	// Token is the number of this stay; higher than those of all earlier ones. A stay begins with a
	// claim, a move, and each time that the sandbox begins to run.
	Token int64
	State State
	// Passport is what another node needs to make the sandbox its own: of the pause, or of the last
	// checkpoint of a sandbox that runs. nil is none. It holds secrets.
	Passport []byte
	// Key is the API key that made the sandbox, and Load what counts towards the quotas while it runs.
	Key  string
	Load quota.Load
	// Born is set in the claim of the front that made the sandbox.
	Born *Born
	// Left is what was left of the node's lease when the home was read; 0 or less is expired.
	Left time.Duration
}

// Format implements fmt.Formatter: no verb prints the passport.
func (h Home) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "sandbox %s, %s on node %s (%d)", h.Sandbox, h.State, h.Node, h.Token)
}

// LogValue implements slog.LogValuer.
func (h Home) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(h)) }

// Member is one start of a node.
type Member struct {
	Name  string
	Token int64
	// Public, if it is set, must be the node's. A door for nodes sets it: the machine that had the
	// name before has a certificate of that name, too.
	Public []byte
}

// Authority is the fleet's certificate authority: a certificate and its key, in PEM.
type Authority struct{ Cert, Key []byte }

// SealedSecret is a secret of a project that only fronts can open.
type SealedSecret struct {
	Project, Name string
	Sealed        []byte
}

// UsageCopy is what a machine's ledger said of a day. A machine is told by the public key of its
// certificate: its name may be another's later.
type UsageCopy struct {
	Public []byte
	Node   string    // its name then
	Day    time.Time // its beginning, in UTC
	At     time.Time // when the copy was made, by the registry's clock
	Report []byte    // JSON
}

// Registry keeps the nodes and homes of one fleet. It is safe for concurrent use by several fronts.
// Package state/postgres has the only lasting one. Errors: those below, and Unavailable.
type Registry interface {
	Shares
	Hooks
	Logins

	// Authority returns the fleet's authority. The first caller's is kept.
	Authority(ctx context.Context, first Authority) (Authority, error)

	// Admit gives a name to the machine with a public key. If the name belongs to another key whose
	// lease has expired, the machine takes the name over, but none of the sandboxes: their homes get
	// the name [Departed], which no node has. Those that ran are lost, and other nodes may take what
	// has a passport. Error: Conflict ([ErrHeld]) when the other key's lease has not expired.
	Admit(ctx context.Context, name string, public []byte) error
	// Enroll makes a node a member for a time, as a new start of it. Errors: NotFound when the name
	// is no node's (any more), Conflict ([ErrHeld]) when it belongs to another public key.
	Enroll(ctx context.Context, n Node, lease time.Duration) (Node, error)
	// Renew lets a membership end lease from now. Error: Conflict ([ErrFenced]).
	Renew(ctx context.Context, m Member, lease time.Duration) (Node, error)
	// Nodes returns all nodes by name, also those whose lease has expired.
	Nodes(ctx context.Context) ([]Node, error)
	// Drain sets whether a node gets new sandboxes. Error: NotFound.
	Drain(ctx context.Context, name string, draining bool) error
	// Remove forgets a node and its name. Its lease must have expired, and it must be no sandbox's
	// home, unless force is set; then the homes go, too, also those of machines that had the name
	// before. Errors: NotFound, Conflict.
	Remove(ctx context.Context, name string, force bool) error

	// Claim makes members the homes of sandboxes that run or are paused on them and have no home
	// yet. It returns the homes as they are afterwards: those on another node are not the member's.
	// A home of the member's gets the claim's state if the claim's token is that of its stay. It
	// loses its passport then, which is older. But a stay that is paused does not run again: a claim
	// that says so is older than the pause.
	// Error: Conflict ([ErrFenced]) when the membership has ended.
	Claim(ctx context.Context, m Member, homes ...Home) ([]Home, error)
	// Begin is called before a paused sandbox runs again. Errors: Conflict ([ErrFenced]) when the
	// membership has ended or expired, or the home is another node's; Exhausted when a quota refuses it.
	Begin(ctx context.Context, m Member, id carrel.ID) (Home, error)
	// Publish keeps a sandbox's passport of this stay. paused says that it does not run. Error: as
	// Begin's; also when the stay has ended, because the passport is older then.
	Publish(ctx context.Context, m Member, id carrel.ID, stay int64, passport []byte, paused bool) error
	// End forgets the homes of sandboxes that are gone. Those on other nodes stay.
	End(ctx context.Context, m Member, ids ...carrel.ID) error

	// Home returns a sandbox's home. Error: NotFound.
	Home(ctx context.Context, id carrel.ID) (Home, error)
	// Homes returns the homes on a node by sandbox, without passports.
	Homes(ctx context.Context, node string) ([]Home, error)
	// Move makes another node the home, in the state [Moving]. stay is the home's token that the
	// caller knows. The home needs a passport. Its node's lease must have expired, or the sandbox must
	// be paused, or on its way to a node.
	// Errors: NotFound, Conflict ([ErrFenced] when another caller was first, [ErrHeld]).
	Move(ctx context.Context, id carrel.ID, stay int64, to Member) (Home, error)
	// Arrive ends a move: the new node has taken the sandbox over, paused.
	Arrive(ctx context.Context, id carrel.ID, stay int64) error
	// Kill marks a sandbox as ended whose node is away. The node ends it when it is back. Errors:
	// NotFound, Conflict ([ErrHeld] while the node's lease has not expired, [ErrFenced]).
	Kill(ctx context.Context, id carrel.ID, stay int64) error
	// PutSecret keeps a sealed secret of a project, DropSecret forgets it, and Secrets returns all.
	PutSecret(ctx context.Context, s SealedSecret) error
	DropSecret(ctx context.Context, project, name string) error
	Secrets(ctx context.Context) ([]SealedSecret, error)
	// PutUsageCopy keeps the newest copy of a machine's day, and UsageCopies returns those of the days
	// between two times. Without whole it leaves the reports out.
	PutUsageCopy(ctx context.Context, c UsageCopy) error
	UsageCopies(ctx context.Context, from, to time.Time, whole bool) ([]UsageCopy, error)
	// Lose marks the homes whose sandbox ran on a node whose lease has expired, or that another
	// machine took the name of, and returns those that were not marked yet, without passports. Those
	// that another node can resume keep their part of the quotas for a while.
	Lose(ctx context.Context) ([]Home, error)
}
