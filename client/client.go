package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// Client is a connection to a daemon. It is safe for concurrent use.
type Client struct {
	base *url.URL
	key  string
	// project is the project that an administrator's key acts for; "" is the key's own project.
	project string
	caller  func(context.Context) (string, error) // for whom a request is; nil is nobody
	tls     *tls.Config
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	pool    *http.Transport
	http    *http.Client

	mu    sync.Mutex
	conns map[carrel.ID]*guest.Conn // kept so that connections stay warm between calls

	buildCalls
	catalogCalls
	labelCalls
	machineCalls
}

var _ carrel.Service = (*Client)(nil)

// Option changes how a Client connects.
type Option func(*Client)

// WithTLSConfig sets how an https daemon's certificate is checked.
func WithTLSConfig(cfg *tls.Config) Option { return func(c *Client) { c.tls = cfg.Clone() } }

// WithDialer replaces how connections to the daemon are made.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *Client) { c.dial = dial }
}

// WithProject makes an administrator's key act for one project: new things belong to that project,
// and only its things are seen. New refuses a name that no project can have.
func WithProject(name string) Option { return func(c *Client) { c.project = name } }

// WithCaller has each request of a fleet's front say for whom it is. The daemon takes it with its own
// key alone. fn returns "" for none; after an error of it, nothing is sent.
func WithCaller(fn func(context.Context) (string, error)) Option {
	return func(c *Client) { c.caller = fn }
}

// New returns a Service that talks to the daemon at a URL such as
// http://127.0.0.1:7070. Nothing is sent before the first call; the result's
// dynamic type is [*Client]. Error: Invalid.
func New(rawURL, key string, opts ...Option) (carrel.Service, error) {
	base, err := url.Parse(rawURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, &carrel.Error{Op: "connect", Kind: carrel.Invalid, Field: "url", Err: fmt.Errorf("%q is not an http or https URL", rawURL),
			Hint: "it looks like http://127.0.0.1:7070"}
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, &carrel.Error{Op: "connect", Kind: carrel.Invalid, Field: "key", Err: errors.New("the API key is empty or has characters no key has"),
			Hint: "the key is in the daemon's data directory, file api-key"}
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	c := &Client{base: base, key: key, conns: map[carrel.ID]*guest.Conn{}}
	c.buildCalls.c = c
	c.catalogCalls.c = c
	c.labelCalls.c = c
	c.machineCalls.c = c
	c.dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	for _, o := range opts {
		o(c)
	}
	if c.project != "" {
		if err := carrel.CheckProject(c.project); err != nil {
			return nil, err
		}
	}
	c.pool = &http.Transport{
		DialContext:         func(ctx context.Context, network, addr string) (net.Conn, error) { return c.dial(ctx, network, addr) },
		TLSClientConfig:     c.tls,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	c.http = &http.Client{Transport: c.pool, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// URL returns the daemon's address, as New was given it.
func (c *Client) URL() string { return c.base.String() }

// Key returns the API key, as New was given it.
func (c *Client) Key() string { return c.key }

// Close implements carrel.Service. Sandboxes live on.
func (c *Client) Close() error {
	c.mu.Lock()
	conns := c.conns
	c.conns = map[carrel.ID]*guest.Conn{}
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // only drops idle connections
	}
	c.pool.CloseIdleConnections()
	return nil
}

// identify says who asks. Error: that of the function of [WithCaller].
func (c *Client) identify(ctx context.Context, h http.Header) error {
	h.Set("X-API-KEY", c.key)
	if c.project != "" {
		h.Set("Carrel-Tenant", c.project)
	}
	if c.caller == nil {
		return nil
	}
	text, err := c.caller(ctx)
	if err == nil && text != "" {
		h.Set("Carrel-Caller", text)
	}
	return err
}

const maxAnswer = 64 << 20

// call sends a request and decodes the answer into out, which may be nil. body
// may be nil, an io.Reader, or anything to send as JSON.
func (c *Client) call(ctx context.Context, op, method, path string, query url.Values, body, out any) error {
	resp, err := c.send(ctx, op, method, path, query, body)
	if err != nil {
		return err
	}
	return readAnswer(ctx, c, op, resp, out)
}

// readAnswer decodes an answer into out, which may be nil, and closes it.
func readAnswer(ctx context.Context, c *Client, op string, resp *http.Response, out any) error {
	defer resp.Body.Close()
	if out == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return c.fail(ctx, op, fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// send sends a request; an answer of 400 or above is an error. The caller closes
// the body.
func (c *Client) send(ctx context.Context, op, method, path string, query url.Values, body any) (*http.Response, error) {
	switch b := body.(type) {
	case nil:
		return c.sendTyped(ctx, op, method, ownAPI+path, query, nil, "")
	case io.Reader:
		return c.sendTyped(ctx, op, method, ownAPI+path, query, b, "application/octet-stream")
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Err: err}
	}
	return c.sendTyped(ctx, op, method, ownAPI+path, query, strings.NewReader(string(raw)),
		"application/json")
}

// ownAPI is where the paths of Carrel's own API begin.
const ownAPI = "/carrel/v1"

// sendTyped is send for a whole path, and for a body whose type is known. reader may be nil.
func (c *Client) sendTyped(ctx context.Context, op, method, path string, query url.Values,
	reader io.Reader, contentType string) (*http.Response, error) {
	u := *c.base
	u.RawPath = u.EscapedPath() + path
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Err: err}
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), reader)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Err: err}
	}
	if err := c.identify(ctx, req.Header); err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if at, ok := ctx.Deadline(); ok && method == http.MethodPost { // so that a deadline it can't meet fails at once
		req.Header.Set("Connect-Timeout-Ms", strconv.FormatInt(max(1, time.Until(at).Milliseconds()), 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.fail(ctx, op, err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, answerError(op, resp)
	}
	return resp, nil
}
