package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
)

// endStream is the flag of a Connect stream's last message, which says how the call
// ended (https://connectrpc.com/docs/protocol, "Streaming responses").
const endStream = 0b10

// leftBehind is the last message of a stream whose sandbox was paused or rolled back. It is close
// to the guest's own words for this case, which usually come first.
const leftBehind = "the sandbox was paused or rolled back: connect again"

// ending is the answer of one of the guest's Connect streams. A guest ends its streams with a
// reason before the sandbox is paused. But a slow guest, on a busy machine, may be frozen before it
// has written that. Then ending adds the reason, so that no client takes a pause for the sandbox's
// end.
type ending struct {
	io.ReadCloser
	// moved reports whether the sandbox has gone on in another life, or soon will.
	moved func() bool

	head [5]byte   // of the present message: flags, and length of the rest
	have int       // bytes of head
	left uint32    // bytes that are to follow it
	done bool      // the last message has passed
	rest io.Reader // replaces the missing end; nil until it is missing
}

// withEnding makes sure that a Connect stream ends with a reason.
func (g *Gateway) withEnding(resp *http.Response) error {
	rt := routedOf(resp.Request.Context())
	if rt == nil || rt.target.Port != carrel.GuestPort || resp.StatusCode != http.StatusOK ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/connect+") {
		return nil
	}
	ctx := resp.Request.Context()
	resp.Body = &ending{ReadCloser: resp.Body, moved: func() bool {
		if ctx.Err() != nil {
			return false // its client left
		}
		sb, err := g.opts.Sandboxes.Get(ctx, rt.target.ID)
		if err != nil {
			return false
		}
		switch sb.State {
		case carrel.Pausing, carrel.Paused, carrel.Resuming:
			return true
		}
		return sb.State == carrel.Running && sb.Generation != rt.sandbox.Generation
	}}
	return nil
}

// Read implements io.Reader.
func (e *ending) Read(p []byte) (int, error) {
	if e.rest != nil {
		return e.rest.Read(p)
	}
	n, err := e.ReadCloser.Read(p)
	e.follow(p[:n])
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case e.done:
		// The stream is complete, only the end of the connection is missing. If the client got this
		// error, it might discard messages that it has not read yet.
		e.rest = http.NoBody
	case e.have == 0 && e.moved():
		e.rest = bytes.NewReader(lastMessage(leftBehind))
	default:
		return n, err
	}
	return n, nil
}

// follow keeps track of the messages' boundaries.
func (e *ending) follow(p []byte) {
	for len(p) > 0 {
		if e.have < len(e.head) {
			n := copy(e.head[e.have:], p)
			e.have += n
			p = p[n:]
			if e.have < len(e.head) {
				return
			}
			e.left = binary.BigEndian.Uint32(e.head[1:])
		}
		n := min(uint64(e.left), uint64(len(p)))
		e.left -= uint32(n)
		p = p[n:]
		if e.left == 0 {
			e.done = e.done || e.head[0]&endStream != 0
			e.have = 0
		}
	}
}

// lastMessage is the last message of a stream that ends for a reason outside its call.
func lastMessage(reason string) []byte {
	var end struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	end.Error.Code, end.Error.Message = connect.CodeUnavailable.String(), reason
	raw, _ := json.Marshal(end) // two texts always marshal
	out := binary.BigEndian.AppendUint32([]byte{endStream}, uint32(len(raw)))
	return append(out, raw...)
}
