package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/version"
)

// patient carries requests that may be repeated until the server has time for them, and ends
// answers that don't come to an end.
type patient struct {
	inner http.RoundTripper
	// maxWait bounds how long one request waits because a server said "later".
	maxWait time.Duration
	// An answer must bring minBytes in each window of its reader's waiting.
	window   time.Duration
	minBytes int64
}

// tries is how often a request is sent that fails for a reason that may pass.
const tries = 3

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", "carrel/"+version.Version)
	repeatable := req.Body == nil || req.Body == http.NoBody
	until := time.Now().Add(p.maxWait)
	for try := 1; ; try++ {
		resp, err := p.once(req)
		if !repeatable || err != nil && isFinal(err) {
			return resp, err
		}
		wait := time.Duration(try*try) * 200 * time.Millisecond
		switch {
		case err != nil:
			if try >= tries {
				return nil, err
			}
		case resp.StatusCode == http.StatusTooManyRequests,
			resp.StatusCode == http.StatusServiceUnavailable:
			asked, known := retryAfter(resp.Header)
			if wait = max(wait, asked); !known && try >= tries {
				return resp, nil
			}
		case resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusGatewayTimeout,
			resp.StatusCode == http.StatusInternalServerError:
			if try >= tries {
				return resp, nil
			}
		default:
			return resp, nil
		}
		if time.Now().Add(wait).After(until) {
			return resp, err // the caller sees Retry-After
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(wait):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
}

// isFinal reports whether an error comes again however often the request is repeated.
func isFinal(err error) bool {
	_, stalled := errors.AsType[*stallError](err)
	return stalled || isGuard(err) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// retryAfter reads the header Retry-After: seconds or a time.
func retryAfter(h http.Header) (wait time.Duration, known bool) {
	text := h.Get("Retry-After")
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(t)), true
	}
	return 0, false
}

// once sends a request and watches its answer.
func (p *patient) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := p.inner.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	// The client walks the chain of redirects through these requests.
	resp.Request = req
	b := &watchedBody{ReadCloser: resp.Body, p: p, host: req.URL.Host, cancel: cancel}
	b.timer = time.AfterFunc(time.Hour, b.stalled)
	b.timer.Stop()
	resp.Body = b
	return resp, nil
}

// watchedBody is the body of an answer. It counts only the time in which a reader waits for the
// server, so that a slow reader is not the server's fault.
type watchedBody struct {
	io.ReadCloser
	p      *patient
	host   string
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu    sync.Mutex
	got   int64         // bytes in this window
	spent time.Duration // waited in this window
	err   error         // the end by stalled
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	left := b.p.window - b.spent
	b.mu.Unlock()
	start := time.Now()
	b.timer.Reset(max(left, time.Millisecond))
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got += int64(n)
	b.spent += time.Since(start)
	switch {
	case b.err != nil:
		return n, b.err
	case err == nil && b.spent >= b.p.window:
		if b.got < b.p.minBytes {
			b.err = &stallError{b.host, b.got, b.p.window}
			return n, b.err
		}
		b.got, b.spent = 0, 0
	}
	return n, err
}

// stalled runs when a reader has waited for a whole window.
func (b *watchedBody) stalled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got < b.p.minBytes {
		b.err = &stallError{b.host, b.got, b.p.window}
		b.cancel(b.err)
	}
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// stallError says that a server sent too little, or took nothing.
type stallError struct {
	host   string
	got    int64 // -1: it took nothing
	window time.Duration
}

func (e *stallError) Error() string {
	if e.got < 0 {
		return fmt.Sprintf("%s took nothing for %s", e.host, e.window)
	}
	return fmt.Sprintf("%s sent only %d bytes in %s", e.host, e.got, e.window)
}
