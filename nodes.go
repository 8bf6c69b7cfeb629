package carrel

import "context"

// Nodes are the machines of a fleet. Only a front has them, and only administrators may use them.
type Nodes interface {
	// Nodes lists all nodes by name.
	Nodes(ctx context.Context) ([]Node, error)
	// DrainNode keeps new sandboxes away from a node, and moves its sandboxes to others: those that
	// run are paused there and resumed elsewhere. It returns when each has moved or could not. The
	// node stays as it is until UndrainNode. Errors: NotFound, Unavailable.
	DrainNode(ctx context.Context, name string) (Drained, error)
	// UndrainNode lets a node get new sandboxes again. Error: NotFound.
	UndrainNode(ctx context.Context, name string) error
	// RemoveNode forgets a node whose daemon has stopped for good. With force, the sandboxes that
	// nobody could take over are given up. Errors: NotFound, Conflict (it is alive, or sandboxes are
	// on it).
	RemoveNode(ctx context.Context, name string, force bool) error
}

// NodeState says whether a node can be used.
type NodeState string

// The states of a node.
const (
	NodeReady    NodeState = "ready"
	NodeDraining NodeState = "draining"
	NodeAway     NodeState = "away" // it does not answer this front
	NodeLost     NodeState = "lost" // its lease has expired: others take over what they can
)

// Node is one machine of a fleet.
type Node struct {
	Name    string    `json:"name"`
	State   NodeState `json:"state"`
	Why     string    `json:"why,omitempty"` // it is away
	URL     string    `json:"url"`
	Version string    `json:"version,omitempty"`
	Taints  []string  `json:"taints,omitempty"`
	Tiers   []Tier    `json:"tiers,omitempty"`
	// Running and Paused count its sandboxes; Lost those that ran when its lease expired.
	Running int `json:"running"`
	Paused  int `json:"paused"`
	Lost    int `json:"lost,omitempty"`
	// Memory and MemoryTotal are in bytes: free, and in all; 0 is not known.
	Memory      int64 `json:"memory,omitempty"`
	MemoryTotal int64 `json:"memoryTotal,omitempty"`
	// LeaseMS is how long the node is a member without another word from it, in milliseconds.
	LeaseMS int64 `json:"leaseMs"`
}

// Drained is the result of a drain.
type Drained struct {
	Moved  []ID      `json:"moved"`
	Failed []Unmoved `json:"failed,omitempty"`
}

// Unmoved is a sandbox that a drain could not move. It is where it was.
type Unmoved struct {
	ID    ID     `json:"id"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// NoNodes is a [Nodes] for services of one machine.
type NoNodes struct{}

var _ Nodes = NoNodes{}

// Nodes implements Nodes.
func (NoNodes) Nodes(context.Context) ([]Node, error) { return nil, lacking("list nodes", "nodes") }

// DrainNode implements Nodes.
func (NoNodes) DrainNode(context.Context, string) (Drained, error) {
	return Drained{}, lacking("drain node", "nodes")
}

// UndrainNode implements Nodes.
func (NoNodes) UndrainNode(context.Context, string) error { return lacking("undrain node", "nodes") }

// RemoveNode implements Nodes.
func (NoNodes) RemoveNode(context.Context, string, bool) error {
	return lacking("remove node", "nodes")
}
