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

// maxRetryAfter bounds how long a host may make its guest wait before it asks again.
const maxRetryAfter = 30 * time.Second

// Host is the way from inside a sandbox to its host: the other direction of [Conn].
// Each request has a connection of its own, so that a sandbox that is restored in
// the middle of one notices: the connection is gone.
type Host struct {
	// Dial connects to the gateway's address and [HostPort].
	Dial func(ctx context.Context) (net.Conn, error)
}

// What a sandbox may ask about itself, beside [TokenPath]. Requests must have the header
// MetadataHeader with MetadataFlavor: whoever makes a program fetch a URL can't set it.
const (
	// SandboxPath is answered by a [Self].
	SandboxPath    = "/carrel/v1/sandbox"
	MetadataHeader = "Metadata-Flavor"
	MetadataFlavor = "Carrel"
)

// Self is what a sandbox is told of itself.
type Self struct {
	ID         carrel.ID                   `json:"id"`
	Template   string                      `json:"template"`
	Alias      string                      `json:"alias,omitempty"`
	Generation int                         `json:"generation"`
	Tokens     map[string]carrel.TokenSpec `json:"tokens,omitempty"` // that it may ask for
}

// Token asks for one of the identity tokens that this sandbox was given, by its name
// or by its audience; the other is "".
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

// Self asks who this sandbox is.
func (h Host) Self(ctx context.Context) (Self, error) {
	var s Self
	err := h.patiently(ctx, "ask who this is", http.MethodGet, SandboxPath, nil, &s)
	return s, err
}

// Checkpoint asks for a snapshot of this sandbox and returns when it has been
// taken. While the host says that there were too many it waits, until ctx ends. In
// a sandbox that is restored from that very snapshot it returns an error, because
// the connection did not survive: it returns twice, as fork does.
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

// patiently asks, and again while the host says that it was asked too often.
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

// ask sends one request. With an error that a later try may not meet it returns
// how long to wait until then.
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

// refusal is the host's own answer that it did not do it.
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

// hostError says what an asking ended with.
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
