package wire

import (
	"net/netip"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// rules are what a link goes by at one moment. They are immutable but for the
// counters of the limits.
type rules struct {
	*policy.Policy
	host   *hostAddrs
	limits *limits
	proxy  *carrel.EgressProxy // nil for none
}

// newRules returns what a link under a policy goes by; nil lets nothing out.
func (w *Wire) newRules(p *policy.Policy) *rules {
	if p == nil {
		p = &policy.Policy{}
	}
	return &rules{Policy: p, host: w.host, limits: newLimits(p.Limits()), proxy: p.Proxy()}
}

// reachable reports whether an address may be told to the sandbox at all, or be its proxy:
// it is not this host's, and not reserved unless a rule names it. Whether it may be
// connected to is another question.
func (r *rules) reachable(a netip.Addr) bool { return !r.host.has(a) && r.Reaches(a) }

// nameable reports whether a connection that is refused because nobody knows a name for
// its address would be looked at if it had one that the rules allow.
func (r *rules) nameable(f policy.Flow) bool { return !r.host.has(f.Addr) && r.Nameable(f) }

// everywhere reports whether the rule that allowed a flow allows it to every address.
func (r *rules) everywhere(f policy.Flow, v policy.Verdict) bool {
	f.Names = nil
	for _, a := range elsewhere {
		f.Addr = a
		if w := r.Judge(f); w.Rule != v.Rule || !w.Allow && !w.Inspect {
			return false
		}
	}
	return true
}

// elsewhere are addresses of documentation, which nobody means in particular.
var elsewhere = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("203.0.113.53"), netip.MustParseAddr("2001:db8:53::53")}

// Judge adds to the policy what it can't know: which addresses are this host's.
func (r *rules) Judge(f policy.Flow) policy.Verdict {
	if f.Addr.IsValid() && r.host.has(f.Addr) {
		return ownHost(f.Port)
	}
	return r.Policy.Judge(f)
}

// JudgeTarget does the same.
func (r *rules) JudgeTarget(f policy.Flow, to netip.Addr) policy.Verdict {
	if r.host.has(to) {
		return ownHost(f.Port)
	}
	return r.Policy.JudgeTarget(f, to)
}

func ownHost(port uint16) policy.Verdict {
	v := denied("this host", "the address belongs to the host that the sandbox runs on")
	v.Hint = policy.HostHint(port)
	return v
}

// denied is a verdict of the wire itself, which no rule can change.
func denied(what, reason string) policy.Verdict {
	return policy.Verdict{Rule: "built-in: " + what, Index: -1, Reason: reason}
}
