package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

// Dial opens a byte stream to a port inside. It tries the sandbox's own address first. If nothing
// listens there, it asks the guest to connect to its loopback. If nothing listens there either, the
// error is of kind Unavailable and also ECONNREFUSED.
func (c *Conn) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	const op = "dial port"
	if port == 0 {
		return nil, c.invalid(op, "port", "0 is not a port")
	}
	if c.dial == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: c.opts.ID, Hint: "this connection can't open streams to ports"}
	}
	conn, err := c.dial(ctx, port)
	if err == nil {
		return conn, nil
	}
	if port == carrel.GuestPort || !errors.Is(err, syscall.ECONNREFUSED) {
		return nil, c.fail(op, err)
	}
	conn, err = c.tunnel(ctx, port)
	if err != nil {
		return nil, c.fail(op, err)
	}
	return conn, nil
}

// tunnel connects to a loopback port through the guest.
func (c *Conn) tunnel(ctx context.Context, port uint16) (net.Conn, error) {
	conn, resp, err := c.upgrade(ctx, TunnelPath+strconv.Itoa(int(port)))
	if err != nil || conn != nil {
		return conn, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusBadGateway {
		return nil, fmt.Errorf("nothing listens on port %d: %w", port, syscall.ECONNREFUSED)
	}
	return nil, c.httpError("dial port", resp)
}

// maxUnstreamed bounds the body of an answer other than a stream.
const maxUnstreamed = 64 << 10

// upgrade asks the guest to make a stream of a connection. Without a stream it returns the answer,
// whose body has been read.
func (c *Conn) upgrade(ctx context.Context, path string) (_ net.Conn, resp *http.Response, err error) {
	raw, err := c.dial(ctx, carrel.GuestPort)
	if err != nil {
		return nil, nil, err
	}
	// The handshake must end with ctx: the end of ctx makes reads and writes fail at once.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = raw.Close()
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
		}
	}()
	req, err := http.NewRequest(http.MethodGet, "http://guest"+path, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", TunnelProtocol)
	if c.opts.Token != "" {
		req.Header.Set("X-Access-Token", c.opts.Token)
	}
	if err := req.Write(raw); err != nil {
		return nil, nil, err
	}
	br := bufio.NewReader(raw)
	resp, err = http.ReadResponse(br, req)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return NewStream(raw, br), resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxUnstreamed))
	_ = raw.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil, resp, err
}

// NewStream returns the stream of a connection after an upgrade. Bytes that arrived together with
// the answer, and are in r, are read first.
func NewStream(conn net.Conn, r *bufio.Reader) net.Conn { return &stream{Conn: conn, r: r} }

// stream is a connection after its upgrade from HTTP.
type stream struct {
	net.Conn
	r *bufio.Reader // nil once empty
}

func (t *stream) Read(p []byte) (int, error) {
	if t.r != nil {
		if t.r.Buffered() > 0 {
			return t.r.Read(p)
		}
		t.r = nil
	}
	return t.Conn.Read(p)
}

// WriteTo lets io.Copy use the underlying connection's fast path.
func (t *stream) WriteTo(w io.Writer) (int64, error) {
	var n int64
	if t.r != nil && t.r.Buffered() > 0 {
		head, _ := t.r.Peek(t.r.Buffered()) // never fails for buffered bytes
		m, err := w.Write(head)
		if _, derr := t.r.Discard(m); err == nil {
			err = derr
		}
		n = int64(m)
		if err != nil {
			return n, err
		}
	}
	t.r = nil
	m, err := io.Copy(w, t.Conn)
	return n + m, err
}

// CloseWrite ends the stream towards the port and leaves the other direction open.
func (t *stream) CloseWrite() error {
	if hc, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return nil
}
