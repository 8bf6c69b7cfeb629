package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// Node is one machine of the fleet.
type Node struct {
	// Name is its lasting name: 1 to 63 lower-case letters, digits, dots and hyphens.
	Name string
	// URL is the daemon's address, and Key its own API key.
	URL, Key string
	// Taints keep new sandboxes away unless [Options.Tolerates] says otherwise.
	Taints []string
	// Draining keeps all new sandboxes away.
	Draining bool
}

// Format implements fmt.Formatter: no verb prints the key.
func (n Node) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "node %s at %s", n.Name, n.URL) }

// LogValue implements slog.LogValuer.
func (n Node) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(n)) }

// Nodes says which nodes there are. It is safe for concurrent use.
type Nodes interface {
	// Nodes returns the nodes, and a channel that is closed when there is another list. Nobody
	// changes the list afterwards.
	Nodes() (list []Node, changed <-chan struct{})
}

// maxNodes bounds a fleet.
const maxNodes = 10_000

// CheckNodes says what is wrong with a list of nodes, with an Error of kind Invalid.
func CheckNodes(list []Node) error {
	bad := func(format string, args ...any) error {
		return &carrel.Error{Op: "read nodes", Kind: carrel.Invalid, Field: "nodes", Err: fmt.Errorf(format, args...),
			Hint: "each node needs a name and a URL of its own, and its daemon's API key"}
	}
	if len(list) > maxNodes {
		return bad("%d nodes are more than %d", len(list), maxNodes)
	}
	names, urls := map[string]bool{}, map[string]bool{}
	for _, n := range list {
		switch url := strings.TrimSuffix(n.URL, "/"); {
		case fleet.CheckName(n.Name) != nil:
			return bad("%.80q is not a node's name", n.Name)
		case url == "" || n.Key == "":
			return bad("node %s has no URL or no key", n.Name)
		case names[n.Name]:
			return bad("node %s is there twice", n.Name)
		case urls[url]:
			return bad("node %s has the URL of another node", n.Name)
		default:
			names[n.Name], urls[url] = true, true
		}
	}
	return nil
}

// List is a [Nodes] that a program sets. Its zero value has no nodes.
type List struct {
	mu      sync.Mutex
	nodes   []Node
	changed chan struct{}
}

var _ Nodes = (*List)(nil)

// Set replaces the nodes. Error: Invalid; the old ones stay then.
func (l *List) Set(nodes ...Node) error {
	if err := CheckNodes(nodes); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = slices.Clone(nodes)
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
	return nil
}

// Nodes implements Nodes.
func (l *List) Nodes() ([]Node, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.nodes, l.changed
}

var errNoNodes = errors.New("the fleet has no nodes")
