package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Audits = (*Client)(nil)

// Audit implements carrel.Audits. If a followed stream breaks, the client continues it after the
// last decision that came, until ctx ends or the daemon refuses.
func (c *Client) Audit(ctx context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	return following(ctx, opts.Follow, func(yield func(carrel.Decision) bool) (bool, bool, error) {
		return c.auditStream(ctx, opts, func(d carrel.Decision) bool {
			// To continue, ask for all decisions since then, whatever the limit for the past was.
			opts.After, opts.Limit = d.Seq, 0
			return yield(d)
		})
	})
}

// following reads streams one after another until one is complete, or ctx ends. stream reads one,
// and knows where the one before it ended. Without follow, or if no stream ever connected, the first
// error is the last. Only an unavailable daemon is waited for.
func following[T any](ctx context.Context, follow bool,
	stream func(yield func(T) bool) (connected, done bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		wait, connected := firstWait, false
		for {
			ok, done, err := stream(func(item T) bool {
				wait = firstWait
				return yield(item, nil)
			})
			connected = connected || ok
			switch {
			case done, follow && ctx.Err() != nil:
				return
			case !follow, !connected, carrel.KindOf(err) != carrel.Unavailable:
				var none T
				yield(none, err)
				return
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			wait = min(2*wait, longestGap)
		}
	}
}

// auditStream reads one connection's decisions. It reports whether there was a connection and
// whether the stream is complete; if it is not, the error says why the connection ended.
func (c *Client) auditStream(ctx context.Context, opts carrel.AuditOptions, yield func(carrel.Decision) bool) (connected, done bool, err error) {
	const op = "read audit log"
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, op, http.MethodGet, "/audit", auditQuery(opts), nil)
	if err != nil {
		return false, false, err
	}
	defer resp.Body.Close()
	body := &answerBody{Reader: resp.Body}
	if opts.Follow {
		body.alarm = time.AfterFunc(silence, cancel)
		defer body.alarm.Stop()
	}
	lines := jsonLines(body)
	for {
		var line struct {
			Decision *carrel.Decision `json:"decision"`
			Error    *wireError       `json:"error"`
		}
		_, err := lines(&line)
		switch {
		case err != nil && body.whole && (!opts.Follow || !opts.Until.IsZero()):
			return true, true, nil
		case err != nil:
			return true, false, c.fail(outer, op, err)
		case line.Error != nil:
			return true, false, line.Error.restore(op)
		case line.Decision != nil && !yield(*line.Decision):
			return true, true, nil
		}
	}
}

// answerBody is an answer's body. It knows whether it was read to its end or broke off, and each
// read sets back an alarm.
type answerBody struct {
	io.Reader
	alarm *time.Timer // nil for none
	whole bool
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.whole = errors.Is(err, io.EOF)
	if b.alarm != nil {
		b.alarm.Reset(silence)
	}
	return n, err
}

// auditQuery writes the query for the audit log.
func auditQuery(o carrel.AuditOptions) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	when := func(name string, t time.Time) {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	set("sandbox", string(o.ID))
	set("project", o.Project)
	set("host", o.Host)
	set("rule", o.Rule)
	set("secret", o.Secret)
	when("since", o.Since)
	when("until", o.Until)
	if o.Allowed != nil {
		verdict := "denied"
		if *o.Allowed {
			verdict = "allowed"
		}
		q.Set("verdict", verdict)
	}
	if o.After != 0 {
		q.Set("after", strconv.FormatInt(o.After, 10))
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	return q
}
