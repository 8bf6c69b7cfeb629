package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Metering = (*Client)(nil)

// Usage implements carrel.Metering.
func (c *Client) Usage(ctx context.Context, o carrel.UsageOptions) (carrel.UsageReport, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("by", strings.Join(o.By, ","))
	set("project", o.Project)
	set("sandbox", string(o.Sandbox))
	if !o.From.IsZero() {
		set("from", o.From.Format(time.RFC3339Nano))
	}
	if !o.To.IsZero() {
		set("to", o.To.Format(time.RFC3339Nano))
	}
	var out carrel.UsageReport
	err := c.call(ctx, "read usage", http.MethodGet, "/usage", q, nil, &out)
	return out, err
}
