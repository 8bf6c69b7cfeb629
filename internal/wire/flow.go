package wire

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/carrel-dev/carrel/internal/policy"
)

// flow is one connection, session or question of the sandbox that the daemon serves. It ends with
// its context.
type flow struct {
	kind    flowKind
	to      netip.AddrPort
	from    uint16 // the sandbox's port
	started time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the daemon carries nothing more of it

	mu sync.Mutex
	// known is set when the flow is allowed, and holds the properties that it was allowed for. When
	// the policy changes, the flow is judged again by them. request is the last request in the
	// flow, if it is served as HTTP.
	known, request *policy.Flow
	// grants are what a person said yes to, for this whole flow, and by whom. answered are the rules
	// that asked, also about single requests. holds are the waits for an answer.
	grants   map[grant]string
	answered map[string]bool
	holds    map[*hold]struct{}
}

type flowKind int

const (
	flowTCP flowKind = iota
	flowUDP
	flowDNS
	flowLocal
)

// settle judges f by the present policy, and remembers its known properties. If it returns that f
// is allowed, then the policy has not changed, or recheck will judge f again.
func (e *egress) settle(f *flow, known policy.Flow) (*rules, policy.Verdict) {
	for {
		r := e.link.rules.Load()
		v := r.Judge(known)
		f.mu.Lock()
		v = f.granted(known, v)
		f.known = nil
		if v.Allow && !v.Inspect {
			f.known = &known
		}
		f.mu.Unlock()
		if r == e.link.rules.Load() {
			return r, v
		}
	}
}

// forbidden reports whether the policy no longer allows a flow.
func (f *flow) forbidden(r *rules) bool {
	f.mu.Lock()
	known, request := f.known, f.request
	f.mu.Unlock()
	if known == nil {
		return false // not judged yet; the policy of that time will decide
	}
	if known.UDP && r.proxy != nil {
		return true
	}
	k := *known
	v := r.Judge(k)
	if v.Inspect {
		// The old policy did not ask to inspect this flow. Now it is too late.
		k.App = policy.AppOther
		v = r.Judge(k)
	}
	if request != nil {
		// HTTP: each new request is judged anyway. Only a request that is still running must end.
		return !f.stillAllowed(v) || !f.stillAllowed(r.Judge(*request))
	}
	return !f.stillAllowed(v) || v.Terminate || v.Requests
}

// begin registers a flow. It reports false when the link is closing, or the flow is over a limit.
func (e *egress) begin(kind flowKind, id stack.TransportEndpointID) (*flow, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	count, limit := e.counter(kind)
	if e.closed || *count >= limit {
		return nil, false
	}
	*count++
	f := &flow{kind: kind, to: netip.AddrPortFrom(netipAddr(id.LocalAddress), id.LocalPort), from: id.RemotePort, started: time.Now(), ended: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(e.link.ctx)
	e.flows[f] = struct{}{}
	e.busy.Add(1)
	return f, true
}

func (e *egress) end(f *flow) {
	f.cancel()
	close(f.ended)
	e.mu.Lock()
	count, _ := e.counter(f.kind)
	*count--
	delete(e.flows, f)
	e.mu.Unlock()
	e.busy.Done()
}

func (e *egress) counter(kind flowKind) (count *int, limit int) {
	switch kind {
	case flowTCP:
		return &e.conns, e.link.wire.opts.MaxConns
	case flowUDP:
		return &e.sessions, e.link.wire.opts.MaxSessions
	case flowLocal:
		return &e.local, maxLocal
	default:
		return &e.dns, maxResolving
	}
}

// cutAll ends every flow without waiting.
func (e *egress) cutAll() { e.cut(func(*flow) bool { return true }) }

// cutTime bounds the wait for flows that were cut. They end in moments. But the end of some
// connections depends on the other side, and nobody should wait for that.
const cutTime = 2 * time.Second

// recheck ends the flows that the present policy forbids. It returns when nothing more of them is
// carried, or after cutTime.
func (e *egress) recheck() {
	r := e.link.rules.Load()
	late := time.NewTimer(cutTime)
	defer late.Stop()
	for _, f := range e.cut(func(f *flow) bool { f.rehold(r); return f.forbidden(r) }) {
		select {
		case <-f.ended:
		case <-late.C:
			return
		}
	}
}

// cut begins to end all flows for which the function which returns true, and returns those flows.
func (e *egress) cut(which func(*flow) bool) []*flow {
	e.mu.Lock()
	all := make([]*flow, 0, len(e.flows))
	for f := range e.flows {
		all = append(all, f)
	}
	e.mu.Unlock()
	var cut []*flow
	for _, f := range all {
		if which(f) {
			f.cancel()
			cut = append(cut, f)
		}
	}
	return cut
}

// close ends every flow and waits.
func (e *egress) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cutAll()
	e.busy.Wait()
}
