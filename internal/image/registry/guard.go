package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// maxRedirects bounds how often one request is sent to another place.
const maxRedirects = 5

// guard carries requests. It judges where each one goes, and refuses addresses that the operator
// has not allowed.
type guard struct {
	allowed []allowedHost
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	proxy   func(*http.Request) (*url.URL, error)

	direct  *http.Transport // dials judged addresses only
	proxied *http.Transport // its proxy dials
}

// allowedHost is an entry of Config.Allow.
type allowedHost struct {
	host, port string // port "" is every port
	http       bool   // without TLS
}

// newGuard returns a guard. timeout bounds how long a server takes for a handshake. An answer may
// begin later, because a registry works on a large upload before it answers.
func newGuard(c Config, timeout time.Duration) (*guard, error) {
	g := &guard{resolve: c.Resolve, dial: c.Dial, proxy: c.Proxy}
	if g.resolve == nil {
		g.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if g.dial == nil {
		g.dial = (&net.Dialer{Timeout: timeout}).DialContext
	}
	if g.proxy == nil {
		g.proxy = http.ProxyFromEnvironment
	}
	for _, text := range c.Allow {
		h, err := parseAllowed(text)
		if err != nil {
			return nil, err
		}
		g.allowed = append(g.allowed, h)
	}
	for _, m := range c.Mirrors {
		u, err := url.Parse(m.URL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("the mirror %q is no URL", m.URL)
		}
		g.allowed = append(g.allowed, allowedHost{u.Hostname(), u.Port(), u.Scheme == "http"})
	}
	g.direct = &http.Transport{
		DialContext: g.dialJudged, TLSClientConfig: &tls.Config{RootCAs: c.RootCAs},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: timeout, ResponseHeaderTimeout: 4 * timeout,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true, // blobs are wanted as they are
	}
	g.proxied = g.direct.Clone()
	g.proxied.Proxy, g.proxied.DialContext = g.proxy, g.dial
	return g, nil
}

// parseAllowed reads HOST, HOST:PORT or a URL of only these.
func parseAllowed(text string) (allowedHost, error) {
	h := allowedHost{}
	rest, isHTTP := strings.CutPrefix(text, "http://")
	rest = strings.TrimSuffix(strings.TrimPrefix(rest, "https://"), "/")
	u, err := url.Parse("//" + rest)
	if err != nil || u.Hostname() == "" || u.Host != rest {
		return h, fmt.Errorf("%q is not a host, HOST:PORT or http://HOST:PORT", text)
	}
	h.host, h.port = strings.ToLower(u.Hostname()), u.Port()
	h.http = isHTTP || isLoopbackName(h.host)
	return h, nil
}

func isLoopbackName(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// allows reports whether the operator allowed a host, and whether without TLS.
func (g *guard) allows(host, port string) (ok, http bool) {
	for _, a := range g.allowed {
		if strings.EqualFold(a.host, host) && (a.port == "" || a.port == port) {
			ok, http = true, http || a.http
		}
	}
	return ok, http
}

// plainHTTP reports whether a registry may be asked without TLS. host may have a port.
func (g *guard) plainHTTP(host string) bool {
	u := &url.URL{Host: host}
	_, ok := g.allows(u.Hostname(), u.Port())
	return ok
}

// close closes idle connections.
func (g *guard) close() {
	g.direct.CloseIdleConnections()
	g.proxied.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	host, port := req.URL.Hostname(), req.URL.Port()
	if port == "" && req.URL.Scheme == "https" {
		port = "443"
	}
	ok, plain := g.allows(host, port)
	switch {
	case req.URL.Scheme != "https" && req.URL.Scheme != "http":
		return nil, &guardError{host: req.URL.Host,
			why: fmt.Sprintf("the scheme %q is not known", req.URL.Scheme)}
	case req.URL.Scheme == "http" && !plain:
		return nil, &guardError{host: req.URL.Host, why: "it speaks HTTP without TLS",
			allow: "http://" + req.URL.Host}
	}
	req = withoutStray(req)
	via, err := g.proxy(req)
	if err != nil {
		return nil, err
	}
	if via == nil {
		return g.direct.RoundTrip(req)
	}
	if !ok {
		// The proxy looks the name up, perhaps with another result. This check catches only the
		// addresses that this machine knows.
		if _, err := g.judge(req.Context(), host); err != nil && isGuard(err) {
			return nil, err
		}
	}
	return g.proxied.RoundTrip(req)
}

// withoutStray removes credentials that belong to a host from which this request was redirected.
func withoutStray(req *http.Request) *http.Request {
	auth := req.Header.Get("Authorization")
	stray := false
	for r := req; auth != "" && r.Response != nil && r.Response.Request != nil; {
		r = r.Response.Request
		stray = stray || r.URL.Host != req.URL.Host && r.Header.Get("Authorization") == auth
	}
	if !stray {
		return req
	}
	clean := req.Clone(req.Context())
	clean.Header.Del("Authorization")
	return clean
}

// dialJudged connects to a host. If the operator has not allowed it, all its addresses must be
// public.
func (g *guard) dialJudged(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ok, _ := g.allows(host, port); ok {
		return g.dial(ctx, network, address)
	}
	addrs, err := g.judge(ctx, host)
	if ge, ok := errors.AsType[*guardError](err); ok {
		ge.allow = strings.TrimSuffix(address, ":443")
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		c, err := g.dial(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// judge resolves a host. One bad address among several is enough for a refusal: the host's owner
// chose them.
func (g *guard) judge(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = g.resolve(ctx, host); err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	for i, a := range addrs {
		a = a.Unmap().WithZone("")
		if what := policy.NotPublic(a); what != "" {
			return nil, &guardError{host: host, why: fmt.Sprintf("its address %s is %s", a, what),
				allow: host}
		}
		addrs[i] = a
	}
	return addrs, nil
}

// guardError is a refusal of the guard.
type guardError struct {
	host, why string
	allow     string // an argument of --allow-registry that would permit it; "" for none
}

func (e *guardError) Error() string { return fmt.Sprintf("%s is refused: %s", e.host, e.why) }

func isGuard(err error) bool {
	_, ok := errors.AsType[*guardError](err)
	return ok
}

// public turns the refusal into an error with a Kind.
func (e *guardError) public(op, ref string) error {
	out := &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "image",
		Err: fmt.Errorf("%s: %w", ref, e)}
	if e.allow != "" {
		out.Hint = "the daemon's operator can allow it: carrel serve --allow-registry " + e.allow
	}
	return out
}
