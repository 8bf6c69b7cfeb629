package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// statusError is an answer of a registry that says no.
type statusError struct {
	code       int
	retryAfter time.Duration
	err        error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// contentError says that an origin sent other content than it should.
type contentError struct{ err error }

func (e *contentError) Error() string { return e.err.Error() }
func (e *contentError) Unwrap() error { return e.err }

// statusOf returns the HTTP status of a refusal, 0 if err is none.
func statusOf(err error) (code int, retryAfter time.Duration) {
	if se, ok := errors.AsType[*statusError](err); ok {
		return se.code, se.retryAfter
	}
	if te, ok := errors.AsType[*transport.Error](err); ok {
		return te.StatusCode, 0
	}
	return 0, 0
}

// classify turns a failure into an error with a Kind. ref is the image, host the registry.
func classify(op, ref, host string, err error) error {
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		if ce.Field == "archive" || ce.Field == "" { // of package archive
			same := *ce
			same.Op, same.Field = op, "image"
			return &same
		}
		return err
	}
	if ge, ok := errors.AsType[*guardError](err); ok {
		return ge.public(op, ref)
	}
	e := &carrel.Error{Op: op, Kind: carrel.Unavailable, Field: "image",
		Err:  fmt.Errorf("%s: %w", ref, err),
		Hint: "check the network, then try again"}
	code, after := statusOf(err)
	_, stalled := errors.AsType[*stallError](err)
	_, lies := errors.AsType[*contentError](err)
	_, file := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, errNoRanges):
		e.Kind, e.Hint = carrel.Unsupported, "pull the image whole: without --lazy"
	case stalled:
		e.Hint = "the registry is too slow: try again later, or use a mirror"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind, e.Hint = carrel.TimedOut, ""
	case lies:
		e.Kind, e.Hint = carrel.Invalid,
			"what "+host+" sent is not the image that was asked for: do not use it"
	case code == http.StatusNotFound, errors.Is(err, errNotStored):
		e.Kind, e.Hint = carrel.NotFound, "check the image's name and tag"
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		e.Kind = carrel.Unauthenticated
		e.Err = fmt.Errorf("%s: %s wants credentials that allow this, or has no such image: %w", ref,
			host, err)
		e.Hint = "log the daemon's user in (docker login " + host +
			"), or give --username and --password-stdin"
	case code == http.StatusTooManyRequests:
		e.RetryAfter = after
		e.Err = fmt.Errorf("%s: %s limits how often you may ask: %w", ref, host, err)
		e.Hint = "log in, use a mirror, or wait"
	case file:
		return archive.Classify(op, err)
	}
	return e
}

// platformError refuses a platform that this machine does not run.
func platformError(op, platform string) error {
	return &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "platform",
		Err: fmt.Errorf("%.50q: sandboxes of this machine run linux/%s", platform, runtime.GOARCH)}
}
