package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// sandboxPath is the path of one sandbox below /carrel/v1.
func sandboxPath(id carrel.ID, rest string) string {
	return "/sandboxes/" + url.PathEscape(string(id)) + rest
}

// Create implements carrel.Sandboxes.
func (c *Client) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := c.call(ctx, "create sandbox", http.MethodPost, "/sandboxes", nil, opts, &sb)
	return sb, err
}

// Get implements carrel.Sandboxes.
func (c *Client) Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	if _, err := carrel.ParseID(string(id)); err != nil {
		return sb, notFound("get sandbox", id, err)
	}
	err := c.call(ctx, "get sandbox", http.MethodGet, sandboxPath(id, ""), nil, nil, &sb)
	return sb, err
}

// notFound returns the error for a text that can't be an ID: no sandbox has it.
func notFound(op string, id carrel.ID, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Hint: carrel.HintOf(err)}
}

// List implements carrel.Sandboxes.
func (c *Client) List(ctx context.Context, opts carrel.ListOptions) (carrel.Page, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(opts.Metadata) > 0 {
		pairs := url.Values{}
		for k, v := range opts.Metadata {
			pairs.Set(k, v)
		}
		q.Set("metadata", pairs.Encode())
	}
	states := make([]string, len(opts.States))
	for i, s := range opts.States {
		states[i] = string(s)
	}
	set("state", strings.Join(states, ","))
	set("match", opts.Match)
	set("template", opts.Template)
	set("project", opts.Project)
	set("startedAfter", timeText(opts.StartedAfter))
	set("cursor", opts.Cursor)
	if opts.OldestFirst {
		q.Set("oldestFirst", "true")
	}
	if opts.Builds {
		q.Set("builds", "true")
	}
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	var page struct {
		Sandboxes []carrel.Sandbox `json:"sandboxes"`
		Next      string           `json:"next"`
		Running   int              `json:"running"`
		Missing   []string         `json:"missing"`
	}
	err := c.call(ctx, "list sandboxes", http.MethodGet, "/sandboxes", q, nil, &page)
	return carrel.Page(page), err
}

// timeText writes a time for a query; the zero time is "".
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Kill implements carrel.Sandboxes.
func (c *Client) Kill(ctx context.Context, id carrel.ID) error {
	if _, err := carrel.ParseID(string(id)); err != nil {
		return notFound("kill sandbox", id, err)
	}
	err := c.call(ctx, "kill sandbox", http.MethodDelete, sandboxPath(id, ""), nil, nil, nil)
	if err == nil || carrel.KindOf(err) == carrel.NotFound {
		c.forget(id)
	}
	return err
}

// SetTimeout implements carrel.Sandboxes.
func (c *Client) SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	body := map[string]any{"timeout": d, "extendOnly": extendOnly}
	err := c.call(ctx, "set timeout", http.MethodPost, sandboxPath(id, "/timeout"), nil, body, &sb)
	return sb, err
}

// SetNetwork implements carrel.Sandboxes.
func (c *Client) SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := c.call(ctx, "set network", http.MethodPut, sandboxPath(id, "/network"), nil, n, &sb)
	return sb, err
}

// Metrics implements carrel.Sandboxes.
func (c *Client) Metrics(ctx context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	q := url.Values{}
	if !from.IsZero() {
		q.Set("from", timeText(from))
	}
	if !to.IsZero() {
		q.Set("to", timeText(to))
	}
	var out []carrel.Metric
	err := c.call(ctx, "read metrics", http.MethodGet, sandboxPath(id, "/metrics"), q, nil, &out)
	return out, err
}

// Logs implements carrel.Sandboxes.
func (c *Client) Logs(ctx context.Context, id carrel.ID, opts carrel.LogOptions) ([]carrel.LogEntry, error) {
	q := url.Values{}
	if !opts.Since.IsZero() {
		q.Set("since", timeText(opts.Since))
	}
	if !opts.Until.IsZero() {
		q.Set("until", timeText(opts.Until))
	}
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	if opts.NewestFirst {
		q.Set("newestFirst", "true")
	}
	var out []carrel.LogEntry
	err := c.call(ctx, "read logs", http.MethodGet, sandboxPath(id, "/logs"), q, nil, &out)
	return out, err
}

// DriverReport says whether one tier works on the daemon's host.
type DriverReport struct {
	Driver   string      `json:"driver"`
	Tier     carrel.Tier `json:"tier"`
	OK       bool        `json:"ok"`
	Default  bool        `json:"default,omitempty"`
	Problem  string      `json:"problem,omitempty"`
	Hint     string      `json:"hint,omitempty"`
	Findings []Finding   `json:"findings,omitempty"`
}

// Finding is something that works only in part.
type Finding struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Hint string `json:"hint,omitempty"`
}

// Traces implements carrel.Tracer.
func (c *Client) Traces(ctx context.Context, id carrel.ID) ([]carrel.Trace, error) {
	var out []carrel.Trace
	err := c.call(ctx, "read traces", http.MethodGet, sandboxPath(id, "/trace"), nil, nil, &out)
	return out, err
}

// Doctor asks the daemon what works on its host.
func (c *Client) Doctor(ctx context.Context) ([]DriverReport, error) {
	var out []DriverReport
	err := c.call(ctx, "run doctor", http.MethodGet, "/doctor", nil, nil, &out)
	return out, err
}

// Version asks for the daemon's own version.
func (c *Client) Version(ctx context.Context) (string, error) {
	var out struct {
		Version string `json:"version"`
	}
	err := c.call(ctx, "read version", http.MethodGet, "/version", nil, nil, &out)
	return out.Version, err
}
