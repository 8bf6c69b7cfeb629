package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// MachinePath is where the guest of a virtual machine takes a [MachineRequest].
const MachinePath = "/carrel/machine"

// MachineRequest is the body of POST MachinePath: what the host asks of a guest whose kernel is the
// sandbox's own. The parts are done in the order of the fields.
type MachineRequest struct {
	// Flush writes everything that programs have written to the machine's disks.
	Flush bool `json:"flush,omitempty"`
	// Time is the present time, by which the guest sets the clock. Zero leaves the clock alone.
	Time time.Time `json:"time,omitzero"`
	// Entropy goes into the kernel's random numbers, which are then drawn anew.
	Entropy []byte `json:"entropy,omitempty"`
	// NewBoot gives the machine another boot ID.
	NewBoot bool `json:"newBoot,omitempty"`
	// Sever ends all connections of the link except the one of this request: their other ends are
	// gone.
	Sever bool `json:"sever,omitempty"`
}

// Machine has the guest of a virtual machine do what the request says.
func (c *Conn) Machine(ctx context.Context, req MachineRequest) error {
	const op = "tell the machine"
	body, err := json.Marshal(req)
	if err != nil {
		return c.fail(op, err)
	}
	h := http.Header{"Content-Type": {"application/json"}}
	resp, err := c.roundTrip(ctx, op, http.MethodPost, MachinePath, h, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return drain(resp.Body)
}
