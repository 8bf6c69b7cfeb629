package wire

import (
	"context"
	"errors"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/policy"
)

// leftEvery is how often the wire checks whether the sandbox has left a held connection.
const leftEvery = 250 * time.Millisecond

// Causes of the end of a wait for a person.
var (
	errRules = errors.New("the rules have changed")
	errLeft  = errors.New("the sandbox has left")
)

// grant is what a person was asked about. rule is that of [policy.Verdict.Ask].
type grant struct{ rule, host string }

// hold is one wait for a person.
type hold struct {
	known policy.Flow
	rule  string
	end   context.CancelCauseFunc
}

// grantOf is what a person is asked about when a flow has a verdict. The host is the name that is
// dialled after a yes, or the address.
func grantOf(known policy.Flow, v policy.Verdict) grant {
	if v.ByName != "" {
		return grant{v.Ask, v.ByName}
	}
	return grant{v.Ask, known.Addr.Unmap().WithZone("").String()}
}

// granted returns the verdict on a flow after what a person said before. f.mu is held.
func (f *flow) granted(known policy.Flow, v policy.Verdict) policy.Verdict {
	if v.Ask == "" || v.Allow {
		return v
	}
	if by, ok := f.grants[grantOf(known, v)]; ok {
		return v.Granted(by)
	}
	return v
}

// stillAllowed reports whether an open flow may go on with a verdict of new rules. It may if a person
// said yes to it, and the rule that asked is still there.
func (f *flow) stillAllowed(v policy.Verdict) bool {
	if v.Allow || v.Ask == "" {
		return v.Allow
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered[v.Ask]
}

// rehold ends the waits that new rules make pointless. They are judged again.
func (f *flow) rehold(r *rules) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.holds {
		if r.Judge(h.known).Ask != h.rule {
			h.end(errRules)
		}
	}
}

// admit asks a person about a flow with the verdict v, if the policy says so. It returns the verdict
// after the answer, by the rules of that time. A connection that is held is accepted.
func (e *egress) admit(f *flow, in *arrival, known policy.Flow, r *rules, v policy.Verdict) (*rules, policy.Verdict) {
	for v.Ask != "" && !v.Allow {
		if !in.accept() {
			return r, refusedHold(v, inbox.Reply{Reason: errLeft.Error()})
		}
		reply, again := e.hold(f, in.conn, known, r, v)
		if again {
			r, v = e.settle(f, known)
			continue
		}
		if !reply.Allow {
			return r, refusedHold(v, reply)
		}
		f.grant(known, v, reply, true)
		r, v = e.settle(f, known)
	}
	v.Inspect = false // this was done
	return r, v
}

// judgeRequest judges a request, and asks a person about it if the policy says so.
func (e *egress) judgeRequest(f *flow, in *arrival, k policy.Flow) policy.Verdict {
	for {
		r := e.link.rules.Load()
		f.mu.Lock()
		v := f.granted(k, r.Judge(k))
		f.mu.Unlock()
		if v.Ask == "" || v.Allow {
			return v
		}
		reply, again := e.hold(f, in.conn, k, r, v)
		switch {
		case again:
			continue
		case !reply.Allow:
			return refusedHold(v, reply)
		}
		f.grant(k, v, reply, !policy.AsksRequests(v.Ask))
		// The rules may have changed since the answer.
		if now := e.link.rules.Load().Judge(k); now.Ask == v.Ask && grantOf(k, now) == grantOf(k, v) {
			return now.Granted(reply.By)
		}
	}
}

// grant notes a yes. whole says that it is for the whole flow, and not for one request.
func (f *flow) grant(known policy.Flow, v policy.Verdict, reply inbox.Reply, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered == nil {
		f.answered, f.grants = map[string]bool{}, map[grant]string{}
	}
	f.answered[v.Ask] = true
	if whole && len(f.grants) < maxFlowGrants {
		f.grants[grantOf(known, v)] = reply.By
	}
}

// maxAskedPath bounds the path of a request that a person is asked about, in bytes.
const maxAskedPath = 2 << 10

// maxFlowGrants bounds the hosts that one connection with many requests was granted.
const maxFlowGrants = 100

// refusedHold is the verdict after a no.
func refusedHold(v policy.Verdict, reply inbox.Reply) policy.Verdict {
	return policy.Verdict{Rule: v.Rule, Index: -1, Answer: reply.By, Reason: v.Reason + ": " + reply.Reason, Hint: reply.Hint}
}

// hold waits for a person's answer about a flow that r has judged. It returns again if the rules
// have changed meanwhile, so that the flow must be judged again. Nothing leaves during the wait.
func (e *egress) hold(f *flow, conn *guestConn, known policy.Flow, r *rules, v policy.Verdict) (reply inbox.Reply, again bool) {
	ask := e.link.wire.opts.Ask
	if ask == nil {
		return inbox.Reply{Reason: "there is nobody to ask here", Hint: "carrel serve has an inbox: carrel inbox"}, false
	}
	q := e.question(known, v)
	if len(q.Path) > maxAskedPath {
		return inbox.Reply{Reason: "its path is too long to be read by a person"}, false
	}
	ctx, end := context.WithCancelCause(f.ctx)
	defer end(nil)
	h := &hold{known, v.Ask, end}
	f.mu.Lock()
	if f.holds == nil {
		f.holds = map[*hold]struct{}{}
	}
	f.holds[h] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.holds, h)
		f.mu.Unlock()
	}()
	if e.link.rules.Load() != r { // rehold may have been before this wait
		return reply, true
	}
	defer watchLeft(ctx, conn, end)()
	reply = ask(ctx, inbox.Ask{Question: q, Key: v.Ask, Hold: r.Hold(),
		Held: func(q carrel.Question) string { return e.tellHeld(ctx, f, known, v, q) }})
	return reply, errors.Is(context.Cause(ctx), errRules)
}

// watchLeft ends a wait when the sandbox closes its connection, or its half of it. Nothing may be
// sent for a program that has given up.
func watchLeft(ctx context.Context, conn *guestConn, end context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(leftEvery)
		defer t.Stop()
		for {
			if tcp.EndpointState(conn.endpoint.State()) != tcp.StateEstablished {
				end(errLeft)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	}()
	return func() { end(nil); <-done }
}

// question describes a flow to a person. All that a yes is for is in it.
func (e *egress) question(known policy.Flow, v policy.Verdict) carrel.Question {
	d := e.decision(time.Now(), known, v)
	q := carrel.Question{Sandbox: e.link.id, Host: grantOf(known, v).host, Port: known.Port, Address: d.Address,
		Protocol: d.Protocol, Rule: v.Rule}
	if known.Opened {
		q.Protocol = "https"
	}
	if policy.AsksRequests(v.Ask) {
		q.Method, q.Path = known.Method, known.Path
	}
	return q
}

// tellHeld tells the sandbox that a connection waits, and returns the program that made it.
func (e *egress) tellHeld(ctx context.Context, f *flow, known policy.Flow, v policy.Verdict, q carrel.Question) string {
	d := e.decision(f.started, known, v)
	d.Protocol, d.Method, d.Path = q.Protocol, q.Method, q.Path
	return e.refusals.held(ctx, d, q, f.from)
}

// held tells the sandbox of a connection that waits, as explain does of refusals.
func (s *refusals) held(ctx context.Context, d carrel.Decision, q carrel.Question, from uint16) string {
	first := d
	first.Name, first.Address = "held: "+q.Host, "" // not the refusal that may follow
	if s.link.wire.opts.Refused == nil || !s.first(first) {
		return ""
	}
	got, _ := s.tell(ctx, guest.Refusal{Event: d, Line: guest.HeldLine(d, q), SourcePort: from, Held: true})
	return got.Process
}

// listenHeld asks a person about a connection whose sandbox waits for the other side to speak, and
// has said nothing for so long that it is not known what it is. asked is false if the policy does not
// ask about its address. Without done, the sandbox spoke first after all, and its bytes decide.
func (e *egress) listenHeld(f *flow, in *arrival, known policy.Flow, p *peeker) (asked, done bool) {
	known.App = policy.AppOther
	r, v := e.settle(f, known)
	if v.Ask == "" {
		return false, false
	}
	if r, v = e.admit(f, in, known, r, v); !v.Allow {
		e.refuse(f, in, known, v)
		return true, true
	}
	return true, e.hear(f, in, known, r, v, p)
}
