package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Explanation is a policy's answer about one action of a program.
type Explanation struct {
	Query   string `json:"query"`
	Allowed bool   `json:"allowed"`
	// Asked says that a person is asked. Allowed is false then.
	Asked bool `json:"asked,omitempty"`
	// Rule is the rule that decided. Reason and Hint explain a refusal.
	Rule   string `json:"rule"`
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Inject describes the credentials added to the request.
	Inject string `json:"inject,omitempty"`
	Steps  []Step `json:"steps"`
	// Notes are about facts that can't be known beforehand.
	Notes []string `json:"notes,omitempty"`
}

// Step is one question of the wire.
type Step struct {
	Step string `json:"step"` // name, connection, hello, HTTP, request or address
	What string `json:"what"`
	// Verdict is allow, deny, ask (a person), look (at the first bytes), open (TLS) or requests (each is judged).
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`
}

// query is one action of a program.
type query struct {
	method, scheme string // scheme is dns, tcp, udp, tls, http or https
	host           string // canonical
	addr           netip.Addr
	port           uint16
	path           string
}

// Explain takes a query through all steps of the policy: "GET https://api.example.com/v1", "tcp
// 203.0.113.9:22", "udp …", "tls …", "dns example.com". at is an address of the host, if it must be
// judged too. Error: Invalid.
func Explain(p *Policy, text string, at netip.Addr) (Explanation, error) {
	q, err := parseQuery(text)
	if err != nil {
		return Explanation{}, err
	}
	x := explainer{p: p, q: q, out: Explanation{Query: text}}
	if !q.addr.IsValid() && at.IsValid() {
		x.target = plainAddr(at)
	}
	x.run()
	return x.out, nil
}

type explainer struct {
	p      *Policy
	q      query
	target netip.Addr // the address of the host's name, if given
	out    Explanation
}

// step adds a verdict and reports whether another step follows.
func (x *explainer) step(name, what string, v Verdict, more bool) bool {
	word := "deny"
	switch {
	case v.Inspect:
		word = "look"
	case v.Ask != "":
		word = "ask"
	case v.Allow && v.Terminate:
		word = "open"
	case v.Allow && v.Requests:
		word = "requests"
	case v.Allow:
		word = "allow"
	}
	x.out.Steps = append(x.out.Steps, Step{name, what, word, v.Rule})
	x.out.Allowed, x.out.Rule, x.out.Reason, x.out.Hint = v.Allow, v.Rule, v.Reason, v.Hint
	x.out.Asked = word == "ask"
	return more && word != "deny" && word != "allow" && word != "ask"
}

func (x *explainer) run() {
	q := x.q
	f := Flow{UDP: q.scheme == "udp", Addr: q.addr, Port: q.port}
	if q.host != "" {
		v := x.p.JudgeName(q.host)
		if x.step("name", q.host, v, false); !v.Allow || q.scheme == "dns" {
			return
		}
		f.Names, f.Addr = []string{q.host}, x.target
	}
	k := makeKnown(&f)
	v := x.p.Judge(f)
	if x.step("connection", describe(&k), v, true) {
		f, v = x.look(f)
	} else if v.Allow && q.path != "" {
		x.out.Notes = append(x.out.Notes, "nobody looks inside: the method and the path don't matter")
	}
	if (v.Allow || v.Ask != "") && v.ByName != "" && x.target.IsValid() {
		if t := x.p.JudgeTarget(f, x.target); !v.Permits(t) {
			x.step("address", x.target.String(), t, false)
		}
	}
	if (x.out.Allowed || x.out.Asked) && q.host != "" && !x.target.IsValid() && (len(x.p.index.blocks) > 0 || x.p.fallback.allow) {
		x.out.Notes = append(x.out.Notes, "the name was not looked up: where it leads is judged too")
	}
	if x.out.Allowed && v.Inject != nil {
		x.out.Inject = injectionWords(v.Inject)
	}
}

// look judges the content of the first bytes, and the request.
func (x *explainer) look(f Flow) (Flow, Verdict) {
	q := x.q
	say := func(app App, name string) Verdict {
		f.App, f.Name = app, name
		return x.p.Judge(f)
	}
	host := q.host
	if host == "" {
		host = q.addr.String()
	}
	if q.scheme == "tcp" {
		v := say(AppOther, "")
		x.step("bytes", "neither TLS nor HTTP", v, false)
		return f, v
	}
	v := Verdict{}
	if q.scheme == "http" {
		v = say(AppHTTP, host)
		if !x.step("HTTP", "Host: "+host, v, true) {
			return f, v
		}
	} else {
		v = say(AppTLS, q.host) // an address is no server name
		if !x.step("hello", "TLS for "+quoted(q.host), v, q.scheme == "https") {
			if q.path != "" && v.Allow {
				x.out.Notes = append(x.out.Notes, "TLS is not opened: the method and the path don't matter")
			}
			return f, v
		}
		f.Opened, f.ServerName = true, q.host
	}
	f.Method, f.Path = q.method, q.path
	v = say(AppHTTP, host)
	x.step("request", q.method+" "+q.path, v, false)
	return f, v
}

var errQuery = errors.New(`say what is tried: "GET https://api.example.com/v1", "tcp 203.0.113.9:22", "udp HOST:PORT", "tls HOST:PORT" or "dns NAME"`)

// parseQuery reads one query.
func parseQuery(text string) (query, error) {
	fail := func(err error) (query, error) {
		return query{}, &carrel.Error{Op: "explain policy", Kind: carrel.Invalid, Field: "query", Err: err}
	}
	words := strings.Fields(text)
	switch len(words) {
	case 1:
		words = []string{"GET", words[0]}
	case 2:
	default:
		return fail(errQuery)
	}
	q := query{scheme: words[0]}
	switch q.scheme {
	case "dns":
		name, err := parseName(words[1])
		if err != nil {
			return fail(err)
		}
		q.host = name
		return q, nil
	case "tcp", "udp", "tls":
		host, port, err := net.SplitHostPort(words[1])
		if err != nil {
			return fail(fmt.Errorf("%s is not HOST:PORT", clip(words[1])))
		}
		if q.port, err = parsePort(port); err != nil {
			return fail(fmt.Errorf("%s %w", clip(port), err))
		}
		if err := q.setHost(host); err != nil {
			return fail(err)
		}
		return q, nil
	}
	q.method = words[0]
	if err := q.parseURL(words[1]); err != nil {
		return fail(err)
	}
	return q, nil
}

func (q *query) setHost(host string) (err error) {
	if a, err := netip.ParseAddr(host); err == nil {
		q.addr = plainAddr(a)
		return nil
	}
	q.host, err = parseName(host)
	return err
}

func (q *query) parseURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return errQuery
	}
	switch u.Scheme {
	case "http", "ws":
		q.scheme, q.port = "http", 80
	case "https", "wss":
		q.scheme, q.port = "https", 443
	default:
		return fmt.Errorf("%s: the URL begins with http or https", clip(s))
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%s has no port from 1 to 65535", clip(s))
		}
		q.port = uint16(n)
	}
	if checkToken(q.method) != nil {
		return fmt.Errorf("%s is no method", clip(q.method))
	}
	if q.path = u.EscapedPath(); q.path == "" {
		q.path = "/"
	}
	return q.setHost(u.Hostname())
}
