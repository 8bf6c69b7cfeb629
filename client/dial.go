package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// streamProtocol is the daemon's upgrade to raw bytes.
const streamProtocol = "carrel-stream"

// Computer implements carrel.Sandboxes. Its connections to the guest are shared
// and stay warm until Close, or until the sandbox is gone.
func (c *Client) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	const op = "open computer"
	c.mu.Lock()
	conn, known := c.conns[id]
	c.mu.Unlock()
	if known {
		return conn, nil
	}
	sb, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	// A sandbox that resumes by itself does so on its first use.
	wakes := sb.Lifecycle.AutoResume || sb.Lifecycle.Idle.After > 0
	asleep := sb.State == carrel.Pausing || sb.State == carrel.Paused || sb.State == carrel.Resuming
	if sb.State != carrel.Running && (!asleep || !wakes) {
		err := &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Err: fmt.Errorf("the sandbox is %s", sb.State)}
		if sb.State == carrel.Paused {
			err.Hint = "resume it with: carrel resume " + string(id)
		}
		return nil, err
	}
	conn = guest.NewConn(func(ctx context.Context, port uint16) (net.Conn, error) { return c.dialPort(ctx, id, port) },
		guest.ConnOptions{ID: id, Token: sb.AccessToken, Explain: func(err error) *carrel.Error { return c.explainCut(id, err) }})
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, raced := c.conns[id]; raced {
		return other, nil
	}
	c.conns[id] = conn
	return conn, nil
}

// explainTime is how long the client waits for the daemon to say why a sandbox's stream broke.
const explainTime = 3 * time.Second

// explainCut says why the stream of a sandbox broke, as far as the daemon, or its absence, tells.
// If nothing is known, it returns nil.
func (c *Client) explainCut(id carrel.ID, cause error) *carrel.Error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTime)
	defer cancel()
	sb, err := c.getSettled(ctx, id)
	switch {
	case carrel.KindOf(err) == carrel.NotFound:
		ended := error(carrel.NotFound)
		if e, ok := errors.AsType[*carrel.Error](err); ok && e.Err != nil {
			ended = e.Err
		}
		return &carrel.Error{Kind: carrel.NotFound, Err: ended, Hint: "carrel logs " + string(id) + " says why"}
	case carrel.KindOf(err) == carrel.Unavailable, carrel.KindOf(err) == carrel.TimedOut:
		return &carrel.Error{Kind: carrel.Unavailable,
			Err:  fmt.Errorf("the daemon at %s stopped or can't be reached any more; the sandbox may live on without it", c.base.Host),
			Hint: "start the daemon again and look: carrel ls"}
	case err != nil:
		return nil
	case sb.State == carrel.Running:
		return &carrel.Error{Kind: carrel.Unavailable, Err: fmt.Errorf("the connection broke (%w); the sandbox runs on", cause),
			Hint: "what was started in it may run on, too"}
	case sb.State == carrel.Stopping:
		return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("the sandbox is ending"), Hint: "carrel logs " + string(id) + " says why"}
	}
	return &carrel.Error{Kind: carrel.Unavailable, Err: fmt.Errorf("the connection broke: the sandbox is %s", sb.State),
		Hint: "what ran in it goes on when it is resumed: carrel resume " + string(id)}
}

// Pauses of getSettled.
const (
	noticeTime = 200 * time.Millisecond // for the daemon to notice that a sandbox has ended
	endingStep = 50 * time.Millisecond  // between two looks at a sandbox that is ending
)

// getSettled is Get for a sandbox that may have ended a moment ago. Only when it is gone does the
// daemon say why. So getSettled waits for the end of one that is ending, and looks twice at one
// that runs.
func (c *Client) getSettled(ctx context.Context, id carrel.ID) (carrel.Sandbox, error) {
	noticed := time.Now().Add(noticeTime)
	for {
		sb, err := c.Get(ctx, id)
		switch {
		case err != nil:
			return sb, err
		case sb.State == carrel.Stopping:
		case sb.State == carrel.Running && time.Now().Before(noticed):
		default:
			return sb, nil
		}
		select {
		case <-ctx.Done():
			return sb, nil
		case <-time.After(endingStep):
		}
	}
}

// forget drops the connections kept for a sandbox that is gone.
func (c *Client) forget(id carrel.ID) {
	c.mu.Lock()
	conn := c.conns[id]
	delete(c.conns, id)
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

// dialPort asks the daemon for a stream to a port: an HTTP request that turns into raw bytes. If
// nothing listens on the port, the error is ECONNREFUSED, as with any dial.
func (c *Client) dialPort(ctx context.Context, id carrel.ID, port uint16) (_ net.Conn, err error) {
	const op = "dial port"
	conn, err := c.upgrade(ctx, op, sandboxPath(id, "/dial/"+strconv.Itoa(int(port))))
	switch status := (refusedUpgrade{}); {
	case !errors.As(err, &status):
	case status.code == http.StatusBadGateway:
		return nil, fmt.Errorf("%w: %w", status.error, syscall.ECONNREFUSED)
	case status.code == http.StatusNotFound:
		c.forget(id)
		return nil, status.error
	default:
		return nil, status.error
	}
	return conn, err
}

// refusedUpgrade is the daemon's answer to a request that should have become a stream.
type refusedUpgrade struct {
	error
	code int
}

// Unwrap returns the answer as an error.
func (r refusedUpgrade) Unwrap() error { return r.error }

// upgrade turns a request into raw bytes.
func (c *Client) upgrade(ctx context.Context, op, path string) (_ net.Conn, err error) {
	raw, err := c.connect(ctx)
	if err != nil {
		return nil, c.fail(ctx, op, err)
	}
	// The end of ctx makes the handshake's reads and writes fail at once.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	fail := func(err error) (net.Conn, error) {
		stop()
		_ = raw.Close()
		return nil, c.fail(ctx, op, err)
	}
	u := *c.base
	req, err := http.NewRequest(http.MethodGet, u.String()+"/carrel/v1"+path, nil)
	if err != nil {
		return fail(err)
	}
	if err := c.identify(ctx, req.Header); err != nil {
		return fail(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", streamProtocol)
	if err := req.Write(raw); err != nil {
		return fail(err)
	}
	br := bufio.NewReaderSize(raw, 4096)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer raw.Close()
		defer resp.Body.Close()
		stop()
		return nil, refusedUpgrade{answerError(op, resp), resp.StatusCode}
	}
	if !stop() {
		return fail(context.Cause(ctx))
	}
	return guest.NewStream(raw, br), nil
}

// connect opens a connection to the daemon that is not pooled.
func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	host, port := c.base.Hostname(), c.base.Port()
	if port == "" {
		port = c.base.Scheme // "http" and "https" are service names
	}
	raw, err := c.dial(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || c.base.Scheme == "http" {
		return raw, err
	}
	cfg := &tls.Config{}
	if c.tls != nil {
		cfg = c.tls.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	cfg.NextProtos = []string{"http/1.1"} // an upgrade needs it
	secure := tls.Client(raw, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return secure, nil
}
