package client

import (
	"context"
	"net/http"
	"time"

	"github.com/carrel-dev/carrel"
)

// machineCalls are a Client's calls about the daemon's machine.
type machineCalls struct{ c *Client }

// Load asks the daemon how busy its machine is. It is for administrators.
func (p machineCalls) Load(ctx context.Context) (carrel.Load, error) {
	var out struct {
		Limit    int     `json:"limit"`
		Starting int     `json:"starting"`
		Wakes    int     `json:"wakesWaiting"`
		Creates  int     `json:"createsWaiting"`
		WaitMS   float64 `json:"waitMs"`
		Event    int64   `json:"event"`
		Machine  struct {
			Memory      int64 `json:"memory"`
			MemoryTotal int64 `json:"memoryTotal"`
			Disk        int64 `json:"disk"`
			DiskTotal   int64 `json:"diskTotal"`
		} `json:"machine"`
	}
	if err := p.c.call(ctx, "read load", http.MethodGet, "/admission", nil, nil, &out); err != nil {
		return carrel.Load{}, err
	}
	m := out.Machine
	return carrel.Load{Memory: m.Memory, MemoryTotal: m.MemoryTotal, Disk: m.Disk, DiskTotal: m.DiskTotal,
		Starting: out.Starting, Limit: out.Limit, Waiting: out.Wakes + out.Creates,
		Wait: time.Duration(out.WaitMS * float64(time.Millisecond)), Event: out.Event}, nil
}

// Tiers asks the daemon which tiers work on its machine. It is for administrators.
func (p machineCalls) Tiers(ctx context.Context) ([]carrel.Tier, error) {
	rows, err := p.c.Doctor(ctx)
	if err != nil {
		return nil, err
	}
	var out []carrel.Tier
	for _, r := range rows {
		if r.OK && r.Tier != "" {
			out = append(out, r.Tier)
		}
	}
	return out, nil
}
