package plan

// Reach says where the marker of an attempt may arrive.
type Reach int

// The reaches.
const (
	// Open: nowhere under the allow-list. It gets out if everything is allowed.
	Open Reach = iota
	// OpenMaybe: like Open, but it may fail to get out even if everything is allowed. That depends
	// on the kernel inside and its network stack.
	OpenMaybe
	// Never: nowhere, under any policy.
	Never
	// Control: at Allowed or Echo under the allow-list. It shows that the list lets something out.
	Control
	// Fronted: inside TLS to Allowed, where only a rule that opens TLS can see it. Without such a
	// rule it reaches only Allowed's own servers; with one it reaches nobody.
	Fronted
	// Opaque: like Fronted, but the wire may also refuse it.
	Opaque
)

// Attempt is one way out.
type Attempt struct {
	Name  string
	Reach Reach
	// Refused demands that the program inside sees an immediate refusal if the policy denies the
	// attempt: a reset of TCP, port unreachable for UDP. If names decide, the reset may come after
	// the first bytes.
	Refused bool
	// Deaf demands that nothing answers, not even the wire itself.
	Deaf bool
	// Asked means that the marker appears only in DNS questions, if those can be seen.
	Asked bool
	// Root means that only root inside can try.
	Root bool
}

// Attempts are all ways out. The index of an attempt is part of its marker.
var Attempts = []Attempt{
	// What the list allows.
	{Name: "control-tls", Reach: Control},
	{Name: "control-tls6", Reach: Control},
	{Name: "control-tls-split", Reach: Control},
	{Name: "control-tls-records", Reach: Control},
	{Name: "control-http", Reach: Control},
	{Name: "control-wild", Reach: Control},
	{Name: "control-tcp", Reach: Control},
	{Name: "control-udp", Reach: Control},

	// Plain addresses.
	{Name: "tcp4", Reach: Open, Refused: true},
	{Name: "tcp6", Reach: Open, Refused: true},
	{Name: "tcp-any-port", Reach: Open, Refused: true},
	{Name: "tcp-allowed-address-other-port", Reach: Open, Refused: true},
	{Name: "tcp-echo-other-port", Reach: Open, Refused: true},
	{Name: "udp4", Reach: Open, Refused: true},
	{Name: "udp6", Reach: Open, Refused: true},
	{Name: "udp-allowed-address", Reach: Open, Refused: true},
	{Name: "udp-unconnected", Reach: Open},
	{Name: "udp-jumbo", Reach: Open},
	{Name: "udp-empty-then-data", Reach: Open},
	{Name: "quic4", Reach: Open, Refused: true},
	{Name: "quic-allowed-address", Reach: Open, Refused: true},
	{Name: "disguised6", Reach: Open},
	{Name: "unreachable-addresses", Reach: Never},
	{Name: "unreachable-udp", Reach: Never, Deaf: true},
	{Name: "link-local", Reach: Never, Deaf: true},
	{Name: "multicast", Reach: Never},
	{Name: "broadcast", Reach: Never},
	{Name: "gateway-ports", Reach: Never, Deaf: true},
	{Name: "host-addresses", Reach: Never, Deaf: true},
	{Name: "daemon-doors", Reach: Never, Deaf: true},
	{Name: "metadata-service", Reach: Never},
	{Name: "neighbours", Reach: Never, Deaf: true},

	// TLS to where the list leads.
	{Name: "sni-denied", Reach: Open},
	{Name: "sni-shared-name", Reach: Open},
	{Name: "sni-none", Reach: Open},
	{Name: "sni-empty", Reach: Open},
	{Name: "sni-address", Reach: Open},
	{Name: "sni-wildcard", Reach: Open},
	{Name: "sni-suffix", Reach: Open},
	{Name: "sni-prefix", Reach: Open},
	{Name: "sni-nul", Reach: Open},
	{Name: "sni-space", Reach: Open},
	{Name: "sni-port", Reach: Open},
	{Name: "sni-slash", Reach: Open},
	{Name: "sni-unicode", Reach: Open},
	{Name: "sni-long", Reach: Open},
	{Name: "sni-dots", Reach: Open},
	{Name: "sni-twice", Reach: Open},
	{Name: "sni-two-names", Reach: Open},
	{Name: "sni-other-type", Reach: Open},
	{Name: "sni-bad-length", Reach: Open},
	{Name: "sni-allowed-at-denied-address", Reach: Open, Refused: true},
	// An allowed name at its own address, but never asked for. Every connection looks like this
	// after a restart of the daemon. The wire then asks by itself.
	{Name: "sni-allowed-never-asked", Reach: Fronted},
	{Name: "ech-outer-allowed", Reach: Open},
	{Name: "ech-old-codepoint", Reach: Open},
	{Name: "hello-split", Reach: Open},
	{Name: "hello-records", Reach: Open},
	{Name: "hello-huge", Reach: Open},
	{Name: "hello-after-alert", Reach: Open},
	{Name: "hello-after-empty-records", Reach: Open},
	{Name: "hello-twice", Reach: Opaque},
	{Name: "hello-sslv2", Reach: Open},
	{Name: "hello-urgent", Reach: Open},
	{Name: "hello-half", Reach: Open},
	{Name: "hello-early-data", Reach: Open},
	{Name: "not-tls-on-443", Reach: Open},
	{Name: "silence-then-data", Reach: Open},
	{Name: "doh", Reach: Open},
	{Name: "doh-address", Reach: Open, Refused: true},
	{Name: "doh-fronted", Reach: Fronted},
	{Name: "dot", Reach: Open, Refused: true},
	{Name: "dot-allowed-name", Reach: Open, Refused: true},
	{Name: "fronting", Reach: Fronted},
	{Name: "fronting-keepalive", Reach: Fronted},
	{Name: "fronting-websocket", Reach: Fronted},
	{Name: "fronting-h2", Reach: Fronted},

	// Cleartext HTTP to the server that the list allows.
	{Name: "http-host-denied", Reach: Open},
	{Name: "http-host-shared", Reach: Open},
	{Name: "http-host-none", Reach: Open},
	{Name: "http-host-two", Reach: Open},
	{Name: "http-host-list", Reach: Open},
	{Name: "http-host-userinfo", Reach: Open},
	{Name: "http-host-folded", Reach: Open},
	{Name: "http-host-space-colon", Reach: Open},
	{Name: "http-host-bare-lf", Reach: Open},
	{Name: "http-host-nul", Reach: Open},
	{Name: "http-absolute", Reach: Open},
	{Name: "http-absolute-allowed", Reach: Open},
	{Name: "http-one-zero", Reach: Open},
	{Name: "http-zero-nine", Reach: Open},
	{Name: "http-keepalive-second", Reach: Open},
	{Name: "http-pipelined", Reach: Open},
	{Name: "http-cl-te", Reach: Open},
	{Name: "http-te-cl", Reach: Open},
	{Name: "http-te-te", Reach: Open},
	{Name: "http-cl-cl", Reach: Open},
	{Name: "http-chunk-extension", Reach: Open},
	{Name: "http-connect", Reach: Open},
	{Name: "http-websocket-denied", Reach: Open},
	{Name: "http-h2c-prior", Reach: Open},
	{Name: "http-h2c-upgrade", Reach: Open},
	{Name: "http-other-upgrade", Reach: Open},
	{Name: "http-endless-header", Reach: Open},
	{Name: "http-byte-by-byte", Reach: Open},
	{Name: "http-method-injection", Reach: Open},
	{Name: "http-on-443", Reach: Open},
	{Name: "ssh-on-80", Reach: Open},
	{Name: "smtp-on-80", Reach: Open},

	// DNS.
	{Name: "dns-labels", Reach: Open, Asked: true},
	{Name: "dns-labels-tcp", Reach: Open, Asked: true},
	{Name: "dns-below-exact-name", Reach: Open, Asked: true},
	{Name: "dns-types", Reach: Open, Asked: true},
	{Name: "dns-chaos", Reach: OpenMaybe},
	{Name: "dns-two-questions", Reach: Never},
	{Name: "dns-opcodes", Reach: Never},
	{Name: "dns-edns-option", Reach: OpenMaybe},
	{Name: "dns-extra-records", Reach: OpenMaybe},
	{Name: "dns-trailing", Reach: OpenMaybe},
	{Name: "dns-reverse", Reach: OpenMaybe},
	{Name: "dns-other-server-udp", Reach: Open, Refused: true, Asked: true},
	{Name: "dns-other-server-tcp", Reach: Open, Refused: true, Asked: true},
	{Name: "dns-at-allowed-address", Reach: Open, Refused: true, Asked: true},
	{Name: "dns-other-port", Reach: Never, Deaf: true},
	{Name: "dns-rebinding", Reach: Never},
	{Name: "dns-rebinding-later", Reach: Open},
	{Name: "mdns", Reach: Never},

	// Below TCP and UDP.
	{Name: "icmp-echo", Reach: Never},
	{Name: "raw-ip-protocols", Reach: OpenMaybe, Root: true},
	{Name: "frame-spoofed-udp", Reach: OpenMaybe, Root: true},
	{Name: "frame-spoofed-source-loopback", Reach: Never, Root: true},
	{Name: "frame-syn-data", Reach: OpenMaybe, Root: true},
	{Name: "frame-fragments", Reach: OpenMaybe, Root: true},
	{Name: "frame-overlapping-fragments", Reach: OpenMaybe, Root: true},
	{Name: "frame-ether-types", Reach: Never, Root: true},
	{Name: "frame-tcp-no-handshake", Reach: Never, Root: true},
	{Name: "frame-ipv6-extension-headers", Reach: OpenMaybe, Root: true},
	{Name: "source-route", Reach: OpenMaybe},
	{Name: "tcp-fast-open", Reach: Open, Refused: true},
	{Name: "tcp-fast-open-allowed-address", Reach: Open},
	{Name: "tcp-urgent", Reach: Open, Refused: true},
	{Name: "mptcp", Reach: OpenMaybe},
	{Name: "sctp-dccp-udplite", Reach: Never},
	{Name: "vsock", Reach: Never, Deaf: true},
	{Name: "tunnel-protocols", Reach: Open},

	// Not by the network at all.
	{Name: "abstract-socket", Reach: Never, Deaf: true},
	{Name: "path-socket", Reach: Never, Deaf: true},
	{Name: "known-sockets", Reach: Never},
	{Name: "inherited-descriptors", Reach: Never},
	{Name: "other-namespaces", Reach: Never, Deaf: true},
	{Name: "proxy-variables", Reach: Never},

	// Too much of it.
	{Name: "flood-then-denied", Reach: Open},
	{Name: "slow-hellos", Reach: OpenMaybe},
	{Name: "control-after-flood", Reach: Control},

	// Connections that stay open while the policy changes; see the hold command.
	{Name: "hold-tcp", Reach: Open},
	{Name: "hold-udp", Reach: Open},
	{Name: "hold-tls", Reach: Open},
	{Name: "hold-http", Reach: Open},
	{Name: "hold-half-hello", Reach: Open},
}

// Held reports whether an attempt belongs to the hold command.
func (a Attempt) Held() bool { return len(a.Name) > 5 && a.Name[:5] == "hold-" }
