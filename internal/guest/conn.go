package guest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest/filesystem/filesystemconnect"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
)

// Dialer opens a byte stream to a TCP port of one sandbox. A driver's Instance.Dial is one. If
// nothing listens on the port, the error is ECONNREFUSED.
type Dialer func(ctx context.Context, port uint16) (net.Conn, error)

// ConnOptions describes the guest that a [Conn] talks to. The zero value means an open guest and
// its default user.
type ConnOptions struct {
	// ID is the sandbox's ID, for errors.
	ID carrel.ID
	// Token is the guest's access token; "" if the guest is open.
	Token string
	// DefaultUser runs requests that name no user; "" leaves the choice to the guest.
	DefaultUser string
	// JSON sends messages as JSON, as E2B's SDKs do, and not in binary.
	JSON bool
	// Transport, URL and Header are for a guest behind a gateway. Transport replaces the
	// connections made with the Dialer. URL is the guest's address ("https://49983-<id>.<domain>").
	// Header is added to each request.
	Transport http.RoundTripper
	URL       string
	Header    http.Header
	// Explain is called when a connection broke; it may know more about the sandbox than the
	// connection's error says. It returns an error that replaces the connection's error, or nil to
	// keep it. It may ask a server, and must end by itself.
	Explain func(err error) *carrel.Error
}

// Limits on the host memory that a guest can use: a guest is not trusted.
const (
	maxMessage  = 64 << 20    // one Connect message
	maxJSON     = 1 << 20     // one JSON answer
	maxHeader   = 256 << 10   // the headers of one answer
	idleConns   = 16          // kept warm for each sandbox
	idleTimeout = time.Minute // keeping one costs the host some 25 KB, a new one a millisecond
	// streamBuffer is the buffer of a kept connection for each direction, also while it is idle.
	// Larger reads and writes bypass it: code that copies a stream has its own, larger buffer.
	streamBuffer = 4 << 10
)

// Conn is the host's side of one sandbox's guest: a [carrel.Computer] over any way to dial. It is
// safe for concurrent use. It keeps connections open and shares them among all calls to the guest,
// so a call costs one round trip.
type Conn struct {
	dial Dialer
	opts ConnOptions
	url  string
	pool *http.Transport // nil if the options have a Transport
	http http.RoundTripper
	// The Connect clients are made on the first call. They take 20 KB, and for most sandboxes the
	// gateway only passes requests through and never calls them.
	process func() processconnect.ProcessClient
	files   func() filesystemconnect.FilesystemClient
}

var _ carrel.Computer = (*Conn)(nil)

// NewConn returns the Conn of one guest. Nothing is dialled before it is used.
func NewConn(dial Dialer, opts ConnOptions) *Conn {
	c := &Conn{dial: dial, opts: opts, url: strings.TrimSuffix(opts.URL, "/"), http: opts.Transport}
	if c.url == "" {
		c.url = "http://guest"
	}
	if c.http == nil {
		c.pool = newTransport(dial)
		c.http = c.pool
	}
	c.process = sync.OnceValue(func() processconnect.ProcessClient {
		return processconnect.NewProcessClient(doer{c}, c.url, clientOptions(opts)...)
	})
	c.files = sync.OnceValue(func() filesystemconnect.FilesystemClient {
		return filesystemconnect.NewFilesystemClient(doer{c}, c.url, clientOptions(opts)...)
	})
	return c
}

// clientOptions returns the options of all Connect clients.
func clientOptions(opts ConnOptions) []connect.ClientOption {
	client := []connect.ClientOption{
		connect.WithAcceptCompression("gzip", nil, nil), // the link is local: compressing only costs time
		connect.WithReadMaxBytes(maxMessage),
	}
	if opts.JSON {
		client = append(client, connect.WithProtoJSON())
	}
	return client
}

// As returns a Conn to the same guest, over the same connections, with another access token. It is
// for a guest that was given another identity.
func (c *Conn) As(token string) *Conn {
	opts := c.opts
	opts.Token = token
	return c.with(opts)
}

// AsJSON returns a Conn to the same guest, over the same connections, that speaks JSON.
func (c *Conn) AsJSON() *Conn {
	opts := c.opts
	opts.JSON = true
	return c.with(opts)
}

// with returns a Conn with other options over the same connections.
func (c *Conn) with(opts ConnOptions) *Conn {
	opts.Transport = c.http
	as := NewConn(c.dial, opts)
	as.pool, as.opts.Transport = c.pool, c.opts.Transport
	return as
}

// newTransport pools keep-alive connections to the guest's port.
func newTransport(dial Dialer) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, carrel.GuestPort)
		},
		DisableCompression:     true, // the bytes of a file are passed on unchanged
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize:        streamBuffer,
		ReadBufferSize:         streamBuffer,
	}
}

// Transport returns the pooled keep-alive connections to the guest's port, for any host name in a
// request. The gateway shares them. It adds no token: requests from outside must bring their own.
func (c *Conn) Transport() http.RoundTripper { return c.http }

// Close drops the idle connections. Running calls end by themselves. A Conn may be used after
// Close; it then dials anew.
func (c *Conn) Close() error {
	if c.pool != nil {
		c.pool.CloseIdleConnections()
	}
	return nil
}

// doer sends the host's own requests: the pool, plus the access token.
type doer struct{ c *Conn }

// Do implements connect.HTTPClient.
func (d doer) Do(req *http.Request) (*http.Response, error) {
	for k, v := range d.c.opts.Header {
		req.Header[k] = v
	}
	if d.c.opts.Token != "" {
		req.Header.Set("X-Access-Token", d.c.opts.Token)
	}
	resp, err := d.c.http.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		// No request asked for an upgrade, and the end of the context does not end such a body.
		_ = resp.Body.Close()
		return nil, errors.New("the guest switched protocols unasked")
	}
	return resp, err
}

// authorize sets the user that a request acts as.
func (c *Conn) authorize(h http.Header, user string) {
	if user == "" {
		user = c.opts.DefaultUser
	}
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
}

// Health reports whether the guest answers.
func (c *Conn) Health(ctx context.Context) error {
	resp, err := c.roundTrip(ctx, "reach guest", http.MethodGet, "/health", nil, nil)
	if err != nil {
		return err
	}
	return drain(resp.Body)
}

// Init gives the guest its identity: token, environment, default user, host name and clock. The
// guest accepts it only from the host's end of the link.
func (c *Conn) Init(ctx context.Context, req InitRequest) error {
	const op = "initialise guest"
	body, err := json.Marshal(req)
	if err != nil {
		return c.fail(op, err)
	}
	h := http.Header{"Content-Type": {"application/json"}}
	resp, err := c.roundTrip(ctx, op, http.MethodPost, "/init", h, bytes.NewReader(body))
	if err != nil {
		return err
	}
	recordPhases(ctx, resp.Header.Get(PhasesHeader))
	return drain(resp.Body)
}

// GuestMetrics returns the guest's own measurements.
func (c *Conn) GuestMetrics(ctx context.Context) (carrel.Metric, error) {
	const op = "read guest metrics"
	resp, err := c.roundTrip(ctx, op, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return carrel.Metric{}, err
	}
	defer drain(resp.Body)
	var m struct {
		Timestamp  int64   `json:"ts"`
		CPUCount   float64 `json:"cpu_count"`
		CPUUsedPct float64 `json:"cpu_used_pct"`
		MemTotal   int64   `json:"mem_total"`
		MemUsed    int64   `json:"mem_used"`
		MemCache   int64   `json:"mem_cache"`
		DiskUsed   int64   `json:"disk_used"`
		DiskTotal  int64   `json:"disk_total"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(&m); err != nil {
		return carrel.Metric{}, c.fail(op, err)
	}
	return carrel.Metric{
		Time: time.Unix(m.Timestamp, 0).UTC(), CPUCount: m.CPUCount, CPUUsedPct: m.CPUUsedPct,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}, nil
}

// roundTrip sends one plain HTTP request. Every answer except success becomes an error, redirects
// too, because a guest has none. On success the caller reads and closes the body.
func (c *Conn) roundTrip(ctx context.Context, op, method, path string, h http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, c.fail(op, err)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	resp, err := doer{c}.Do(req)
	if err != nil {
		return nil, c.fail(op, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer drain(resp.Body)
		return nil, c.httpError(op, resp)
	}
	return resp, nil
}

// drain reads the rest of a small body and closes it, so that its connection can be used again.
func drain(body io.ReadCloser) error {
	_, err := io.CopyN(io.Discard, body, maxJSON)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, body.Close())
}
