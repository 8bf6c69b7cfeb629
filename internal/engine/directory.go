package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Owners knows for certain which node owns a sandbox: a store that all engines and nodes share.
type Owners interface {
	// Owner returns the name of the sandbox's node; known is false if the store has no owner, and a
	// node may have it all the same. An error of kind NotFound says that no node has it: none is asked.
	Owner(ctx context.Context, id carrel.ID) (node string, known bool, err error)
}

// Directory says on which node each sandbox is, as far as the engine has heard. It can be emptied
// at any time: the nodes fill it again. It is safe for concurrent use.
type Directory struct {
	mu      sync.Mutex
	entries map[carrel.ID]*entry
	counts  map[string]int    // living sandboxes of each node
	crowds  map[[2]string]int // of each node and project
	ended   []carrel.ID       // entries whose sandbox has ended, the oldest first
}

// entry is one sandbox.
type entry struct {
	node, project string
	rival         string    // another node that claims it, too; "" is none
	born          bool      // this engine made it there
	ended         bool      // its node said that it is gone
	seen          time.Time // when its node spoke of it last
}

// maxEnded bounds how many sandboxes that ended are remembered. Their node can still tell why.
const maxEnded = 10_000

func newDirectory() *Directory {
	return &Directory{entries: map[carrel.ID]*entry{}, counts: map[string]int{}, crowds: map[[2]string]int{}}
}

// claimed is the error for a node that claims a sandbox that another node has.
type claimed struct{ owner, node string }

// Error says which nodes claim it.
func (c claimed) Error() string {
	return fmt.Sprintf("the nodes %s and %s both say that they have it", c.owner, c.node)
}

// count adds n to the number of an entry's node. The caller holds mu.
func (d *Directory) count(e *entry, n int) {
	project := [2]string{e.node, e.project}
	if d.counts[e.node] += n; d.counts[e.node] == 0 {
		delete(d.counts, e.node)
	}
	if d.crowds[project] += n; d.crowds[project] == 0 {
		delete(d.crowds, project)
	}
}

// claim takes a node's word that it has a sandbox. born says that this engine has just made it
// there. If another node has it, the error is a [claimed].
func (d *Directory) claim(id carrel.ID, node, project string, born bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[id]
	switch {
	case e != nil && e.node == node:
		if e.ended {
			e.ended = false
			d.count(e, 1)
		}
		e.seen, e.born = time.Now(), e.born || born
		if e.rival != "" {
			return claimed{e.node, e.rival}
		}
		return nil
	case e != nil && !e.ended:
		if !e.born {
			e.rival = node
		}
		return claimed{e.node, node}
	}
	e = &entry{node: node, project: project, born: born, seen: time.Now()}
	d.entries[id] = e
	d.count(e, 1)
	return nil
}

// find returns a sandbox's entry.
func (d *Directory) find(id carrel.ID) (entry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[id]; e != nil {
		return *e, true
	}
	return entry{}, false
}

// end notes that a node said that its sandbox is gone.
func (d *Directory) end(id carrel.ID, node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLocked(id, node)
}

func (d *Directory) endLocked(id carrel.ID, node string) {
	e := d.entries[id]
	switch {
	case e == nil || e.ended:
		return
	case e.node != node:
		if e.rival == node {
			e.rival = ""
		}
		return
	}
	d.count(e, -1)
	if e.rival != "" { // the other one was right
		e.node, e.rival, e.born = e.rival, "", false
		d.count(e, 1)
		return
	}
	e.ended = true
	if d.ended = append(d.ended, id); len(d.ended) > maxEnded {
		old := d.ended[0]
		d.ended = d.ended[1:]
		if o := d.entries[old]; o != nil && o.ended {
			delete(d.entries, old)
		}
	}
}

// listed notes that a node listed all its sandboxes, beginning at a time. What it did not speak of
// since then has ended.
func (d *Directory) listed(node string, began time.Time, ids map[carrel.ID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, e := range d.entries {
		if !ids[id] && (e.rival == node || e.node == node && e.seen.Before(began)) {
			d.endLocked(id, node)
		}
	}
}

// remove forgets a node that left the fleet.
func (d *Directory) remove(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, e := range d.entries {
		if e.node == node || e.rival == node {
			d.endLocked(id, node)
		}
		if e.node == node {
			delete(d.entries, id)
		}
	}
}

// crowd returns how many sandboxes a node has, and how many of these are a project's.
func (d *Directory) crowd(node, project string) (all, own int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[node], d.crowds[[2]string{node, project}]
}

// Node returns the node that a sandbox is on, as far as the engine has heard.
func (d *Directory) Node(id carrel.ID) (name string, ok bool) {
	at, ok := d.find(id)
	return at.node, ok
}

// Len is how many living sandboxes the directory knows.
func (d *Directory) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, c := range d.counts {
		n += c
	}
	return n
}
