package wire

import (
	"net/netip"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// rules are a link's policy and limits at one moment. They are immutable, except for the counters
// of the limits.
type rules struct {
	*policy.Policy
	host   *hostAddrs
	limits *limits
	proxy  *carrel.EgressProxy // nil for none
}

// newRules returns the rules for a policy. A nil policy lets nothing out.
func (w *Wire) newRules(p *policy.Policy) *rules {
	if p == nil {
		p = &policy.Policy{}
	}
	return &rules{Policy: p, host: w.host, limits: newLimits(p.Limits()), proxy: p.Proxy()}
}

// reachable reports whether the sandbox may learn an address or use it as its proxy. It must not be
// this host's, and must not be reserved unless a rule names it. A connection to it may still be
// denied.
func (r *rules) reachable(a netip.Addr) bool { return !r.host.has(a) && r.Reaches(a) }

// nameable reports whether a connection to an address without a known name would be inspected if
// the address had an allowed name.
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

// elsewhere are documentation addresses, which no rule names specially.
var elsewhere = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("203.0.113.53"), netip.MustParseAddr("2001:db8:53::53")}

// Judge adds one check that the policy can't make: whether an address belongs to this host.
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

// denied is a verdict of the wire itself. No rule can change it.
func denied(what, reason string) policy.Verdict {
	return policy.Verdict{Rule: "built-in: " + what, Index: -1, Reason: reason}
}
