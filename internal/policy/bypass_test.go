package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// never lists addresses that no policy opens. private lists those that only a rule with the address
// opens.
var (
	never = []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.0.1", "100.100.100.200", "168.63.129.16",
		"192.0.0.192", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "10.73.0.0", "10.73.0.1", "10.73.0.2", "10.73.0.3", "10.73.0.4",
		"::", "::1", "::127.0.0.1", "::a9fe:a9fe", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:a00:1::",
		"2001::1", "2001:0:1234::1", "100::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1", "ff0e::1",
		"fd73:6361:7272::1", "fd73:6361:7272::2", "fd73:6361:7272:0:ffff::1", "fd00:ec2::254", "fd20:ce::254",
		"2001:db8::5efe:127.0.0.1", "2001:db8::200:5efe:10.0.0.1",
	}
	private = []string{
		"10.0.0.1", "10.72.255.255", "10.73.0.5", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255",
		"100.64.0.1", "100.127.255.255", "198.18.0.1", "198.19.255.255", "fc00::1", "fd00::1", "fd73:6361:7273::1", "fdff::1",
		"::ffff:10.0.0.1", "::ffff:192.168.1.1",
	}
	public = []string{
		"203.0.113.9", "198.51.100.1", "192.0.2.1", "1.0.0.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "2001:db8::1", "2001:1::1", "2600::1", "64:ff9b::203.0.113.9", "2002:cb00:7109::1", "2001:db8::5efe:203.0.113.9",
	}
	anything = []carrel.Network{
		{Policy: &carrel.Policy{Default: "allow", ECH: "allow"}},
		{Policy: &carrel.Policy{Rules: []carrel.Rule{allow("*")}}},
		{Policy: &carrel.Policy{Rules: []carrel.Rule{allow("0.0.0.0/0", "::/0")}}},
		{Policy: &carrel.Policy{Rules: []carrel.Rule{allow("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1", "fc00::/6", "100.0.0.0/8")}}},
		{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"*"}, Protocol: "tcp"}, {Allow: []string{"*"}, Protocol: "udp"}}}},
		{Internet: true},
		{Internet: true, AllowOut: []string{"0.0.0.0/0", "::/0"}},
		{AllowOut: []string{"*", "127.0.0.1", "10.0.0.0/8", "169.254.169.254", "fc00::/7", "::1"}, DenyOut: []string{"0.0.0.0/0"}},
	}
	everyPrivate = carrel.Network{Policy: &carrel.Policy{Default: "allow", Rules: []carrel.Rule{
		allow("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"),
	}}}
)

// reach returns the verdicts on a flow to an address: as TCP, as UDP, and as the address of an
// allowed name.
func reach(p *policy.Policy, a string, port uint16) (tcpOut, udpOut, named bool) {
	flow := policy.Flow{Addr: netip.MustParseAddr(a), Port: port, App: policy.AppOther}
	v := p.Judge(flow)
	flow.UDP = true
	w := p.Judge(flow)
	x := p.JudgeTarget(policy.Flow{Addr: netip.MustParseAddr(site), Port: port, Names: []string{"example.com"}, App: policy.AppTLS, Name: "example.com"}, netip.MustParseAddr(a))
	return v.Allow || v.Inspect, w.Allow || w.Inspect, x.Allow
}

func TestReserved(t *testing.T) {
	for _, n := range anything {
		p := compiled(t, n)
		for _, a := range append(never, private...) {
			if to, uo, named := reach(p, a, 443); to || uo || named {
				t.Errorf("%s is reached under %+v: tcp %v, udp %v, by name %v", a, n, to, uo, named)
			}
			if !policy.Reserved(netip.MustParseAddr(a)) || p.Reaches(netip.MustParseAddr(a)) {
				t.Errorf("%s is not reserved under %+v", a, n)
			}
		}
		for _, a := range public {
			if to, uo, named := reach(p, a, 443); !to || !uo || !named {
				t.Errorf("%s is not reached under %+v: tcp %v, udp %v, by name %v", a, n, to, uo, named)
			}
			if policy.Reserved(netip.MustParseAddr(a)) || !p.Reaches(netip.MustParseAddr(a)) {
				t.Errorf("%s is reserved", a)
			}
		}
	}
	p := compiled(t, everyPrivate)
	for _, a := range never {
		if to, uo, named := reach(p, a, 443); to || uo || named || p.Reaches(netip.MustParseAddr(a)) {
			t.Errorf("%s is reached where private addresses are named", a)
		}
	}
	for _, a := range private {
		if to, uo, named := reach(p, a, 443); !to || !uo || !named || !p.Reaches(netip.MustParseAddr(a)) {
			t.Errorf("%s is not reached though it is named: tcp %v, udp %v, by name %v", a, to, uo, named)
		}
	}
	if !policy.Reserved(netip.Addr{}) {
		t.Error("no address is open")
	}
}

// TestPrivateNamed shows that a named private address is open for the named ports and protocols
// only.
func TestPrivateNamed(t *testing.T) {
	p := ours(t, carrel.Policy{Default: "allow", Rules: []carrel.Rule{
		{Name: "db", Allow: []string{"10.1.2.3"}, Ports: []string{"5432"}, Protocol: "tcp"},
		{Allow: []string{"192.168.7.0/24"}, Protocol: "udp"},
		{Deny: []string{"192.168.7.9"}, Protocol: "tcp"},
	}})
	judge(t, p, []judged{
		{"named", tcp("10.1.2.3", 5432), "allow", "rule 1 (db)", ""},
		{"another port", tcp("10.1.2.3", 22), "deny", "built-in: private address", "no rule names it for port 22"},
		{"UDP", udp("10.1.2.3", 5432), "deny", "built-in", ""},
		{"another address", tcp("10.1.2.4", 5432), "deny", "built-in", ""},
		{"named for UDP", udp("192.168.7.1", 53), "allow", "rule 2", ""},
		{"named for UDP, TCP", tcp("192.168.7.1", 53), "deny", "built-in", ""},
		{"in disguise", tcp("64:ff9b::10.1.2.3", 5432), "deny", "built-in", ""},
		{"mapped", tcp("::ffff:10.1.2.3", 5432), "allow", "rule 1", ""},
		{"public", tcp(site, 22), "allow", "default: allow", ""},
	})
	if v := p.Judge(tcp("10.9.9.9", 443)); v.Hint != "ask for: allow 10.9.9.9, ports 443" {
		t.Error(v.Hint)
	}
}

// TestRebinding shows that a name can't lead to a private address, unless a rule names the address
// too.
func TestRebinding(t *testing.T) {
	p := ours(t, rules(allow("*.example.com"), with(allow("10.0.0.5"), func(r *carrel.Rule) { r.Ports = []string{"443"} })))
	f := tls(tcp(site, 443, "a.example.com"), "a.example.com")
	for to, want := range map[string]bool{site: true, site2: true, other6: true, "10.0.0.5": true, "10.0.0.6": false, "127.0.0.1": false, "169.254.169.254": false, "::1": false} {
		v := p.JudgeTarget(f, netip.MustParseAddr(to))
		if v.Allow != want || !want && !strings.Contains(v.Reason, "a.example.com has the address "+to) {
			t.Errorf("%s: %+v", to, v)
		}
	}
	f.Port = 80
	if v := p.JudgeTarget(f, netip.MustParseAddr("10.0.0.5")); v.Allow {
		t.Errorf("another port: %+v", v)
	}
	// An address that is denied before the name is allowed stays denied.
	p = ours(t, rules(deny("203.0.113.0/24"), allow("*.example.com"), deny("198.51.100.0/24")))
	f = tls(tcp("192.0.2.1", 443, "a.example.com"), "a.example.com")
	for to, want := range map[string]bool{site: false, "192.0.2.9": true, "198.51.100.7": true, "64:ff9b::203.0.113.9": false} {
		if v := p.JudgeTarget(f, netip.MustParseAddr(to)); v.Allow != want {
			t.Errorf("%s: %+v", to, v)
		}
	}
	if v := p.JudgeTarget(f, netip.Addr{}); v.Allow {
		t.Errorf("no address: %+v", v)
	}
}

func TestDenyNames(t *testing.T) {
	p := ours(t, carrel.Policy{Default: "allow", Rules: []carrel.Rule{deny("bad.example.com", "*.bad.example.com")}})
	plain := tcp(site, 443)
	ech := tls(plain, "cover.example")
	ech.ECH = true
	judge(t, p, []judged{
		{"got for it", tcp(site, 443, "bad.example.com"), "deny", "rule 1", "denied by rule 1"},
		{"got for it, any protocol", other(tcp(site, 22, "bad.example.com")), "deny", "rule 1", ""},
		{"got for it, UDP", udp(site, 9, "x.bad.example.com"), "deny", "rule 1", ""},
		{"a known address", plain, "inspect", "default", ""},
		{"says it", tls(plain, "bad.example.com"), "deny", "rule 1", ""},
		{"says it in capitals with a dot", tls(plain, "BAD.example.COM."), "deny", "rule 1", ""},
		{"says another", tls(plain, "good.example.com"), "allow", "default", ""},
		{"got for it, says another", tls(tcp(site, 443, "bad.example.com"), "good.example.com"), "deny", "rule 1", ""},
		{"hides what it says", ech, "deny", "rule 1", "hides another name"},
		{"HTTP says another first", http(plain, "good.example.com"), "requests", "default", ""},
		{"HTTP says it", request(plain, "GET", "bad.example.com", "/"), "deny", "rule 1", ""},
		{"neither", other(plain), "allow", "default", ""},
		{"QUIC", udp(site, 443), "deny", "rule 1", "QUIC"},
		{"UDP elsewhere", udp(site, 5000), "allow", "default", ""},
	})
	v := p.JudgeName("x.BAD.example.com.")
	if v.Allow || v.Rule != "rule 1" {
		t.Errorf("%+v", v)
	}
	if v := p.JudgeName("good.example.com"); !v.Allow {
		t.Errorf("%+v", v)
	}
}

// TestFastPath shows that a policy without names, methods or injections needs no inspection.
func TestFastPath(t *testing.T) {
	for name, p := range map[string]carrel.Policy{
		"default":          {Default: "allow"},
		"addresses":        {Default: "allow", Rules: []carrel.Rule{deny("198.51.100.0/24"), {Deny: []string{"*"}, Ports: []string{"25"}}}},
		"names as well":    {Default: "allow", Rules: []carrel.Rule{allow("example.com")}},
		"another's key":    {Default: "allow", Inject: []carrel.Injection{{Host: "api.example.com", Bearer: "key"}}},
		"TCP by name":      rules(with(allow("example.com"), func(r *carrel.Rule) { r.Protocol = "tcp" })),
		"other ports deny": {Default: "allow", Rules: []carrel.Rule{{Deny: []string{"bad.example"}, Ports: []string{"80"}}}},
	} {
		if v := ours(t, p).Judge(tcp(site, 443, "example.com")); !v.Allow || v.Inspect || v.Terminate {
			t.Errorf("%s: %+v", name, v)
		}
	}
	for name, p := range map[string]carrel.Policy{
		"key":            {Default: "allow", Inject: []carrel.Injection{{Host: "example.com", Bearer: "key"}}},
		"methods":        {Default: "allow", Rules: []carrel.Rule{{Deny: []string{"*"}, Methods: []string{"DELETE"}}}},
		"inspect":        rules(with(allow("*"), func(r *carrel.Rule) { r.Inspect = true })),
		"limits":         {Default: "allow", Rules: []carrel.Rule{with(allow("example.com"), func(r *carrel.Rule) { r.Limits.Connections = 1 })}},
		"TLS alone":      {Default: "allow", Rules: []carrel.Rule{{Deny: []string{"*"}, Protocol: "http"}}},
		"name before IP": rules(allow("example.com"), deny("203.0.113.0/24")),
	} {
		if v := ours(t, p).Judge(tcp(site, 443, "example.com")); !v.Inspect || v.Allow {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestRequests(t *testing.T) {
	p := ours(t, rules(
		carrel.Rule{Name: "api", Allow: []string{"api.example.com"}, Methods: []string{"GET", "HEAD"}, Paths: []string{"/v1/**", "/health"}},
		carrel.Rule{Deny: []string{"www.example.com"}, Paths: []string{"/admin/**"}},
		carrel.Rule{Allow: []string{"www.example.com"}},
	))
	api, www := tcp(site, 443, "api.example.com"), tcp(site, 443, "www.example.com")
	judge(t, p, []judged{
		{"start", api, "inspect", "rule 1 (api)", ""},
		{"hello", tls(api, "api.example.com"), "terminate", "rule 1", ""},
		{"hello of another", tls(api, "other.example.com"), "deny", "default", ""},
		{"cleartext", http(api, "api.example.com"), "requests", "rule 1", ""},
		{"GET", opened(api, "GET", "api.example.com", "/v1/a/b"), "allow", "rule 1", ""},
		{"GET without TLS", request(api, "GET", "api.example.com", "/v1/a"), "allow", "rule 1", ""},
		{"POST", opened(api, "POST", "api.example.com", "/v1/a"), "deny", "default", "rule 1 (api) is for GET, HEAD"},
		{"method in lower case", opened(api, "get", "api.example.com", "/v1/a"), "deny", "default", ""},
		{"other path", opened(api, "GET", "api.example.com", "/v2"), "deny", "default", "other paths"},
		{"dots", opened(api, "GET", "api.example.com", "/v1/../v2"), "deny", "rule 1", "more than one way"},
		{"encoded dots", opened(api, "GET", "api.example.com", "/v1/%2e%2E/v2"), "deny", "rule 1", "more than one way"},
		{"something else than HTTP", other(api), "deny", "default", ""},
		{"CONNECT", opened(api, "CONNECT", "api.example.com", "/v1/a"), "deny", "built-in", ""},
		{"hello where requests are denied", tls(www, "www.example.com"), "terminate", "rule 3", ""},
		{"denied path", opened(www, "GET", "www.example.com", "/admin/x"), "deny", "rule 2", "denied by rule 2"},
		{"denied path itself", opened(www, "GET", "www.example.com", "/admin"), "deny", "rule 2", ""},
		{"denied path in disguise", opened(www, "GET", "www.example.com", "//admin/x"), "deny", "rule 2", "more than one way"},
		{"denied path encoded", opened(www, "GET", "www.example.com", "/%61dmin/x"), "deny", "rule 2", ""},
		{"other path of the other", opened(www, "GET", "www.example.com", "/x"), "allow", "rule 3", ""},
	})
	if v := p.Judge(opened(api, "GET", "api.example.com", "/v1/a")); v.ByName != "api.example.com" {
		t.Errorf("%+v", v)
	}
	if !p.Opens() || ours(t, rules(allow("example.com"))).Opens() {
		t.Error("opens")
	}
	// TLS without a server name is judged by its address, and so are its requests.
	p = ours(t, rules(with(allow("203.0.113.0/24"), func(r *carrel.Rule) { r.Methods = []string{"GET"} })))
	bare := opened(tcp(site, 443), "GET", "203.0.113.9", "/")
	bare.ServerName = ""
	astray := bare
	astray.Name = "www.example.com"
	bracketed := opened(tcp(other6, 443), "GET", "["+other6+"]", "/")
	bracketed.ServerName = ""
	judge(t, p, []judged{
		{"hello without a name", tls(tcp(site, 443), ""), "terminate", "rule 1", ""},
		{"request to the address", bare, "allow", "rule 1", ""},
		{"request to a name", astray, "deny", "built-in: host", ""},
		{"IPv6 is not in the rule", bracketed, "deny", "default", ""},
	})
}

func TestProtocols(t *testing.T) {
	rule := func(protocol string, dest ...string) *policy.Policy {
		return ours(t, rules(carrel.Rule{Allow: dest, Protocol: protocol}))
	}
	any4, named := tcp(site, 443), tcp(site, 443, "example.com")
	for _, c := range []struct {
		p *policy.Policy
		f policy.Flow
		w string
	}{
		{rule("tcp", "*"), any4, "allow"},
		{rule("tcp", "*"), udp(site, 443), "deny"},
		{rule("udp", "*"), udp(site, 443), "allow"},
		{rule("udp", "*"), any4, "deny"},
		{rule("https", "*"), any4, "inspect"},
		{rule("https", "*"), tls(any4, ""), "allow"},
		{rule("https", "*"), other(any4), "deny"},
		{rule("https", "*"), http(any4, "a"), "deny"},
		{rule("https", "*"), udp(site, 443), "deny"},
		{rule("http", "*"), http(any4, "a"), "allow"},
		{rule("http", "*"), tls(any4, "a"), "deny"},
		{rule("https", "example.com"), tls(named, "example.com"), "allow"},
		{rule("https", "example.com"), http(named, "example.com"), "deny"},
		{rule("http", "example.com"), http(named, "example.com"), "requests"},
		{rule("http", "example.com"), tls(named, "example.com"), "deny"},
		{rule("tcp", "example.com"), named, "allow"},
		{rule("tcp", "example.com"), any4, "deny"},
		{rule("tcp", "example.com"), tls(tcp(site, 443, "other.example"), "example.com"), "deny"},
		{rule("udp", "example.com"), udp(site, 123, "example.com"), "allow"},
		{rule("udp", "example.com"), udp(site, 123), "deny"},
		{rule("udp", "example.com"), named, "deny"},
	} {
		if got := outcome(c.p.Judge(c.f)); got != c.w {
			t.Errorf("%v: %+v is %s, want %s", c.p.Words(), c.f, got, c.w)
		}
	}
	if v := rule("udp", "example.com").Judge(udp(site, 123, "example.com")); v.ByName != "example.com" {
		t.Errorf("%+v", v)
	}
}

func TestECH(t *testing.T) {
	ech := func(f policy.Flow, name string) policy.Flow {
		f = tls(f, name)
		f.ECH = true
		return f
	}
	f := tcp(site, 443, "example.com")
	lenient := rules(allow("example.com"))
	lenient.ECH = "allow"
	for name, c := range map[string]struct {
		p    *policy.Policy
		want string
	}{
		"by name":             {ours(t, rules(allow("example.com"))), "deny"},
		"by name, allowed":    {ours(t, lenient), "allow"},
		"by address":          {ours(t, rules(allow("203.0.113.0/24"))), "allow"},
		"after another name":  {ours(t, rules(deny("other.example"), allow("*"))), "deny"},
		"name on other ports": {ours(t, rules(carrel.Rule{Deny: []string{"other.example"}, Ports: []string{"80"}}, allow("*"))), "allow"},
		"E2B's names":         {compiled(t, carrel.Network{AllowOut: []string{"example.com"}, DenyOut: []string{"0.0.0.0/0"}}), "deny"},
		"E2B's internet":      {compiled(t, carrel.Network{Internet: true}), "allow"},
	} {
		if v := c.p.Judge(ech(f, "example.com")); outcome(v) != c.want {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestNameable shows that an address without a known name may still be allowed later.
func TestNameable(t *testing.T) {
	p := ours(t, rules(carrel.Rule{Deny: []string{"198.51.100.0/24"}}, carrel.Rule{Allow: []string{"example.com"}, Ports: []string{"443"}},
		carrel.Rule{Allow: []string{"db.example.com"}, Ports: []string{"5432"}, Protocol: "tcp"}))
	for f, want := range map[string]bool{"203.0.113.9:443": true, "203.0.113.9:80": false, "203.0.113.9:5432": false, "198.51.100.1:443": false, "10.0.0.1:443": false, "127.0.0.1:443": false} {
		ap := netip.MustParseAddrPort(f)
		flow := policy.Flow{Addr: ap.Addr(), Port: ap.Port()}
		if p.Judge(flow).Allow || p.Nameable(flow) != want {
			t.Errorf("%s: %v", f, p.Nameable(flow))
		}
		flow.UDP = true
		if p.Nameable(flow) {
			t.Errorf("%s over UDP", f)
		}
	}
	if compiled(t, carrel.Network{}).Nameable(tcp(site, 443)) {
		t.Error("nothing is named")
	}
}

// TestNameablePorts shows the ports where a name is expected: the usual ports of HTTP and TLS, the
// network's HTTPS ports, and the ports in rules about names.
func TestNameablePorts(t *testing.T) {
	for name, c := range map[string]struct {
		network carrel.Network
		ports   map[uint16]bool
	}{
		"any port":   {carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{allow("example.com")}}}, map[uint16]bool{22: false, 80: true, 443: true, 5432: false, 8443: false}},
		"listed":     {carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"example.com"}, Ports: []string{"8000-8999"}}}}}, map[uint16]bool{22: false, 80: false, 443: false, 8443: true, 9000: false}},
		"by address": {carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"198.51.100.7"}, Ports: []string{"8443"}}, allow("example.com")}}}, map[uint16]bool{443: true, 8443: false}},
		"E2B":        {carrel.Network{AllowOut: []string{"example.com"}, DenyOut: []string{"0.0.0.0/0"}}, map[uint16]bool{22: false, 80: true, 443: true, 8443: false}},
		"httpsPorts": {carrel.Network{AllowOut: []string{"example.com"}, DenyOut: []string{"0.0.0.0/0"}, HTTPSPorts: []uint16{8443}}, map[uint16]bool{22: false, 443: true, 8443: true}},
	} {
		p := compiled(t, c.network)
		for port, want := range c.ports {
			f := tcp(site, port)
			if v := p.Judge(f); v.Allow || v.Inspect || p.Nameable(f) != want {
				t.Errorf("%s, port %d: %+v, nameable: %v", name, port, v, p.Nameable(f))
			}
		}
	}
}

// TestZero shows that the zero value lets nothing out.
func TestZero(t *testing.T) {
	var p policy.Policy
	for _, f := range []policy.Flow{{}, tcp(site, 443), udp(site, 53), tls(tcp(site, 443, "a.example"), "a.example"), request(tcp(site, 80), "GET", "a", "/")} {
		if v := p.Judge(f); v.Allow || v.Inspect || v.Rule == "" {
			t.Errorf("%+v: %+v", f, v)
		}
	}
	if v := p.JudgeName("example.com"); v.Allow || v.Rule == "" {
		t.Errorf("%+v", v)
	}
	if v := p.JudgeTarget(policy.Flow{}, netip.MustParseAddr(site)); v.Allow {
		t.Errorf("%+v", v)
	}
	if words := p.Words(); len(words) != 1 {
		t.Error(words)
	}
}
