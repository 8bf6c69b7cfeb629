package carrel

// Policy says what may pass a sandbox's wire, in one form for the API, the command
// line and files. The zero value lets nothing out.
//
// A connection is judged by the first of Rules that matches it, and by Default when
// none does. Whatever the rules say, a sandbox never reaches this host, link-local
// addresses or a cloud's metadata service, and private addresses only where a rule
// names them as addresses.
type Policy struct {
	// Presets are names of built-in lists of rules, judged after Rules.
	Presets []string `json:"presets,omitempty"`
	// Default is for what no rule matches: "deny" ("" is the same) or "allow".
	Default string `json:"default,omitempty"`
	Rules   []Rule `json:"rules,omitempty"`
	// Inject says what is put into requests on their way out. It opens nothing: the
	// rules must allow the host too. The most specific Host wins: an exact name, then the longest pattern.
	Inject []Injection `json:"inject,omitempty"`
	// Limits bound the sandbox as a whole.
	Limits TrafficLimits `json:"limits,omitzero"`
	// ECH "allow" lets connections through whose hello hides another name inside (TLS
	// Encrypted Client Hello). By default ("" or "deny") they are refused where names decide.
	// Browsers send a decoy that can't be told from the real thing.
	ECH string `json:"ech,omitempty"`
	// Silent keeps refusals from being explained inside the sandbox.
	Silent bool `json:"silent,omitempty"`
}

// Rule allows or denies. Of Allow and Deny exactly one is given. Every field that is
// given must match.
type Rule struct {
	Name string `json:"name,omitempty"` // for the audit log and for people
	// Allow and Deny are destinations: "example.com" (that name alone),
	// "*.example.com" (every name below it, not itself), an address, a CIDR, or "*".
	//
	// A name matches a connection when the sandbox got its address from our resolver for
	// that name and the connection itself says the name too: as TLS server name or
	// as HTTP host. Protocols that say no name match only with Protocol "tcp" or "udp",
	// and then by the address alone.
	//
	// "host.carrel.internal", alone and with single ports, opens these ports of the host's own
	// loopback. Nothing else does.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	Ports []string `json:"ports,omitempty"` // "443" or "8000-8999"; none means all
	// Protocol is "tcp", "udp", "http" (cleartext), "https" (TLS), or "" for any. Names that
	// are allowed are then for http and https; what is denied by name is denied whatever
	// the protocol.
	Protocol string `json:"protocol,omitempty"`
	// Methods and Paths are for HTTP. Where they are given, TLS to these names is opened
	// on the way (the sandbox trusts our authority) so that requests can be judged. In a path "*"
	// stands for any part of one segment and "**" for any number of segments.
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Inspect opens TLS although neither of them is given: the host of each request must then
	// agree with the server name, and each request is in the audit log.
	Inspect bool          `json:"inspect,omitempty"`
	Limits  TrafficLimits `json:"limits,omitzero"` // of all that this rule allows, together
}

// TrafficLimits bound traffic. Zero fields bound nothing beyond the wire's own limits.
type TrafficLimits struct {
	Connections           int     `json:"connections,omitempty"`          // open at once
	ConnectionsPerSecond  float64 `json:"connectionsPerSecond,omitempty"` // new ones
	RequestsPerSecond     float64 `json:"requestsPerSecond,omitempty"`    // of HTTP that we see into
	SendBytesPerSecond    int64   `json:"sendBytesPerSecond,omitempty"`   // out of the sandbox
	ReceiveBytesPerSecond int64   `json:"receiveBytesPerSecond,omitempty"`
}

// Injection puts credentials into requests to a host. TLS to it is opened on the way. The
// sandbox never holds what is put in, and where a response repeats it, it is struck out.
//
// In the texts "${secrets.NAME}" stands for a secret of the sandbox's owner and
// "${tokens.NAME}" for a fresh identity token of the sandbox (see [TokenSpec]); E2B's
// "${e2b.secrets.NAME}" and "${e2b.identity.tokens.NAME}" mean the same.
type Injection struct {
	Host    string   `json:"host"` // "api.example.com" or "*.example.com"
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Bearer is the name of a secret for "Authorization: Bearer …".
	Bearer string `json:"bearer,omitempty"`
	// Basic is for "Authorization: Basic …".
	Basic *BasicAuth `json:"basic,omitempty"`
	// Headers replace those of the same name.
	Headers map[string]string `json:"headers,omitempty"`
	// Query parameters replace those of the same name.
	Query map[string]string `json:"query,omitempty"`
	// Env are variables that the sandbox gets, so that programs find a key where they look
	// for one. The values are placeholders and no secrets; "" is made up.
	Env map[string]string `json:"env,omitempty"`
	// Cleartext also puts it into requests without TLS, which anybody on the way can read.
	Cleartext bool `json:"cleartext,omitempty"`
	// KeepEchoes leaves responses alone.
	KeepEchoes bool `json:"keepEchoes,omitempty"`
}

// BasicAuth is a user name and the name of the secret that is the password.
type BasicAuth struct {
	User   string `json:"user"`
	Secret string `json:"secret"`
}

// NetworkRule is E2B's: what is done to requests to one host.
type NetworkRule struct {
	Transform *NetworkTransform `json:"transform,omitempty"`
}

// NetworkTransform is E2B's: headers that are put into requests.
type NetworkTransform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// EgressProxy is E2B's: a SOCKS5 proxy that the sandbox's TCP connections are sent
// through after they were judged.
type EgressProxy struct {
	Address  string `json:"address"` // host:port
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // a secret: not answered by any door
}
