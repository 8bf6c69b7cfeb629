// Package plan is shared by the escape tests and the program that runs inside a sandbox. It
// describes the small world around the sandbox, the ways out that the program tries, and what each
// may reach.
//
// Every attempt has its own marker, a text that occurs nowhere else. The addresses are from the
// ranges for documentation; outside they stand for canaries on loopback that record every byte. An
// attempt has got out if its marker is found at a canary.
package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Env is the variable that holds a [Plan] in JSON.
const Env = "ESCAPE_PLAN"

// Site is a server outside: a name and its addresses.
type Site struct{ Name, V4, V6 string }

// The world outside.
var (
	// Allowed is the site on the allow-list, with ports 80 and 443.
	Allowed = Site{"allowed.example.com", "192.0.2.10", "2001:db8:a::10"}
	// Quiet is allowed as well, but the sandbox never asks for its address.
	Quiet = Site{"quiet.example.com", "192.0.2.11", "2001:db8:a::11"}
	// Shared is a denied name on the servers of Allowed.
	Shared = Site{"shared.example.net", "192.0.2.10", "2001:db8:a::10"}
	// Denied is not on the list.
	Denied = Site{"denied.example.net", "198.51.100.20", "2001:db8:b::20"}
	// Resolver is a public resolver that is not on the list.
	Resolver = Site{"resolver.example.org", "198.51.100.53", "2001:db8:b::53"}
	// Echo is allowed by its address: TCP port 7000 and UDP port 7001.
	Echo = Site{"", "203.0.113.50", "2001:db8:c::50"}
	// Wild is the wildcard on the list: every name below it leads to Allowed.
	Wild = "wild.example.com"
	// Flip is a name on the list. Its first answer is Allowed's address, every later one is
	// 127.0.0.1.
	Flip = "flip.example.com"
	// Tunnel is a denied zone. Its name server would read data in the labels.
	Tunnel = "tunnel.example.net"
)

// Rebound are names on the allow-list whose addresses no sandbox may reach.
var Rebound = map[string]string{
	"rebind-loopback.example.com": "127.0.0.1",
	"rebind-loopnet.example.com":  "127.8.9.10",
	"rebind-zero.example.com":     "0.0.0.0",
	"rebind-private.example.com":  "10.1.2.3",
	"rebind-private2.example.com": "192.168.7.7",
	"rebind-shared.example.com":   "100.100.100.200",
	"rebind-metadata.example.com": "169.254.169.254",
	"rebind-gateway.example.com":  "10.73.0.1",
	"rebind-v6loop.example.com":   "::1",
	"rebind-v6local.example.com":  "fd00::7",
	"rebind-v6link.example.com":   "fe80::7",
	"rebind-mapped.example.com":   "::ffff:127.0.0.1",
	"rebind-6to4.example.com":     "2002:7f00:1::1",
	"rebind-nat64.example.com":    "64:ff9b::7f00:1",
}

// Unreachable are addresses that no policy opens by name or by "*".
var Unreachable = []string{
	"127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.5.5", "192.168.7.7", "100.100.100.200", "169.254.169.254",
	"169.254.170.2", "168.63.129.16", "192.0.0.192", "198.18.0.9", "240.0.0.9",
	"::1", "fd00::7", "fd00:ec2::254", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "64:ff9b::7f00:1",
	"64:ff9b::a9fe:a9fe", "64:ff9b:1::a01:203", "2001:0:7f00:1::1", "::ffff:0:7f00:1", "::7f00:1",
}

// Disguised are IPv6 addresses that contain the address of Denied.
var Disguised = []string{"2002:c633:6414::1", "64:ff9b::c633:6414", "2001:0:c633:6414::1", "::ffff:0:c633:6414", "::c633:6414", "::ffff:198.51.100.20"}

// Plan holds the values that differ in each run.
type Plan struct {
	// Run is the random part of this run's markers: hexadecimal digits.
	Run string
	// Only names the attempts to make; none means all.
	Only []string
	// Host are addresses of the host, with ports, where a canary listens.
	Host []string
	// Doors are addresses of the daemon's own API.
	Doors []string
	// Neighbour is a port that another sandbox serves.
	Neighbour int
	// Abstract and Path are sockets of the host.
	Abstract, Path string
	// VSock is a port that the host serves on AF_VSOCK; 0 for none.
	VSock uint32
}

// Outcome is the program's view of one attempt.
type Outcome struct {
	Name string
	// Saw is one of the words below, for the worst event.
	Saw    string
	Detail string `json:",omitempty"`
	Took   time.Duration
}

// What an attempt can see.
const (
	Refused  = "refused"  // immediate TCP reset, or port unreachable
	Reset    = "reset"    // accepted, and then reset
	Closed   = "closed"   // accepted, then ended without an answer
	Answered = "answered" // somebody answered
	Silent   = "silent"   // sent, and no answer in time
	NoName   = "no name"  // NXDOMAIN
	Failed   = "failed"   // something else, see Detail
	Unable   = "unable"   // this kernel can't even try it
)

// Marker returns the marker of an attempt in this run.
func (p Plan) Marker(name string) string {
	for i, a := range Attempts {
		if a.Name == name {
			return fmt.Sprintf("mk%sn%03dz", p.Run, i)
		}
	}
	panic("plan: no attempt " + name)
}

var marker = regexp.MustCompile(`(?i)mk([0-9a-f]{8})n([0-9]{3})z`)

// Find returns the names of the attempts of this run whose markers are in b.
func (p Plan) Find(b []byte) []string {
	var found []string
	for _, m := range marker.FindAllSubmatch(b, -1) {
		var n int
		if strings.EqualFold(string(m[1]), p.Run) {
			if _, err := fmt.Sscanf(string(m[2]), "%d", &n); err == nil && n < len(Attempts) {
				found = append(found, Attempts[n].Name)
			}
		}
	}
	return found
}

// String returns the plan in JSON, for [Env].
func (p Plan) String() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Parse reads what String wrote.
func Parse(s string) (Plan, error) {
	var p Plan
	err := json.Unmarshal([]byte(s), &p)
	return p, err
}
