package policy

import (
	"net/netip"

	"github.com/carrel-dev/carrel"
)

// App is what a connection speaks.
type App int

// The kinds.
const (
	AppUnknown App = iota // nobody has looked yet
	AppTLS
	AppHTTP  // cleartext HTTP/1 or HTTP/2, or TLS that was opened (Flow.Opened)
	AppOther // something else, or silence
)

// Flow is what is known of a connection, session or request.
type Flow struct {
	UDP  bool
	Addr netip.Addr // where the sandbox sends it; not valid when only a name is known
	Port uint16
	// Names are those for which this sandbox got Addr from our resolver.
	Names []string
	App   App
	// Name is what the protocol itself says: TLS server name or HTTP host, without a
	// port; "" when it says none.
	Name string
	// ECH says that the TLS hello carries an encrypted one.
	ECH bool
	// Opened says that TLS was terminated by us, and ServerName what its hello said.
	Opened     bool
	ServerName string
	// Method and Path are a request's; Method is "" when there is none yet.
	Method, Path string
}

// Verdict is an answer.
type Verdict struct {
	Allow bool
	// Inspect: not known yet, read the first bytes and ask again. Only where App is
	// AppUnknown.
	Inspect bool
	// Terminate: allowed so far, but TLS must be opened and each request judged. Only
	// where App is AppTLS.
	Terminate bool
	// Requests: allowed so far, but each request must be judged: cleartext HTTP that
	// is allowed by its name, or a rule with methods or paths.
	Requests bool
	// ByName is the name that it was allowed for, which is to be dialled afresh; ""
	// when the address itself is allowed.
	ByName string
	// Host: it goes to a service of the host, on 127.0.0.1 and this port.
	Host bool
	// Rule says what decided; never "".
	Rule string
	// Index is the rule's place for limits, in [Policy.Limits]; −1 for none.
	Index int
	// Reason and Hint explain a refusal.
	Reason, Hint string
	// Inject is what to put into a request; nil for nothing.
	Inject *carrel.Injection
}
