package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Trails = (*Client)(nil)

// Trail implements carrel.Trails.
func (c *Client) Trail(ctx context.Context, opts carrel.TrailOptions) iter.Seq2[carrel.TrailRecord, error] {
	const op = "read audit trail"
	return func(yield func(carrel.TrailRecord, error) bool) {
		resp, err := c.send(ctx, op, http.MethodGet, "/trail", trailQuery(opts), nil)
		if err != nil {
			yield(carrel.TrailRecord{}, err)
			return
		}
		defer resp.Body.Close()
		body := &answerBody{Reader: resp.Body}
		lines := jsonLines(body)
		for {
			var line json.RawMessage
			_, err := lines(&line)
			switch {
			case err != nil && body.whole:
				return
			case err != nil:
				yield(carrel.TrailRecord{}, c.fail(ctx, op, err))
				return
			}
			var rec struct {
				carrel.TrailRecord
				Error *wireError `json:"error"`
			}
			if err := json.Unmarshal(line, &rec); err != nil {
				yield(carrel.TrailRecord{}, c.fail(ctx, op, err))
				return
			}
			if rec.Error != nil {
				yield(carrel.TrailRecord{}, rec.Error.restore(op))
				return
			}
			rec.Line = line
			if rec.Seq > 0 && !yield(rec.TrailRecord, nil) {
				return
			}
		}
	}
}

// VerifyTrail implements carrel.Trails.
func (c *Client) VerifyTrail(ctx context.Context) (carrel.TrailReport, error) {
	var out carrel.TrailReport
	err := c.call(ctx, "verify audit trail", http.MethodGet, "/trail/verify", nil, nil, &out)
	return out, err
}

func trailQuery(o carrel.TrailOptions) url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"project": o.Project, "key": o.Key, "kind": o.Kind, "op": o.Op, "target": o.Target} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for name, t := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	if o.After != 0 {
		q.Set("after", strconv.FormatInt(o.After, 10))
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}
