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

// Dialer opens a byte stream to a TCP port of one sandbox. A driver's
// Instance.Dial is one. Nothing listening is an error that is ECONNREFUSED.
type Dialer func(ctx context.Context, port uint16) (net.Conn, error)

// ConnOptions says whose guest a [Conn] talks to. The zero value talks to an
// open guest as its default user.
type ConnOptions struct {
	// ID is the sandbox, for errors.
	ID carrel.ID
	// Token is the guest's access token; "" when it is open.
	Token string
	// DefaultUser runs what names no user; "" leaves it to the guest.
	DefaultUser string
	// JSON has messages written as JSON, as E2B's SDKs do, and not in binary.
	JSON bool
	// Transport, URL and Header are for a guest that is reached through a gateway:
	// they replace the connections made with the Dialer, say where the guest is
	// ("https://49983-<id>.<domain>") and what each request carries besides.
	Transport http.RoundTripper
	URL       string
	Header    http.Header
	// Explain is asked about a connection that broke, by whoever knows more about the sandbox
	// than the broken connection says. It returns an error of the operation that replaces the
	// broken connection's, or nil to keep that. It may ask a server and must end by itself.
	Explain func(err error) *carrel.Error
}

// Bounds on what a guest may make the host hold: a guest is not trusted.
const (
	maxMessage  = 64 << 20    // one Connect message
	maxJSON     = 1 << 20     // one JSON answer
	maxHeader   = 256 << 10   // the headers of one answer
	idleConns   = 16          // kept warm for each sandbox
	idleTimeout = time.Minute // a kept connection costs the host some 25 KB, a new one a millisecond
	// streamBuffer is what a kept connection holds for each direction, whether anything moves or not. What is longer goes past it:
	// whoever moves a stream brings a buffer of its own, and that is longer.
	streamBuffer = 4 << 10
)

// Conn is the host's side of one sandbox's guest: a [carrel.Computer] over any
// way to dial. It is safe for concurrent use. Connections are kept warm and
// shared by everything that goes to the guest, so a call costs one round trip.
type Conn struct {
	dial Dialer
	opts ConnOptions
	url  string
	pool *http.Transport // nil when the options gave a Transport
	http http.RoundTripper
	// The clients of Connect's methods are made when the first is called: they are 20 KB, and of most sandboxes nothing is
	// asked that the gateway does not hand through.
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

// clientOptions are those of every client of Connect's.
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

// As returns a Conn to the same guest, over the same connections, with another access
// token: for one that has been given another identity.
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
		DisableCompression:     true, // a file's bytes are handed on as they are
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize:        streamBuffer,
		ReadBufferSize:         streamBuffer,
	}
}

// Transport returns the pooled keep-alive connections to the guest's port,
// whatever host a request names. The gateway shares them. It adds no token:
// what comes from outside must bring its own.
func (c *Conn) Transport() http.RoundTripper { return c.http }

// Close drops the idle connections. Calls under way end by themselves; a Conn
// may be used after Close, which then dials anew.
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
		// Nobody asked for it, and such a body knows nothing of the context's end.
		_ = resp.Body.Close()
		return nil, errors.New("the guest switched protocols unasked")
	}
	return resp, err
}

// authorize names the user that a request acts as.
func (c *Conn) authorize(h http.Header, user string) {
	if user == "" {
		user = c.opts.DefaultUser
	}
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
}

// Health asks whether the guest answers.
func (c *Conn) Health(ctx context.Context) error {
	resp, err := c.roundTrip(ctx, "reach guest", http.MethodGet, "/health", nil, nil)
	if err != nil {
		return err
	}
	return drain(resp.Body)
}

// Init gives the guest its identity: token, environment, default user, host
// name and clock. The guest accepts it from the host's end of the link alone.
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

// GuestMetrics is what the guest measures of itself.
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

// roundTrip sends one plain HTTP request and turns an answer other than success
// into an error; a guest has nothing to redirect to. On success the caller reads and closes the body.
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

// drain reads what is left of a small body, so that its connection can be used
// again, and closes it.
func drain(body io.ReadCloser) error {
	_, err := io.CopyN(io.Discard, body, maxJSON)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, body.Close())
}
