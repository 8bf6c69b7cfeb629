package policy

import (
	"net/netip"

	"github.com/carrel-dev/carrel"
)

// App is the protocol of a connection.
type App int

// The kinds.
const (
	AppUnknown App = iota // nobody has looked yet
	AppTLS
	AppHTTP  // cleartext HTTP/1 or HTTP/2, or opened TLS (Flow.Opened)
	AppOther // something else, or silence
)

// Flow holds the known facts of a connection, session or request.
type Flow struct {
	UDP  bool
	Addr netip.Addr // the destination; not valid when only a name is known
	Port uint16
	// Names are the names for which this sandbox got Addr from our resolver.
	Names []string
	App   App
	// Name is the name in the protocol itself: TLS server name or HTTP host, without a port. It is
	// "" when there is none.
	Name string
	// ECH says that the TLS hello contains an encrypted one.
	ECH bool
	// Opened says that the wire terminated TLS. ServerName is the name in its hello.
	Opened     bool
	ServerName string
	// Method and Path are those of a request. Method is "" when there is none yet.
	Method, Path string
}

// Closed returns a policy that lets nothing out. label says why, in refusals.
func Closed(label string) *Policy {
	p := &Policy{}
	p.setFallback(false, label)
	return p
}

// Verdict is an answer.
type Verdict struct {
	Allow bool
	// Inspect means: not known yet, read the first bytes and ask again. It is set only when App is
	// AppUnknown.
	Inspect bool
	// Terminate means: allowed so far, but TLS must be opened and each request judged. It is set
	// only when App is AppTLS.
	Terminate bool
	// Requests means: allowed so far, but each request must be judged. It is set for cleartext HTTP
	// that is allowed by its name, and for rules with methods or paths.
	Requests bool
	// ByName is the name that the flow was allowed for. The wire must look it up again and dial it.
	// It is "" when the address itself is allowed.
	ByName string
	// Host: it goes to a service of the host, on 127.0.0.1 and this port.
	Host bool
	// Ask, if not "", says that a person must be asked. Allow is false then. The other fields are
	// those of an allowed flow, for a person who says yes. Ask is the same text for equal rules, and
	// holds as long as the rule is in the policy.
	Ask string
	// Answer says who answered and for how long, once somebody did.
	Answer string
	// Rule names the rule that decided. It is never "".
	Rule string
	// Index is the rule's place for limits, in [Policy.Limits]. It is −1 for none.
	Index int
	// Reason and Hint explain a refusal.
	Reason, Hint string
	// Inject is the injection for a request; nil for none.
	Inject *carrel.Injection
}
