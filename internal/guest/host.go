package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// maxRetryAfter is the longest that a host may make its guest wait before the next try.
const maxRetryAfter = 30 * time.Second

// Host is the way from inside a sandbox to its host: the other direction of [Conn]. Each request
// has its own connection. If the sandbox is restored during a request, the connection is gone and
// the request fails.
type Host struct {
	// Dial connects to the gateway's address and [HostPort].
	Dial func(ctx context.Context) (net.Conn, error)
}

// Questions that a sandbox may ask about itself, beside [TokenPath]. Requests must have the header
// MetadataHeader with MetadataFlavor. An attacker who makes a program fetch a URL can't set this
// header.
const (
	// SandboxPath returns a [Self].
	SandboxPath    = "/carrel/v1/sandbox"
	MetadataHeader = "Metadata-Flavor"
	MetadataFlavor = "Carrel"
)

// Self is a sandbox's information about itself.
type Self struct {
	ID         carrel.ID                   `json:"id"`
	Template   string                      `json:"template"`
	Alias      string                      `json:"alias,omitempty"`
	Generation int                         `json:"generation"`
	Tokens     map[string]carrel.TokenSpec `json:"tokens,omitempty"` // that it may ask for
}

// Token asks for one of this sandbox's identity tokens, by its name or by its audience; the other
// argument is "".
func (h Host) Token(ctx context.Context, name, audience string) (carrel.Token, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	if audience != "" {
		q.Set("audience", audience)
	}
	var t carrel.Token
	err := h.patiently(ctx, "token", http.MethodGet, TokenPath+"?"+q.Encode(), nil, &t)
	return t, err
}

// Self asks the host about this sandbox.
func (h Host) Self(ctx context.Context) (Self, error) {
	var s Self
	err := h.patiently(ctx, "ask who this is", http.MethodGet, SandboxPath, nil, &s)
	return s, err
}

// Checkpoint asks for a snapshot of this sandbox and returns when the host has taken it. While the
// host says that there were too many, it waits, until ctx ends. Like fork it returns twice: in a
// sandbox that is restored from that snapshot it returns an error, because the connection did not
// survive.
func (h Host) Checkpoint(ctx context.Context, req CheckpointRequest) (CheckpointReply, error) {
	const op = "checkpoint"
	var reply CheckpointReply
	body, err := json.Marshal(req)
	if err != nil {
		return reply, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	if err := h.patiently(ctx, op, http.MethodPost, CheckpointPath, body, &reply); err != nil {
		return CheckpointReply{}, err
	}
	return reply, nil
}

// patiently sends a request, and repeats it while the host says that there were too many.
func (h Host) patiently(ctx context.Context, op, method, path string, body []byte, reply any) error {
	for {
		wait, err := h.ask(ctx, method, path, body, reply)
		if err == nil {
			return nil
		}
		if wait == 0 {
			return hostError(op, err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return hostError(op, err)
		}
	}
}

// ask sends one request. If it fails and a later try may succeed, it also returns how long to wait
// before that.
func (h Host) ask(ctx context.Context, method, path string, body []byte, reply any) (time.Duration, error) {
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Dial(ctx) },
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 16 << 10,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+MetadataIPv4+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Header.Set(MetadataHeader, MetadataFlavor)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode == http.StatusOK {
		return 0, json.Unmarshal(raw, reply)
	}
	return retryAfter(resp), refusal(resp.StatusCode, raw)
}

// retryAfter returns how long the host asks to wait, 0 when it does not.
func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusTooManyRequests || err != nil {
		return 0
	}
	return min(max(time.Duration(s)*time.Second, time.Second), maxRetryAfter)
}

// refusal returns the error for a host's answer that it refused the request.
func refusal(status int, raw []byte) error {
	var body struct {
		Message string `json:"message"`
		Hint    string `json:"hint"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Message == "" {
		body.Message = strings.TrimSpace(fmt.Sprintf("the host answered %d %s", status, http.StatusText(status)))
	}
	return &carrel.Error{Kind: KindOfStatus(status), Err: errors.New(body.Message), Hint: body.Hint}
}

// hostError turns the error of a request to the host into an error of op.
func hostError(op string, err error) error {
	out := &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: err}
	var known *carrel.Error
	switch {
	case errors.As(err, &known):
		out.Kind, out.Err, out.Hint = known.Kind, known.Err, known.Hint
	case errors.Is(err, context.DeadlineExceeded):
		out.Kind = carrel.TimedOut
	default:
		out.Hint = "it is a carrel daemon that answers; this sandbox may have none"
	}
	return out
}
