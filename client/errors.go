package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// wireError is the daemon's error body. Cause is the message without operation, sandbox and field,
// which have fields of their own.
type wireError struct {
	Code    int         `json:"code"`
	Message string      `json:"message"`
	Cause   string      `json:"cause"`
	Kind    carrel.Kind `json:"kind"`
	Op      string      `json:"op"`
	ID      carrel.ID   `json:"id"`
	Field   string      `json:"field"`
	Hint    string      `json:"hint"`

	RetryAfter int              `json:"retryAfter"` // seconds
	Limit      *carrel.LimitHit `json:"limit"`
}

// restore turns the daemon's error into a [carrel.Error] with the same kind, text and hint.
func (w wireError) restore(op string) error {
	e := &carrel.Error{Op: w.Op, Kind: w.Kind, ID: w.ID, Field: w.Field, Hint: w.Hint,
		RetryAfter: time.Duration(w.RetryAfter) * time.Second, Limit: w.Limit}
	if e.Op == "" {
		e.Op = op
	}
	if e.Kind == "" {
		e.Kind = guest.KindOfStatus(w.Code)
	}
	if w.Cause == "" {
		w.Cause = strings.TrimPrefix(w.Message, w.Field+": ")
	}
	switch {
	case e.Kind == carrel.Conflict && e.Field == "idempotencyKey":
		e.Err = carrel.ErrKeyReused
	case w.Cause != string(e.Kind): // otherwise Error writes the kind itself
		e.Err = errors.New(w.Cause)
	}
	return e
}

// answerError reads an answer of 300 or above. If the body is not the daemon's JSON, it comes from
// a proxy in between, or from another server altogether.
func answerError(op string, resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // best effort: the status decides
	var w wireError
	if json.Unmarshal(raw, &w) == nil && w.Message != "" {
		if w.Code == 0 {
			w.Code = resp.StatusCode
		}
		return w.restore(op)
	}
	return &carrel.Error{Op: op, Kind: guest.KindOfStatus(resp.StatusCode), Err: fmt.Errorf("the server answered %s", resp.Status),
		Hint: "this may not be a carrel daemon, or a proxy answered in its place"}
}

// wsaRefused is the error that Windows returns instead of ECONNREFUSED. No other system uses the
// number.
const wsaRefused = syscall.Errno(10061)

// unanswered is the cause of an error of a call that got no whole answer. What the call asked for
// may have happened.
type unanswered struct{ error }

// Unwrap returns the cause.
func (u unanswered) Unwrap() error { return u.error }

// Unanswered tells these errors apart from the daemon's own, also for packages that don't import
// this one.
func (unanswered) Unanswered() bool { return true }

// fail returns the error of a call that got no answer.
func (c *Client) fail(ctx context.Context, op string, err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // its text repeats method and URL
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: unanswered{context.Canceled}}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &carrel.Error{Op: op, Kind: carrel.TimedOut, Err: unanswered{context.DeadlineExceeded}}
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaRefused):
		return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: fmt.Errorf("no daemon answers at %s: %w", c.base.Host, err),
			Hint: "start one with: carrel serve"}
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return &carrel.Error{Op: op, Kind: carrel.TimedOut, Err: unanswered{err}}
	}
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: unanswered{err}}
}
