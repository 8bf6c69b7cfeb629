package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	maxLine    = 1 << 20
	silence    = 45 * time.Second // the daemon writes a blank line every 15 seconds
	firstWait  = 100 * time.Millisecond
	longestGap = 5 * time.Second
)

// Events implements carrel.Sandboxes. If a stream breaks, the client continues it at the same
// place. So no event after the first is missed, until ctx ends or the daemon refuses.
func (c *Client) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return func(yield func(carrel.Event, error) bool) {
		wait, connected := firstWait, false
		for ctx.Err() == nil {
			ok, done, err := c.eventStream(ctx, &after, func(e carrel.Event) bool {
				wait = firstWait
				return yield(e, nil)
			})
			connected = connected || ok
			if done || ctx.Err() != nil {
				return
			}
			if !connected || carrel.KindOf(err) != carrel.Unavailable {
				yield(carrel.Event{}, err)
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

// eventStream reads one connection's events. It reports whether there was a connection and whether
// the consumer is done; if it is not, the error says why the connection ended.
func (c *Client) eventStream(ctx context.Context, after *int64, yield func(carrel.Event) bool) (connected, done bool, err error) {
	const op = "read events"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{}
	if *after != 0 {
		q.Set("after", strconv.FormatInt(*after, 10))
	}
	resp, err := c.send(ctx, op, http.MethodGet, "/events", q, nil)
	if err != nil {
		return false, false, err
	}
	defer resp.Body.Close()
	alarm := time.AfterFunc(silence, cancel)
	defer alarm.Stop()
	lines := jsonLines(resp.Body)
	for {
		var line struct {
			Event *carrel.Event `json:"event"`
			Error *wireError    `json:"error"`
		}
		blank, err := lines(&line)
		alarm.Reset(silence)
		switch {
		case err != nil:
			return true, false, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: err}
		case blank:
		case line.Error != nil:
			return true, false, line.Error.restore(op)
		case line.Event != nil:
			*after = line.Event.Seq
			if !yield(*line.Event) {
				return true, true, nil
			}
		}
	}
}

// jsonLines returns a function that decodes one line at a time and says whether
// it was blank.
func jsonLines(r io.Reader) func(v any) (blank bool, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	return func(v any) (bool, error) {
		if !sc.Scan() {
			if sc.Err() != nil {
				return false, sc.Err()
			}
			return false, io.ErrUnexpectedEOF
		}
		if len(sc.Bytes()) == 0 {
			return true, nil
		}
		if err := json.Unmarshal(sc.Bytes(), v); err != nil {
			return false, errors.Join(errors.New("the daemon sent a line that is not JSON"), err)
		}
		return false, nil
	}
}
