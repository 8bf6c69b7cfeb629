package engine

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/placement"
)

// Remote is a node's daemon, as its client sees it. Package client's Client is one.
type Remote interface {
	carrel.Service
	// Load and Tiers tell of the machine. They are asked with the node's own key, for no project.
	Load(ctx context.Context) (carrel.Load, error)
	Tiers(ctx context.Context) ([]carrel.Tier, error)
}

// member is one node and what the engine knows of it.
type member struct {
	e    *Engine
	name string

	ctx    context.Context // ends when the node leaves the fleet, or the engine is closed
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
	learn  chan struct{} // asks for a look at the details

	mu      sync.Mutex
	node    Node
	remotes map[string]*list.Element // of *projectRemote, by project; "" is the key's own
	recent  *list.List               // of the same, the latest first
	why     error                    // why the node is away; nil: it is there
	alive   context.Context          // ends when it is away
	died    context.CancelCauseFunc
	watch   *time.Timer // makes it away
	load    carrel.Load
	fresh   placement.View // by the last report, with what was placed since
	tiers   []carrel.Tier  // nil until they are known
	has     map[string]bool
	warm    map[string]bool
}

// projectRemote is a client for one project.
type projectRemote struct {
	project string
	remote  Remote
}

// maxRemotes bounds the clients that are kept for a node.
const maxRemotes = 256

func newMember(e *Engine, n Node) *member {
	m := &member{e: e, name: n.Name, node: n, remotes: map[string]*list.Element{}, recent: list.New(),
		why: errNotAsked, learn: make(chan struct{}, 1)}
	m.ctx, m.cancel = context.WithCancelCause(e.ctx)
	m.alive, m.died = context.WithCancelCause(m.ctx)
	m.watch = time.AfterFunc(e.opts.DeadAfter, func() { m.away(errSilent) })
	m.work.Go(m.poll)
	m.work.Go(m.study)
	return m
}

// close ends the engine's work for the node.
func (m *member) close() {
	m.cancel(errLeft)
	m.watch.Stop()
	m.work.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for el := m.recent.Front(); el != nil; el = el.Next() {
		_ = el.Value.(*projectRemote).remote.Close() // only drops idle connections
	}
	m.recent.Init()
	clear(m.remotes)
}

// remote returns the client for a project. The caller may use it after it was dropped from the kept
// ones: closing a client drops only its idle connections.
func (m *member) remote(project string) (Remote, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el := m.remotes[project]; el != nil {
		m.recent.MoveToFront(el)
		return el.Value.(*projectRemote).remote, nil
	}
	r, err := m.e.opts.Dial(m.node, project)
	if err != nil {
		return nil, err
	}
	m.remotes[project] = m.recent.PushFront(&projectRemote{project, r})
	if m.recent.Len() > maxRemotes {
		old := m.recent.Remove(m.recent.Back()).(*projectRemote)
		delete(m.remotes, old.project)
		_ = old.remote.Close()
	}
	return r, nil
}

// away notes that the node can't be used, and ends the calls that wait for it.
func (m *member) away(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == nil {
		m.e.log.Warn("a node is away", "node", m.name, "why", why)
	}
	m.why = why
	m.died(why)
}

// heard notes that the node answered, and how busy it is. It returns whether it was away.
func (m *member) heard(l carrel.Load) (back bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watch.Reset(m.e.opts.DeadAfter)
	m.load, m.fresh = l, viewOf(l)
	if m.why == nil {
		return false
	}
	m.alive, m.died = context.WithCancelCause(m.ctx)
	m.why = nil
	return true
}

// viewOf is how busy a node says it is. A report that can't be true counts as half full.
func viewOf(l carrel.Load) placement.View {
	v := placement.View{Memory: 0.5, Queue: l.Wait.Seconds()}
	if l.MemoryTotal > 0 && l.Memory >= 0 && l.Memory <= l.MemoryTotal {
		v.Memory = 1 - float64(l.Memory)/float64(l.MemoryTotal)
	}
	if l.Limit > 0 {
		v.Load = float64(l.Starting) / float64(l.Limit)
	}
	return v.Trusted()
}

// state returns why the node is away, and a context that ends when it is.
func (m *member) state() (alive context.Context, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive, m.why
}

// placeable is the node as package placement sees it.
func (m *member) placeable() (placement.Node, placement.View) {
	all, _ := m.e.dir.crowd(m.name, "")
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.fresh
	if m.load.MemoryTotal > 0 {
		v.Known = min(1, float64(all)*leastMemory/float64(m.load.MemoryTotal))
	}
	return placement.Node{Away: m.why != nil || m.tiers == nil, Draining: m.node.Draining,
		Taints: m.node.Taints, Tiers: m.tiers}, v
}

// leastMemory is what a sandbox takes of a node at the least, in bytes, whatever the node says.
const leastMemory = 1 << 20

// placed counts a sandbox that was placed on the node until its next report.
func (m *member) placed(w placement.Work) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh.Memory += w.Memory
	m.fresh.Queue += w.Queue
}

// offers reports whether the node is known to have a template, and a warm sandbox of it.
func (m *member) offers(template string) (has, warm bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has[template], m.warm[template]
}

// poll asks the node how busy it is until it leaves.
func (m *member) poll() {
	for {
		m.pollOnce()
		// The engines of many fronts must not ask at the same moment.
		every := m.e.opts.PollEvery
		select {
		case <-time.After(every/2 + rand.N(every)):
		case <-m.ctx.Done():
			return
		}
	}
}

func (m *member) pollOnce() {
	ctx, cancel := context.WithTimeout(m.ctx, m.e.opts.AskWithin)
	defer cancel()
	r, err := m.remote("")
	var l carrel.Load
	if err == nil {
		l, err = r.Load(ctx)
	}
	switch {
	case m.ctx.Err() != nil:
	case err == nil:
		if m.heard(l) {
			m.look()
		}
	case refusedConnection(err):
		m.away(errRefuses)
	case carrel.KindOf(err) == carrel.Unauthenticated, carrel.KindOf(err) == carrel.Forbidden:
		m.away(errOtherFleet)
	case carrel.KindOf(err) == carrel.Invalid: // the URL or the key
		m.away(err)
	}
}

// look asks for a look at the details soon.
func (m *member) look() {
	select {
	case m.learn <- struct{}{}:
	default:
	}
}

// study learns the details of the node: when it has come, and again from time to time.
func (m *member) study() {
	for {
		select {
		case <-m.learn:
		case <-time.After(m.e.opts.StudyEvery):
		case <-m.ctx.Done():
			return
		}
		if _, why := m.state(); why != nil {
			continue
		}
		if err := m.studyOnce(); err != nil && m.ctx.Err() == nil {
			m.e.log.Warn("a node tells nothing of itself", "node", m.name, "err", err)
		}
	}
}

// studyWithin bounds each question about details.
const studyWithin = 30 * time.Second

func (m *member) studyOnce() error {
	r, err := m.remote("")
	if err != nil {
		return err
	}
	alive, _ := m.state()
	ctx, cancel := context.WithTimeout(alive, studyWithin)
	defer cancel()
	m.mu.Lock()
	known := m.tiers != nil
	m.mu.Unlock()
	if !known || rand.N(8) == 0 { // tiers seldom change, and to try them costs the node something
		tiers, err := r.Tiers(ctx)
		if err != nil {
			return err
		}
		m.mu.Lock()
		if m.tiers = tiers; tiers == nil {
			m.tiers = []carrel.Tier{}
		}
		m.mu.Unlock()
	}
	has, warm := map[string]bool{}, map[string]bool{}
	templates, err := r.ListTemplates(ctx)
	if err != nil {
		return err
	}
	for _, t := range templates {
		has[t.Name], has[t.ID], has[t.LastingID()], has[t.FullName()] = true, true, true, true
	}
	pool, err := r.Pool(ctx)
	if err != nil && carrel.KindOf(err) != carrel.Unsupported {
		return err
	}
	for _, k := range pool.Kinds {
		if k.Ready > 0 {
			warm[k.Template] = true
		}
	}
	m.mu.Lock()
	m.has, m.warm = has, warm
	m.mu.Unlock()
	return m.list(ctx, r)
}

// maxSandboxes bounds what a node may say that it has.
const maxSandboxes = 1_000_000

// list puts the node's sandboxes into the directory.
func (m *member) list(ctx context.Context, r Remote) error {
	began, ids := time.Now(), map[carrel.ID]bool{}
	for o := (carrel.ListOptions{OldestFirst: true, Builds: true}); ; {
		page, err := r.List(ctx, o)
		if err != nil {
			return err
		}
		for _, sb := range page.Sandboxes {
			if _, err := carrel.ParseID(string(sb.ID)); err != nil || ids[sb.ID] {
				return errors.New("its list has a sandbox twice, or one with no ID")
			}
			ids[sb.ID] = true
			if err := m.e.dir.claim(sb.ID, m.name, sb.Project, false); err != nil {
				m.e.log.Warn("a sandbox is claimed twice", "id", sb.ID, "node", m.name, "err", err)
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			m.e.dir.listed(m.name, began, ids)
			return nil
		}
		if len(page.Sandboxes) == 0 || len(ids) > maxSandboxes {
			return errors.New("its list does not end")
		}
	}
}
