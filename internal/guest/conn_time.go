package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Leave tells the guest that the sandbox is about to be paused or rolled back:
// every open stream of it ends with the reason, a sentence for the clients.
// Processes run on, and what they write is kept for the next Attach. It returns
// when the streams have ended, at most a quarter of a second after the guest heard.
func (c *Conn) Leave(ctx context.Context, reason string) error {
	const op = "end streams"
	body, err := json.Marshal(LeaveRequest{Reason: reason})
	if err != nil {
		return c.fail(op, err)
	}
	h := http.Header{"Content-Type": {"application/json"}}
	resp, err := c.roundTrip(ctx, op, http.MethodPost, LeavePath, h, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return drain(resp.Body)
}

// Activity asks what goes on in the guest, which costs it next to nothing.
func (c *Conn) Activity(ctx context.Context) (Activity, error) {
	const op = "read activity"
	resp, err := c.roundTrip(ctx, op, http.MethodGet, ActivityPath, nil, nil)
	if err != nil {
		return Activity{}, err
	}
	defer drain(resp.Body)
	var a Activity
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(&a); err != nil {
		return Activity{}, c.fail(op, err)
	}
	return a, nil
}
