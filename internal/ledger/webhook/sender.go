package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

const (
	attemptTime = 15 * time.Second // for one attempt, all of it
	headBytes   = 64 << 10         // of an answer
	bodyBytes   = 4 << 10          // of an answer, read so that the connection can be used again
	maxURL      = 2048
)

// allowedHost is a host that the operator allowed, whatever its address.
type allowedHost struct {
	host, port string // port "" is every port
	http       bool   // also without TLS
}

// ParseAllowed checks HOST, HOST:PORT or http://HOST:PORT, a host to which webhooks may go wherever
// it is.
func ParseAllowed(text string) error {
	_, err := parseAllowed(text)
	return err
}

func parseAllowed(text string) (allowedHost, error) {
	rest, plain := strings.CutPrefix(text, "http://")
	u, err := url.Parse("//" + rest)
	if err != nil || u.Hostname() == "" || u.Host != rest {
		return allowedHost{}, fmt.Errorf("%q is not HOST, HOST:PORT or http://HOST:PORT", text)
	}
	return allowedHost{strings.ToLower(u.Hostname()), u.Port(), plain}, nil
}

// sender makes the requests of all webhooks.
type sender struct {
	allowed []allowedHost
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	own     func() ([]net.Addr, error) // the machine's addresses
	client  *http.Client
	pool    *http.Transport
	time    time.Duration
	agent   string
}

// newSender returns a sender.
func newSender(o *Options) (*sender, error) {
	s := &sender{resolve: o.Resolve, dial: o.Dial, own: net.InterfaceAddrs,
		agent: "carrel/" + o.Version, time: o.Timeout}
	if s.time == 0 {
		s.time = attemptTime
	}
	if s.resolve == nil {
		s.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if s.dial == nil {
		s.dial = (&net.Dialer{Timeout: s.time}).DialContext
	}
	for _, text := range o.Allow {
		h, err := parseAllowed(text)
		if err != nil {
			return nil, err
		}
		s.allowed = append(s.allowed, h)
	}
	s.pool = &http.Transport{
		DialContext: s.dialJudged, TLSClientConfig: &tls.Config{RootCAs: o.RootCAs},
		TLSHandshakeTimeout: s.time, ResponseHeaderTimeout: s.time,
		IdleConnTimeout: 30 * time.Second, MaxIdleConns: 64, MaxIdleConnsPerHost: 2,
		MaxResponseHeaderBytes: headBytes, DisableCompression: true,
		Proxy: nil, // a proxy would look the host up anew
	}
	s.client = &http.Client{Transport: s.pool,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

func (s *sender) close() { s.pool.CloseIdleConnections() }

// allows reports whether the operator allowed a host, and whether without TLS.
func (s *sender) allows(host, port string) (ok, plain bool) {
	for _, a := range s.allowed {
		if strings.EqualFold(a.host, host) && (a.port == "" || a.port == port) {
			ok, plain = true, plain || a.http
		}
	}
	return ok, plain
}

// check says what is wrong with the address of a webhook, as far as it shows without a lookup.
func (s *sender) check(op, text string) error {
	bad := func(hint, form string, args ...any) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "url", Err: fmt.Errorf(form, args...), Hint: hint}
	}
	if text == "" {
		return bad("", "missing")
	}
	if len(text) > maxURL {
		return bad("", "it is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return bad("", "it is not a URL with a host")
	case u.User != nil:
		return bad("the header e2b-signature shows who sends", "it has a user name or password")
	case u.Fragment != "":
		return bad("", "it has a fragment")
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("", "the scheme %.20q is neither https nor http", u.Scheme)
	}
	ok, plain := s.allows(u.Hostname(), portOf(u))
	if u.Scheme == "http" && !plain {
		return bad("use https; or the daemon's operator can allow it: carrel serve --allow-webhook http://"+u.Host,
			"http without TLS is not allowed")
	}
	if ok {
		return nil
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if what := s.notPublic(a); what != "" {
			return s.refused(op, u.Host, fmt.Sprintf("the address %s is %s", a, what))
		}
	} else if h := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")); h == "localhost" ||
		strings.HasSuffix(h, ".localhost") {
		return s.refused(op, u.Host, h+" is this machine")
	}
	return nil
}

func (s *sender) refused(op, host, why string) error {
	return &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "url", Err: errors.New(why),
		Hint: "the daemon's operator can allow it: carrel serve --allow-webhook " + host}
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}

// refusal is an error of an attempt that never reached the receiver, because the sender refuses it.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// dialJudged connects to a host. All its addresses must be public, unless the operator allowed the
// host. One bad address among several is enough for a refusal: the host's owner chose them.
func (s *sender) dialJudged(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = s.resolve(ctx, host); err != nil {
		return nil, err
	}
	ok, _ := s.allows(host, port)
	for _, a := range addrs {
		if what := s.notPublic(a); what != "" && !ok {
			return nil, &refusal{fmt.Sprintf("%s has the address %s, which is %s", host, a, what)}
		}
	}
	errs := []error{errors.New("the host has no address")}
	for i, a := range addrs {
		c, err := s.dial(ctx, network, net.JoinHostPort(a.Unmap().WithZone("").String(), port))
		if err == nil {
			return c, nil
		}
		if i == 0 {
			errs = nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// notPublic says what an address is if it is not one of the internet, or is one of this machine's;
// "" for others.
func (s *sender) notPublic(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if what := policy.NotPublic(a); what != "" {
		return what
	}
	own, err := s.own()
	if err != nil {
		return "perhaps of this machine: its addresses are not known"
	}
	if slices.ContainsFunc(own, func(o net.Addr) bool {
		p, err := netip.ParsePrefix(o.String())
		return err == nil && p.Addr().Unmap() == a
	}) {
		return "of this machine"
	}
	return ""
}

// sign makes E2B's signature of a body.
func sign(secret string, body []byte) string {
	h := sha256.Sum256(append([]byte(secret), body...))
	return base64.RawStdEncoding.EncodeToString(h[:])
}

// send makes one attempt. It returns the status of the answer, or 0 without one. The error says why
// the attempt failed, in words that tell the caller nothing of what is behind the address.
func (s *sender) send(ctx context.Context, h *hook, delivery string, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.time)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL can't be used")
	}
	if _, plain := s.allows(req.URL.Hostname(), portOf(req.URL)); req.URL.Scheme != "https" && !plain {
		return 0, &refusal{"http without TLS is not allowed"} // the operator allowed it once
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.agent)
	req.Header.Set("e2b-webhook-id", h.ID)
	req.Header.Set("e2b-delivery-id", delivery)
	req.Header.Set("e2b-signature-version", "v1")
	req.Header.Set("e2b-signature", sign(h.Secret, body))
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, s.reason(ctx, err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, bodyBytes) // the status has arrived, the rest may fail
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return resp.StatusCode, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return resp.StatusCode, fmt.Errorf("status %d: redirects are not followed", resp.StatusCode)
	}
	return resp.StatusCode, fmt.Errorf("status %d", resp.StatusCode)
}

// reason turns the error of a request into plain words. The error itself may quote the receiver.
func (s *sender) reason(ctx context.Context, err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	var timeout interface{ Timeout() bool }
	_, lookup := errors.AsType[*net.DNSError](err)
	_, dialed := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer within %v", s.time)
	case lookup:
		return errors.New("the host's name can't be looked up")
	case certificate, name, authority:
		return errors.New("the host's certificate is not trusted")
	case dialed:
		return errors.New("the connection failed")
	}
	return errors.New("the answer is not HTTP, or too large, or it broke off")
}
