package scaling

import (
	"container/heap"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel/internal/placement"
	"github.com/carrel-dev/carrel/internal/pool"
)

// Config is one run.
type Config struct {
	Seed   uint64
	Nodes  int
	Node   Node
	Costs  Costs
	Load   Load
	Policy Policy
	// Seconds is the length of the run. Its first Warmup seconds are not counted.
	Seconds, Warmup float64
	// Placers is the number of placers that work side by side. They see reports of the nodes that
	// are up to Stale seconds old.
	Placers int
	Stale   float64
	// Warm bounds the sandboxes that a node keeps ready; 0 keeps none.
	Warm int
	// Cache is how many templates a node keeps, and TemplateMB the size of one for fetching.
	Cache      int
	TemplateMB float64
	// MaxWait is the longest wait. A start that would begin later is refused.
	MaxWait float64
	Failure Failure
}

// Failure is the death of some nodes at one moment. Their running sessions are lost, and are begun anew
// by their users. Their paused sessions are in the shared store, and resume elsewhere. The zero value
// is no failure.
type Failure struct {
	At   float64 // seconds since the start
	Part float64 // of the nodes
	// Silence is how long fronts take for dead a node that has said nothing, and Lease is how long it may
	// still run what it has. What was paused there resumes elsewhere afterwards. Dial is the time that is
	// lost with a dead node that was not known to be dead. All are seconds.
	Silence, Lease, Dial float64
	// Back is when the nodes are there again, empty, in seconds after their death.
	Back float64
}

// Result is the result of a run, without its warm-up.
type Result struct {
	Policy               Policy
	Started, Refused     int
	Resumed              int
	P50, P95, P99        float64 // seconds from request to running, for creations
	ResumeP50, ResumeP95 float64
	WarmHits             float64 // part of the creations
	Fetches, Moves       int     // of templates, of snapshots
	MovedGB              float64 // over the network
	Memory, MemoryMost   float64 // part of the nodes' memory, mean and maximum
	WarmMB               float64 // memory of a node's ready sandboxes, mean
	Uneven               float64 // standard deviation of the nodes' memory over the mean
	Empty                float64 // part of the nodes without a sandbox, mean
	Running              float64 // sandboxes on a node, mean
	Lost                 int     // sessions that ran on nodes which died
	Misplaced            int     // placements on nodes that were dead already
	Events               int
}

// Sim is a run under way.
type Sim struct {
	cfg     Config
	src     *source
	rng     *rand.Rand
	now     float64
	events  queue
	seq     int
	number  int // of the last start
	nodes   []*node
	placers []*placement.Placer
	group   []int // for each template, the number of its nodes
	able    []int // the nodes that are not known to be dead; nil for all

	out             Result
	creates, wakes  []float64
	hits, asked     int
	looks           int
	memory, warm    float64
	cv, empty, runs float64
}

// node is one machine.
type node struct {
	memory  float64 // MiB in use
	load    float64 // processors that running sandboxes use
	running int
	free    []float64 // when each processor has finished its starts
	cached  []int     // templates, the latest last
	sizer   *pool.Sizer
	ready   map[int]int
	making  int

	dead  bool
	known bool    // fronts know that it is dead
	lease float64 // when others may take over its sessions
	life  int     // is another after each death
	here  map[*session]struct{}
}

// Run simulates.
func Run(cfg Config) (Result, error) {
	if err := cfg.Costs.Validate(); err != nil {
		return Result{}, err
	}
	if cfg.Nodes < 1 || cfg.Node.Processors < 1 || cfg.Load.Templates < 1 || cfg.Placers < 1 || cfg.Seconds <= cfg.Warmup {
		return Result{}, fmt.Errorf("config: nodes, processors, templates and placers must be at least 1, and seconds more than warmup")
	}
	s := &Sim{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), out: Result{Policy: cfg.Policy}}
	s.src = newSource(cfg.Load, rand.New(rand.NewPCG(cfg.Seed, 2)))
	s.prepare()
	s.run()
	return s.result(), nil
}

func (s *Sim) prepare() {
	c := s.cfg
	for range c.Nodes {
		n := &node{memory: c.Costs.DaemonBaseMB, free: make([]float64, c.Node.Processors), ready: map[int]int{},
			here: map[*session]struct{}{}, sizer: pool.New(pool.Config{Cap: c.Warm})}
		s.nodes = append(s.nodes, n)
	}
	for i := range c.Placers {
		s.placers = append(s.placers, &placement.Placer{Policy: c.Policy,
			Views: make([]placement.View, c.Nodes), Rand: rand.New(rand.NewPCG(c.Seed, 10+uint64(i)))})
	}
	s.group = make([]int, c.Load.Templates)
	last := 0.0
	for t, at := range s.src.cdf {
		s.group[t] = min(max(3, int(math.Ceil(2*(at-last)*float64(c.Nodes)))), c.Nodes)
		last = at
	}
	s.arrive()
	s.at(0, s.tell)
	s.at(1, s.tend)
	s.at(c.Warmup, s.look)
	if c.Failure.Part > 0 {
		s.at(c.Failure.At, s.fail)
	}
}

// homes is the number of nodes on which a template lives. homeOf is the k-th of them.
func (s *Sim) homes(t int) int { return s.group[t] }

func (s *Sim) homeOf(t, k int) int {
	x := uint64(t)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	x ^= x >> 29
	return int((x%uint64(len(s.nodes)) + uint64(k)) % uint64(len(s.nodes)))
}

// counts reports whether the warm-up is over.
func (s *Sim) counts() bool { return s.now >= s.cfg.Warmup }

// arrive makes the next sessions, and plans the ones after them.
func (s *Sim) arrive() {
	after, n, template := s.src.next(s.now)
	s.at(s.now+after, func() {
		for range n {
			s.create(s.src.session(s.now, template, s.cfg.Costs))
		}
		s.arrive()
	})
}

// create begins a session.
func (s *Sim) create(x *session) {
	if s.counts() {
		s.asked++
	}
	n, late := s.find(x)
	if n == nil {
		return
	}
	key := pool.Key(strconv.Itoa(x.template))
	if s.cfg.Warm > 0 {
		n.sizer.Asked(key, s.clock())
	}
	var took float64
	if n.ready[x.template] > 0 {
		if n.ready[x.template]--; n.ready[x.template] == 0 {
			delete(n.ready, x.template)
		}
		n.memory -= s.cfg.Costs.IdleMB
		took = n.work(s, s.cfg.Costs.WarmCPU) + s.cfg.Costs.WarmIdle
		if s.counts() {
			s.hits++
		}
	} else {
		took = s.fetch(n, x.template) + n.work(s, s.cfg.Costs.ColdCPU) + s.cfg.Costs.ColdIdle
	}
	took += late
	if s.counts() {
		s.out.Started++
		s.creates = append(s.creates, took)
	}
	s.live(x, took)
}

// resume brings a paused session back.
func (s *Sim) resume(x *session) {
	x.began = s.now
	if home := s.nodes[x.home]; home.dead && s.now < home.lease { // its node may still have it
		s.at(home.lease, func() { s.wake(x, home.lease-x.began) })
		return
	}
	s.wake(x, 0)
}

// wake is resume for a session that has waited for its node's lease.
func (s *Sim) wake(x *session, waited float64) {
	from, life := x.home, x.life
	if s.nodes[from].dead {
		x.home = -1 // its snapshot is in the store
	}
	n, late := s.find(x)
	if n == nil {
		return
	}
	took := waited + late
	if from != x.node || n.life != life { // or its disk is another
		took += s.cfg.Costs.SnapshotMB / s.cfg.Node.NetworkMBps
		if s.counts() {
			s.out.Moves++
			s.out.MovedGB += s.cfg.Costs.SnapshotMB / 1024
		}
		took += s.fetch(n, x.template)
	}
	took += n.work(s, s.cfg.Costs.RestoreCPU) + s.cfg.Costs.RestoreIdle
	if s.counts() {
		s.out.Resumed++
		s.wakes = append(s.wakes, took)
	}
	s.live(x, took)
}

// find gives a session a node that lives. late is the time that was lost with dead ones. It returns nil if
// the start is refused.
func (s *Sim) find(x *session) (n *node, late float64) {
	for {
		i := s.place(s.placers[s.rng.IntN(len(s.placers))], x)
		if i < 0 || !s.nodes[i].dead {
			return s.enter(i, x), late
		}
		s.out.Misplaced++
		late += s.cfg.Failure.Dial
		s.know(i)
	}
}

// know has the fronts know that a node is dead.
func (s *Sim) know(i int) {
	if !s.nodes[i].dead || s.nodes[i].known {
		return
	}
	s.nodes[i].known = true
	s.survey()
}

// survey finds the nodes that are not known to be dead.
func (s *Sim) survey() {
	s.able = s.able[:0:0]
	for i, n := range s.nodes {
		if !n.known {
			s.able = append(s.able, i)
		}
	}
}

// fail kills a part of the nodes.
func (s *Sim) fail() {
	f := s.cfg.Failure
	for _, i := range s.rng.Perm(len(s.nodes))[:int(f.Part*float64(len(s.nodes)))] {
		n := s.nodes[i]
		n.dead, n.lease = true, s.now+f.Lease
		n.life++
		s.out.Lost += n.running
		for _, x := range n.sessions() {
			// Its user notices, and begins anew: not all at once.
			s.at(s.now+f.Silence+s.src.exp(5), func() {
				s.create(&session{template: x.template, memory: x.memory, cpu: x.cpu, began: s.now, home: -1, node: -1})
			})
		}
		clear(n.here)
		n.memory, n.load, n.running, n.making, n.cached = s.cfg.Costs.DaemonBaseMB, 0, 0, 0, nil
		clear(n.ready)
		clear(n.free)
		s.at(s.now+f.Silence, func() { s.know(i) })
		s.at(s.now+f.Back, func() {
			n.dead, n.known = false, false
			s.survey()
		})
	}
}

// sessions are a node's running sessions, in the order in which they began.
func (n *node) sessions() []*session {
	return slices.SortedFunc(maps.Keys(n.here), func(a, b *session) int { return a.number - b.number })
}

// enter gives a session its node. It returns nil if the start is refused.
func (s *Sim) enter(i int, x *session) *node {
	refuse := func() *node {
		if s.counts() {
			s.out.Refused++
		}
		return nil
	}
	if i < 0 {
		return refuse()
	}
	n := s.nodes[i]
	if n.memory+x.memory > s.cfg.Node.MemoryMB*0.95 { // what is kept ready gives way
		for _, t := range slices.Sorted(maps.Keys(n.ready)) {
			n.memory -= float64(n.ready[t]) * s.cfg.Costs.IdleMB
		}
		clear(n.ready)
	}
	if n.memory+x.memory > s.cfg.Node.MemoryMB*0.95 || n.wait(s.now) > s.cfg.MaxWait {
		return refuse()
	}
	s.number++
	x.node, x.life, x.number = i, n.life, s.number
	n.here[x] = struct{}{}
	n.memory += x.memory
	n.load += x.cpu
	n.running++
	return n
}

// live lets a session work, and then end or pause.
func (s *Sim) live(x *session, took float64) {
	s.at(s.now+took+s.src.exp(s.cfg.Load.Active), func() {
		n := s.nodes[x.node]
		if n.life != x.life {
			return // it was lost with its node
		}
		delete(n.here, x)
		n.memory -= x.memory
		n.load -= x.cpu
		n.running--
		if s.src.rng.Float64() >= s.cfg.Load.Pauses {
			return
		}
		n.work(s, s.cfg.Costs.PauseCPU)
		x.home = x.node
		s.at(s.now+s.src.exp(s.cfg.Load.Away), func() { s.resume(x) })
	})
}

// wait is the time until a start would begin.
func (n *node) wait(now float64) float64 { return max(0, slices.Min(n.free)-now) }

// work gives a start to the processor that is free first, and returns the time until it is done.
// The sandboxes' own work takes a part of the processor.
func (n *node) work(s *Sim, cpu float64) float64 {
	i := 0
	for k, at := range n.free {
		if at < n.free[i] {
			i = k
		}
	}
	share := max(0.1, 1-n.load/float64(s.cfg.Node.Processors))
	n.free[i] = max(s.now, n.free[i]) + cpu/share
	return n.free[i] - s.now
}

// fetch makes a template present on a node, and returns the time for it.
func (s *Sim) fetch(n *node, t int) float64 {
	if k := slices.Index(n.cached, t); k >= 0 {
		n.cached = append(slices.Delete(n.cached, k, k+1), t)
		return 0
	}
	if len(n.cached) >= s.cfg.Cache {
		n.cached = slices.Delete(n.cached, 0, 1)
	}
	n.cached = append(n.cached, t)
	if s.counts() {
		s.out.Fetches++
		s.out.MovedGB += s.cfg.TemplateMB / 1024
	}
	return s.cfg.TemplateMB / s.cfg.Node.NetworkMBps
}

// tell gives every placer the present state of the nodes.
func (s *Sim) tell() {
	for i, n := range s.nodes {
		v := placement.View{Memory: n.memory / s.cfg.Node.MemoryMB,
			Load: n.load / float64(s.cfg.Node.Processors), Queue: n.wait(s.now)}
		for _, p := range s.placers {
			p.Views[i] = v
		}
	}
	s.at(s.now+max(s.cfg.Stale, 0.01), s.tell)
}

// tendEvery is the time, in seconds, between two checks of a node's ready sandboxes. A node also
// checks when it has made one.
const tendEvery = 4

// tend keeps sandboxes ready on every node, as package pool says.
func (s *Sim) tend() {
	if s.cfg.Warm > 0 {
		for _, n := range s.nodes {
			s.tendNode(n)
		}
		s.at(s.now+tendEvery, s.tend)
	}
}

func (s *Sim) tendNode(n *node) {
	if n.dead {
		return
	}
	targets := n.sizer.Targets(s.clock(), nil)
	for _, t := range slices.Sorted(maps.Keys(n.ready)) {
		have := n.ready[t]
		if most := targets[pool.Key(strconv.Itoa(t))]; have > most {
			n.memory -= float64(have-most) * s.cfg.Costs.IdleMB
			if n.ready[t] = most; most == 0 {
				delete(n.ready, t)
			}
		}
	}
	keys := make([]pool.Key, 0, len(targets))
	for k := range targets {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		t, _ := strconv.Atoi(string(k))
		// Make one at a time, when no start waits and memory is not short.
		if n.ready[t] >= targets[k] || n.making > 0 || n.wait(s.now) > 0 || n.memory > 0.85*s.cfg.Node.MemoryMB {
			continue
		}
		n.making++
		n.memory += s.cfg.Costs.IdleMB
		took := n.work(s, s.cfg.Costs.ColdCPU) + s.cfg.Costs.ColdIdle
		life := n.life
		s.at(s.now+took, func() {
			if n.life != life {
				return
			}
			n.making--
			n.ready[t]++
			defer s.tendNode(n) // the next one
			n.sizer.Refilled(time.Duration(took * float64(time.Second)))
		})
	}
}

// clock is the simulated time as a time.Time.
func (s *Sim) clock() time.Time {
	return time.Unix(1_000_000_000, 0).Add(time.Duration(s.now * float64(time.Second)))
}

// look records the state of the nodes every second.
func (s *Sim) look() {
	var sum, squares, warm float64
	empty, running := 0, 0
	for _, n := range s.nodes {
		m := n.memory / s.cfg.Node.MemoryMB
		sum, squares = sum+m, squares+m*m
		s.out.MemoryMost = max(s.out.MemoryMost, m)
		ready := 0 // whole numbers: sums of fractions depend on a map's order
		for _, k := range n.ready {
			ready += k
		}
		warm += float64(ready) * s.cfg.Costs.IdleMB
		if running += n.running; n.running == 0 {
			empty++
		}
	}
	all := float64(len(s.nodes))
	mean := sum / all
	s.looks++
	s.memory += mean
	s.warm += warm / all
	s.cv += math.Sqrt(max(0, squares/all-mean*mean)) / mean
	s.empty += float64(empty) / all
	s.runs += float64(running) / all
	s.at(s.now+1, s.look)
}

// result adds up.
func (s *Sim) result() Result {
	r := s.out
	looks := float64(max(1, s.looks))
	r.P50, r.P95, r.P99 = at(s.creates, .5), at(s.creates, .95), at(s.creates, .99)
	r.ResumeP50, r.ResumeP95 = at(s.wakes, .5), at(s.wakes, .95)
	r.WarmHits = float64(s.hits) / float64(max(1, s.asked))
	r.Memory, r.WarmMB, r.Uneven, r.Empty, r.Running = s.memory/looks, s.warm/looks, s.cv/looks, s.empty/looks, s.runs/looks
	r.Events = s.seq
	return r
}

// at returns a quantile; 0 for no values.
func at(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// event is a planned event. Events at one moment happen in the order in which they were planned.
type event struct {
	at  float64
	seq int
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(event)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// at plans something.
func (s *Sim) at(t float64, do func()) {
	s.seq++
	heap.Push(&s.events, event{t, s.seq, do})
}

// run runs all events until the time is up.
func (s *Sim) run() {
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		if e.at > s.cfg.Seconds {
			return
		}
		s.now = e.at
		e.do()
	}
}
