// Package outside sends the HTTP requests of simulated programs over a dialer. The dialer is that
// of the sandbox's own link, so the sandbox's policy judges the requests. The package opens no
// connection by itself, and uses no proxy, cookie or credential of the host.
package outside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Options say how requests go out.
type Options struct {
	// Dial connects to "host:port", where host is a name or an address. Required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Roots returns the certificates that the sandbox trusts. It is called once, before the first
	// https request. With nil or an empty pool, no server is trusted.
	Roots func() *x509.CertPool
	// UserAgent is used for requests that have none; "" sends none.
	UserAgent string
}

// HTTP sends a sandbox's requests. It is safe for concurrent use.
type HTTP struct {
	options Options
	strict  *http.Transport
	lax     *http.Transport
	roots   sync.Once
}

var _ tool.HTTP = (*HTTP)(nil)

// Bounds of one request.
const (
	headerTime = 5 * time.Minute // from the end of the request to the header of the answer
	idleTime   = 30 * time.Second
	maxHeader  = 1 << 20
)

// New returns an HTTP. Close ends its idle connections.
func New(o Options) *HTTP {
	transport := func(insecure bool) *http.Transport {
		return &http.Transport{DialContext: o.Dial, DisableCompression: true, ResponseHeaderTimeout: headerTime, IdleConnTimeout: idleTime,
			MaxIdleConns: 16, MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure}} // only for curl -k; the wire verifies the TLS connections that it opens
	}
	return &HTTP{options: o, strict: transport(false), lax: transport(true)}
}

// Close ends idle connections. Connections in use end with their requests.
func (h *HTTP) Close() {
	h.strict.CloseIdleConnections()
	h.lax.CloseIdleConnections()
}

// Do implements tool.HTTP.
func (h *HTTP) Do(ctx context.Context, r *tool.Request) (*tool.Response, error) {
	body := r.Body
	if body != nil && r.Length == 0 {
		body = http.NoBody
	}
	if body != nil {
		body = io.NopCloser(body) // who gave it closes it
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, err
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, fmt.Errorf("unsupported URL %q", r.URL)
	}
	req.Header = http.Header{}
	for name, values := range r.Header {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", h.options.UserAgent)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	if r.Length > 0 || r.Body == nil {
		req.ContentLength = r.Length
	} else if r.Length < 0 {
		req.ContentLength = -1
	}
	via := h.strict
	if r.Insecure {
		via = h.lax
	}
	h.roots.Do(func() {
		pool := x509.NewCertPool()
		if h.options.Roots != nil {
			if p := h.options.Roots(); p != nil {
				pool = p
			}
		}
		h.strict.TLSClientConfig.RootCAs = pool
	})
	resp, err := via.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	_, reason, _ := strings.Cut(resp.Status, " ")
	return &tool.Response{Proto: resp.Proto, Status: resp.StatusCode, Reason: reason, Header: resp.Header, Body: resp.Body}, nil
}
