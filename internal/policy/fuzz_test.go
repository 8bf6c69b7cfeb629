package policy_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

func FuzzParse(f *testing.F) {
	for _, s := range valid {
		f.Add([]byte(s))
	}
	for _, c := range invalid {
		if len(c.file) < 1000 {
			f.Add([]byte(c.file))
		}
	}
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("rules: &r [{allow: *r}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policy.Parse("p", data)
		if err != nil {
			if carrel.KindOf(err) != carrel.Invalid || !strings.Contains(err.Error(), "p:") && !strings.Contains(err.Error(), "p: ") {
				t.Fatalf("%v", err)
			}
			return
		}
		c, err := policy.Compile(carrel.Network{Policy: &p})
		if err != nil {
			t.Fatal(err)
		}
		c.Words()
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Parse("p", raw); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
	})
}

// FuzzPath compares paths that are allowed below a prefix with the way servers read them.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/v1/a", "/v1/../x", "/v1/%2e%2e/x", "/v1//x", "/v1/;/x", "/v1/%252e", "/v1", "/v1/a?b=/../c", "/v1/%c3%bc"} {
		f.Add(s)
	}
	p := byPath(f, "/v1/**")
	flow := tcp(site, 443, "example.com")
	f.Fuzz(func(t *testing.T, raw string) {
		v := p.Judge(opened(flow, "GET", "example.com", raw))
		if !v.Allow {
			return
		}
		raw, _, _ = strings.Cut(raw, "?")
		once, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		twice := once
		if s, err := url.PathUnescape(once); err == nil {
			twice = s
		}
		for _, s := range []string{raw, once, twice, path.Clean(raw), path.Clean(once), path.Clean(twice), strings.ReplaceAll(once, `\`, "/")} {
			if s != "/v1" && !strings.HasPrefix(s, "/v1/") && !strings.HasPrefix(strings.ToLower(s), "/%") && !strings.Contains(raw, "%") {
				t.Errorf("%q may be read as %q", raw, s)
			}
		}
		if s := path.Clean(twice); s != "/v1" && !strings.HasPrefix(s, "/v1/") {
			t.Errorf("%q may be read as %q", raw, s)
		}
	})
}

// source makes policies and flows from bytes. It uses few words, so that rules and flows often
// match.
type source struct{ data []byte }

func (s *source) n(max int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % max
}

func pick[T any](s *source, list ...T) T { return list[s.n(len(list))] }

func some[T comparable](s *source, most int, list ...T) []T {
	var out []T
	for range s.n(most + 1) {
		if x := pick(s, list...); !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

var (
	hostWords = []string{"a.example", "x.a.example", "y.x.a.example", "b.example", "example", "c.example"}
	destWords = []string{"a.example", "*.a.example", "x.a.example", "*.x.a.example", "*.example", "b.example", "*", "203.0.113.9", "203.0.113.0/24", "203.0.113.8/30",
		"198.51.100.0/25", "2001:db8::/32", "2001:db8::9", "10.0.0.0/8", "10.1.2.3", "0.0.0.0/0"}
	addrWords = []string{"203.0.113.9", "203.0.113.10", "198.51.100.1", "198.51.100.200", "2001:db8::9", "2001:db9::1", "10.1.2.3", "10.9.9.9", "64:ff9b::203.0.113.9",
		"::ffff:203.0.113.9", "127.0.0.1", "169.254.169.254", "10.73.0.1", "fd00::1", "2002:cb00:7109::"}
	portWords = []string{"80", "443", "400-500", "1-65535"}
	pathWords = []string{"/", "/**", "/a/*", "/a/**"}
)

func (s *source) rule() carrel.Rule {
	r := carrel.Rule{Ports: some(s, 1, portWords...), Protocol: pick(s, "", "", "", "tcp", "udp", "http", "https")}
	dest := append(some(s, 2, destWords...), pick(s, destWords...))
	slices.Sort(dest)
	dest = slices.Compact(dest)
	if s.n(2) == 0 {
		r.Allow = dest
	} else {
		r.Deny = dest
	}
	if r.Protocol != "tcp" && r.Protocol != "udp" && s.n(3) == 0 {
		r.Methods, r.Paths = some(s, 2, "GET", "POST", "PUT"), some(s, 1, pathWords...)
		r.Inspect = len(r.Allow) > 0 && s.n(2) == 0
	}
	return r
}

func (s *source) policy() carrel.Policy {
	p := carrel.Policy{Default: pick(s, "deny", "allow"), ECH: pick(s, "", "allow")}
	for range s.n(6) {
		p.Rules = append(p.Rules, s.rule())
	}
	for range s.n(2) {
		p.Inject = append(p.Inject, carrel.Injection{Host: pick(s, "a.example", "*.a.example"), Bearer: "key", Cleartext: s.n(2) == 0})
	}
	return p
}

func (s *source) flow() policy.Flow {
	f := policy.Flow{UDP: s.n(4) == 0, Addr: netip.MustParseAddr(pick(s, addrWords...)), Port: pick[uint16](s, 80, 443, 22, 500), Names: some(s, 2, hostWords...)}
	if f.UDP {
		return f
	}
	host := pick(s, append([]string{"", "A.Example.", "a.example\x00", "203.0.113.9"}, append(hostWords, f.Names...)...)...)
	switch s.n(4) {
	case 1:
		f = tls(f, host)
		f.ECH = s.n(3) == 0
	case 2:
		f = request(f, pick(s, "GET", "POST", "PUT", "CONNECT"), host, pick(s, "/", "/a/b", "/a/b/c", "/a/../b"))
		if f.Opened = s.n(2) == 0; f.Opened {
			f.ServerName = pick(s, host, host, "a.example", "")
		}
	case 3:
		f = other(f)
	}
	return f
}

// FuzzJudge checks properties that all verdicts have, and compares verdicts with a plain reading of
// the rules, one by one.
func FuzzJudge(f *testing.F) {
	for i := range 64 {
		seed := make([]byte, 80)
		for j := range seed {
			seed[j] = byte((i + 1) * (j*j*7 + j*13 + 5) >> 2)
		}
		f.Add(seed)
	}
	f.Fuzz(judgeSource)
}

// TestJudgeAnything makes the same checks with random bytes. The rules use few words, so that they
// match without a search.
func TestJudgeAnything(t *testing.T) {
	random := rand.NewChaCha8([32]byte{4})
	data := make([]byte, 120)
	for range 5000 {
		_, _ = random.Read(data)
		judgeSource(t, data)
		if t.Failed() {
			return
		}
	}
}

func judgeSource(t *testing.T, data []byte) {
	s := &source{data}
	src := s.policy()
	p, err := policy.Compile(carrel.Network{Policy: &src})
	if err != nil {
		return
	}
	for range 6 {
		flow := s.flow()
		v := p.Judge(flow)
		checkVerdict(t, p, src, flow, v)
		checkLater(t, p, flow, v)
		known := flow.UDP && flow.Port != 443 || flow.App != policy.AppUnknown
		if known && !v.Terminate && v.Allow != plainly(src, flow) {
			t.Errorf("%+v\nrules %+v\nflow %+v", v, p.Words(), flow)
		}
		p.JudgeTarget(flow, netip.MustParseAddr(pick(s, addrWords...)))
		p.JudgeName(flow.Name)
	}
}

// checkVerdict checks properties that every verdict has.
func checkVerdict(t *testing.T, p *policy.Policy, src carrel.Policy, f policy.Flow, v policy.Verdict) {
	t.Helper()
	switch {
	case v.Rule == "":
		t.Errorf("no rule: %+v", v)
	case v.Inspect && (f.App != policy.AppUnknown || f.UDP || v.Allow), v.Terminate && (f.App != policy.AppTLS || !v.Allow), v.Requests && f.App != policy.AppHTTP:
		t.Errorf("out of place: %+v for %+v", v, f)
	case !v.Allow && !v.Inspect && v.Reason == "":
		t.Errorf("no reason: %+v for %+v", v, f)
	case v.Inject != nil && (v.ByName == "" || !slices.Contains(f.Names, v.ByName) || f.Method == "" || !f.Opened && !v.Inject.Cleartext):
		t.Errorf("credentials: %+v for %+v", v, f)
	case (v.Allow || v.Inspect) && policy.Reserved(f.Addr) && !named(src, f.Addr):
		t.Errorf("%s is reached: %+v", f.Addr, v)
	case (v.Allow || v.Inspect) && !p.Reaches(f.Addr):
		t.Errorf("%s is allowed, but out of reach: %+v", f.Addr, v)
	}
}

// named reports whether a rule names a private address.
func named(src carrel.Policy, a netip.Addr) bool {
	if a.IsLoopback() || a.IsLinkLocalUnicast() || a == netip.MustParseAddr("10.73.0.1") {
		return false
	}
	return slices.ContainsFunc(src.Rules, func(r carrel.Rule) bool {
		return slices.ContainsFunc(r.Allow, func(d string) bool {
			return strings.HasPrefix(d, "10.") && holds(d, a)
		})
	})
}

// checkLater compares two verdicts on the same connection. A final verdict at the start must stay
// the same, whatever the connection says later.
func checkLater(t *testing.T, p *policy.Policy, f policy.Flow, later policy.Verdict) {
	t.Helper()
	if f.UDP || f.App == policy.AppUnknown || f.Method == "CONNECT" || later.Rule == "built-in: host" || f.ECH {
		return
	}
	start := f
	start.App, start.Name, start.Method, start.Path, start.Opened, start.ServerName = policy.AppUnknown, "", "", "", false, ""
	v := p.Judge(start)
	switch {
	case v.Inspect:
	case v.Allow != later.Allow:
		t.Errorf("at the start %+v, then %+v\nrules %v\nflow %+v", v, later, p.Words(), f)
	case v.Allow && (later.Terminate || later.Inject != nil):
		t.Errorf("at the start %+v, and nobody looks: %+v\nrules %v\nflow %+v", v, later, p.Words(), f)
	}
	if f.App != policy.AppHTTP || !f.Opened {
		return
	}
	hello := tls(start, f.ServerName)
	if v := p.Judge(hello); !v.Terminate && v.Allow != later.Allow {
		t.Errorf("by the hello %+v, then %+v\nrules %v\nflow %+v", v, later, p.Words(), f)
	}
}

// plainly judges a completely known flow by reading the rules one by one.
func plainly(src carrel.Policy, f policy.Flow) bool {
	name := strings.ToLower(strings.TrimSuffix(f.Name, "."))
	_, isIP := netip.ParseAddr(name)
	said := name != "" && isIP != nil && !strings.Contains(name, "\x00")
	got := said && slices.Contains(f.Names, name)
	addr := f.Addr.Unmap()
	if policy.Reserved(addr) && !privateAt(src, f) {
		return false
	}
	if f.Method == "CONNECT" {
		return false
	}
	if f.Opened {
		host := strings.ToLower(strings.TrimSuffix(f.ServerName, "."))
		if host != "" && host != name || host == "" && name != addr.String() {
			return false
		}
	}
	for _, r := range src.Rules {
		allow := len(r.Allow) > 0
		dests := append(slices.Clone(r.Allow), r.Deny...)
		if !portIn(r.Ports, f.Port) {
			continue
		}
		about := len(r.Methods)+len(r.Paths) > 0
		isHTTP, isTLS := f.App == policy.AppHTTP, f.App == policy.AppTLS || f.App == policy.AppHTTP && f.Opened
		byProtocol := map[string]bool{"": !about || isHTTP || isTLS, "tcp": !f.UDP, "udp": f.UDP, "http": isHTTP && !f.Opened, "https": isTLS}[r.Protocol]
		match := false
		for _, d := range dests {
			isName := strings.Trim(d, "0123456789abcdef.:/") != "" && d != "*"
			switch {
			case d == "*":
				match = true
			case !isName:
				match = match || holds(d, addr) || !allow && slices.Contains([]string{"64:ff9b::cb00:7109", "2002:cb00:7109::"}, addr.String()) && holds(d, netip.MustParseAddr("203.0.113.9"))
			case !allow:
				match = match || said && below(d, name) || slices.ContainsFunc(f.Names, func(n string) bool { return below(d, n) })
			case r.Protocol == "tcp" || r.Protocol == "udp":
				match = match || slices.ContainsFunc(f.Names, func(n string) bool { return below(d, n) })
			default:
				match = match || got && below(d, name) && (isHTTP || isTLS)
			}
		}
		hasName := slices.ContainsFunc(dests, func(d string) bool { return strings.Contains(d, "example") })
		if f.ECH && src.ECH != "allow" && hasName && byProtocol && r.Protocol != "tcp" {
			return false
		}
		if !byProtocol || !match {
			continue
		}
		if about {
			if f.Method == "" {
				continue // needs a request; the caller leaves these flows out
			}
			if len(r.Methods) > 0 && !slices.Contains(r.Methods, f.Method) {
				continue
			}
			if len(r.Paths) > 0 && strings.Contains(f.Path, "..") {
				return false
			}
			if len(r.Paths) > 0 && !slices.ContainsFunc(r.Paths, func(p string) bool {
				return p == f.Path || p == "/**" || p == "/a/**" && strings.HasPrefix(f.Path, "/a/") || p == "/a/*" && f.Path == "/a/b"
			}) {
				continue
			}
		}
		return allow
	}
	return src.Default == "allow"
}

// privateAt reports whether a rule names the flow's private address for its port.
func privateAt(src carrel.Policy, f policy.Flow) bool {
	return named(src, f.Addr.Unmap()) && slices.ContainsFunc(src.Rules, func(r carrel.Rule) bool {
		about := len(r.Methods)+len(r.Paths) > 0
		fits := !f.UDP && r.Protocol != "udp" || f.UDP && (r.Protocol == "udp" || r.Protocol == "" && !about)
		return fits && portIn(r.Ports, f.Port) && slices.ContainsFunc(r.Allow, func(d string) bool { return strings.HasPrefix(d, "10.") && holds(d, f.Addr.Unmap()) })
	})
}

func holds(d string, a netip.Addr) bool {
	if one, err := netip.ParseAddr(d); err == nil {
		return one == a
	}
	p, err := netip.ParsePrefix(d)
	return err == nil && p.Contains(a)
}

func below(d, name string) bool {
	if suffix, ok := strings.CutPrefix(d, "*"); ok && suffix != "" {
		return strings.HasSuffix(name, suffix)
	}
	return d == name
}

func portIn(list []string, port uint16) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool {
		from, to, isRange := strings.Cut(s, "-")
		if !isRange {
			to = from
		}
		a, _ := strconv.Atoi(from)
		b, _ := strconv.Atoi(to)
		return a <= int(port) && int(port) <= b
	})
}
