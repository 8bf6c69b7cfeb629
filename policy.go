package carrel

// Policy says which traffic may pass a sandbox's network link, in one form for the API, the command
// line and files. The zero value lets nothing out.
//
// The first of Rules that matches a connection decides; if none matches, Default decides. Whatever
// the rules say, a sandbox never reaches this host, link-local addresses or a cloud's metadata
// service. It reaches private addresses only if a rule gives them as addresses.
type Policy struct {
	// Presets are names of built-in lists of rules, judged after Rules.
	Presets []string `json:"presets,omitempty"`
	// Default decides when no rule matches: "deny" ("" is the same) or "allow".
	Default string `json:"default,omitempty"`
	Rules   []Rule `json:"rules,omitempty"`
	// Inject lists credentials to put into outgoing requests. It opens nothing: the rules must
	// allow the host too. The most specific Host wins: an exact name, then the longest pattern.
	Inject []Injection `json:"inject,omitempty"`
	// Limits bound the traffic of the whole sandbox.
	Limits TrafficLimits `json:"limits,omitzero"`
	// ECH is about connections whose hello hides another name inside (TLS Encrypted Client Hello).
	// "allow" lets them through. "" and "deny" refuse them where names decide. Browsers send a
	// decoy that looks the same as a real one.
	ECH string `json:"ech,omitempty"`
	// Silent turns off the explanation of refusals inside the sandbox.
	Silent bool `json:"silent,omitempty"`
	// AskSeconds is how long a connection that meets a rule with Ask is held at most: 0 is 120, and
	// 3600 is the most.
	AskSeconds int `json:"askSeconds,omitempty"`
}

// Rule allows, denies or asks. Exactly one of Allow, Deny and Ask is given. All given fields must
// match.
type Rule struct {
	Name string `json:"name,omitempty"` // for the audit log and for people
	// Allow and Deny are destinations: "example.com" (that name alone), "*.example.com" (every name
	// below it, not itself), an address, a CIDR, or "*".
	//
	// A name matches a connection under two conditions: the sandbox got the address from our
	// resolver for that name, and the connection itself gives the name, as TLS server name or as
	// HTTP host. Protocols that give no name match only with Protocol "tcp" or "udp", and then by
	// the address alone.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Ask are destinations in the same form. What an Allow would let through is held until a person
	// says yes or no (see [Inbox]). Nothing of it leaves before. Only TCP can be held.
	Ask   []string `json:"ask,omitempty"`
	Ports []string `json:"ports,omitempty"` // "443" or "8000-8999"; none means all
	// Protocol is "tcp", "udp", "http" (cleartext), "https" (TLS), or "" for any. With "", allowed
	// names are for http and https only, but denied names are denied for every protocol.
	Protocol string `json:"protocol,omitempty"`
	// Methods and Paths are for HTTP. If one is given, Carrel opens TLS to these names to judge the
	// requests (the sandbox trusts our authority). In a path "*" stands for any part of one segment
	// and "**" for any number of segments.
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Inspect opens TLS even without Methods and Paths. The host of each request must then agree
	// with the server name, and each request is in the audit log.
	Inspect bool          `json:"inspect,omitempty"`
	Limits  TrafficLimits `json:"limits,omitzero"` // for all traffic that this rule allows, together
}

// TrafficLimits bound traffic. A zero field sets no bound; the limits of the wire itself hold
// anyway.
type TrafficLimits struct {
	Connections           int     `json:"connections,omitempty"`          // open at once
	ConnectionsPerSecond  float64 `json:"connectionsPerSecond,omitempty"` // new ones
	RequestsPerSecond     float64 `json:"requestsPerSecond,omitempty"`    // of HTTP that we see into
	SendBytesPerSecond    int64   `json:"sendBytesPerSecond,omitempty"`   // out of the sandbox
	ReceiveBytesPerSecond int64   `json:"receiveBytesPerSecond,omitempty"`
}

// Injection puts credentials into requests to a host. Carrel opens TLS to that host to do so. The
// sandbox never holds the credentials. If a response repeats them, they are struck out.
//
// In the texts "${secrets.NAME}" stands for a secret of the sandbox's owner and "${tokens.NAME}"
// for a fresh identity token of the sandbox (see [TokenSpec]); E2B's "${e2b.secrets.NAME}" and
// "${e2b.identity.tokens.NAME}" mean the same.
type Injection struct {
	Host    string   `json:"host"` // "api.example.com" or "*.example.com"
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Bearer is the name of a secret for "Authorization: Bearer …".
	Bearer string `json:"bearer,omitempty"`
	// Basic is for "Authorization: Basic …".
	Basic *BasicAuth `json:"basic,omitempty"`
	// Headers replace headers of the same name.
	Headers map[string]string `json:"headers,omitempty"`
	// Query replaces query parameters of the same name.
	Query map[string]string `json:"query,omitempty"`
	// Env are variables for the sandbox, so that programs find a key where they look for one. The
	// values are placeholders, not secrets; for "" one is made up.
	Env map[string]string `json:"env,omitempty"`
	// Cleartext also injects into requests without TLS, which anybody on the network path can read.
	Cleartext bool `json:"cleartext,omitempty"`
	// KeepEchoes leaves responses unchanged, even those that repeat a credential.
	KeepEchoes bool `json:"keepEchoes,omitempty"`
}

// BasicAuth is a user name and the name of the secret that holds the password.
type BasicAuth struct {
	User   string `json:"user"`
	Secret string `json:"secret"`
}

// NetworkRule is E2B's form for changes to requests to one host.
type NetworkRule struct {
	Transform *NetworkTransform `json:"transform,omitempty"`
}

// NetworkTransform is E2B's form for headers that are put into requests.
type NetworkTransform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// EgressProxy is E2B's form for a SOCKS5 proxy. The sandbox's TCP connections go through it after
// they were judged.
type EgressProxy struct {
	Address  string `json:"address"` // host:port
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // a secret: no door returns it
}
