package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Leave tells the guest that the sandbox is about to be paused or rolled back. The guest ends every
// open stream with the reason, a sentence for the clients. Processes run on, and the guest keeps
// their output for the next Attach. Leave returns when the streams have ended, at most a quarter of
// a second after the guest got the call.
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

// Activity asks how busy the guest is. This costs the guest next to nothing.
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
