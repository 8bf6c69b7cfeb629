package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
)

// fail turns the error of a call to the guest into an [*carrel.Error].
func (c *Conn) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var ce *connect.Error
	var known *carrel.Error
	out := &carrel.Error{Op: op, ID: c.opts.ID, Err: err}
	switch {
	case errors.As(err, &known):
		out.Kind, out.Field = carrel.KindOf(known), known.Field
		if known.Hint != "" {
			out.Hint = known.Hint
			return out
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		out.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		out.Kind = carrel.Unavailable
	case errors.As(err, &ce):
		out.Kind = kindOfCode(ce.Code())
		switch {
		case connect.IsWireError(err):
			out.Err = errors.New(ce.Message()) // the guest's own words, without the code
			if e := unstartedError(ce.Message(), ce.Meta()); e != nil {
				out.Err = e
			}
		case cutOff(err):
			out.Kind = carrel.Unavailable
			if known := c.explain(op, err); known != nil {
				return known
			}
		}
	default:
		out.Kind = carrel.Unavailable
		if known := c.explain(op, err); known != nil {
			return known
		}
	}
	out.Hint = hintFor(out.Kind, err)
	return out
}

// explain asks the owner of the connection why it broke. It returns nil if nobody knows more.
func (c *Conn) explain(op string, err error) error {
	if c.opts.Explain == nil || !cutOff(err) {
		return nil
	}
	known := c.opts.Explain(err)
	if known == nil {
		return nil
	}
	known.Op, known.ID = op, c.opts.ID
	return known
}

// cutOff reports whether the connection ended during a call. In that case the protocol's own error
// is about a broken message.
func cutOff(err error) bool {
	for _, end := range []error{net.ErrClosed, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// hintFor returns a hint for errors whose kind alone tells what to do.
func hintFor(kind carrel.Kind, err error) string {
	switch kind {
	case carrel.Unavailable:
		if !errors.Is(err, context.Canceled) && !connect.IsWireError(err) {
			return "the sandbox may just have ended: its log says why"
		}
	case carrel.Exhausted:
		return "the sandbox is at one of its limits: free some, or create it with a higher one"
	}
	return ""
}

// kindOfCode is the only table from Connect codes to kinds.
func kindOfCode(code connect.Code) carrel.Kind {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return carrel.Invalid
	case connect.CodeUnauthenticated:
		return carrel.Unauthenticated
	case connect.CodePermissionDenied:
		return carrel.Forbidden
	case connect.CodeNotFound:
		return carrel.NotFound
	case connect.CodeAlreadyExists:
		return carrel.AlreadyExists
	case connect.CodeFailedPrecondition, connect.CodeAborted:
		return carrel.Conflict
	case connect.CodeResourceExhausted:
		return carrel.Exhausted
	case connect.CodeUnavailable, connect.CodeCanceled:
		return carrel.Unavailable
	case connect.CodeUnimplemented:
		return carrel.Unsupported
	case connect.CodeDeadlineExceeded:
		return carrel.TimedOut
	}
	return carrel.Internal
}

// httpError reads the guest's error body {code, message}. A body of another form becomes the text
// of the error.
func (c *Conn) httpError(op string, resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // best effort: the status alone decides the kind
	var body struct {
		Message string `json:"message"`
	}
	message := strings.TrimSpace(string(raw))
	if json.Unmarshal(raw, &body) == nil && body.Message != "" {
		message = body.Message
	}
	if message == "" {
		message = resp.Status
	}
	kind := KindOfStatus(resp.StatusCode)
	return &carrel.Error{Op: op, Kind: kind, ID: c.opts.ID, Err: errors.New(message), Hint: hintFor(kind, nil)}
}

// KindOfStatus is the only table from HTTP statuses to kinds. It is for answers without a kind of
// their own: answers of a guest, and of a proxy in front of a daemon.
func KindOfStatus(status int) carrel.Kind {
	switch status {
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusRequestedRangeNotSatisfiable,
		http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge, http.StatusUnsupportedMediaType:
		return carrel.Invalid
	case http.StatusUnauthorized:
		return carrel.Unauthenticated
	case http.StatusForbidden:
		return carrel.Forbidden
	case http.StatusNotFound:
		return carrel.NotFound
	case http.StatusConflict:
		return carrel.Conflict
	case http.StatusInsufficientStorage, http.StatusTooManyRequests:
		return carrel.Exhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return carrel.Unavailable
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return carrel.TimedOut
	case http.StatusNotImplemented, http.StatusMethodNotAllowed, http.StatusUpgradeRequired:
		return carrel.Unsupported
	}
	return carrel.Internal
}

// invalid returns an error about the caller's own arguments.
func (c *Conn) invalid(op, field, format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, ID: c.opts.ID, Field: field, Err: fmt.Errorf(format, args...)}
}
