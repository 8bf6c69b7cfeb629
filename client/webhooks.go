package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/carrel-dev/carrel"
)

// Webhooks is the daemon's events and webhooks, of the key's project.
type Webhooks struct{ c *Client }

var _ carrel.Webhooks = Webhooks{}

// Webhooks returns the daemon's events and webhooks.
func (c *Client) Webhooks() Webhooks { return Webhooks{c} }

func (w Webhooks) hook(id string) string { return "/webhooks/" + url.PathEscape(id) }

// LifecycleEvents implements carrel.Webhooks.
func (w Webhooks) LifecycleEvents(ctx context.Context, opts carrel.LifecycleOptions) (out []carrel.LifecycleEvent, err error) {
	q := url.Values{"types": opts.Types}
	if opts.Offset != 0 {
		q.Set("offset", strconv.Itoa(opts.Offset))
	}
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	if opts.OldestFirst {
		q.Set("orderAsc", "true")
	}
	if opts.Sandbox != "" {
		q.Set("sandbox", string(opts.Sandbox))
	}
	err = w.c.call(ctx, "list events", http.MethodGet, "/lifecycle-events", q, nil, &out)
	return out, err
}

// CreateWebhook implements carrel.Webhooks.
func (w Webhooks) CreateWebhook(ctx context.Context, n carrel.NewWebhook) (out carrel.Webhook, err error) {
	err = w.c.call(ctx, "create webhook", http.MethodPost, "/webhooks", nil, n, &out)
	return out, err
}

// ListWebhooks implements carrel.Webhooks.
func (w Webhooks) ListWebhooks(ctx context.Context) (out []carrel.Webhook, err error) {
	err = w.c.call(ctx, "list webhooks", http.MethodGet, "/webhooks", nil, nil, &out)
	return out, err
}

// GetWebhook implements carrel.Webhooks.
func (w Webhooks) GetWebhook(ctx context.Context, id string) (out carrel.Webhook, err error) {
	err = w.c.call(ctx, "get webhook", http.MethodGet, w.hook(id), nil, nil, &out)
	return out, err
}

// UpdateWebhook implements carrel.Webhooks.
func (w Webhooks) UpdateWebhook(ctx context.Context, id string, u carrel.WebhookUpdate) (out carrel.Webhook, err error) {
	err = w.c.call(ctx, "update webhook", http.MethodPatch, w.hook(id), nil, u, &out)
	return out, err
}

// DeleteWebhook implements carrel.Webhooks.
func (w Webhooks) DeleteWebhook(ctx context.Context, id string) error {
	return w.c.call(ctx, "delete webhook", http.MethodDelete, w.hook(id), nil, nil, nil)
}

// Deliveries implements carrel.Webhooks.
func (w Webhooks) Deliveries(ctx context.Context, id string, opts carrel.DeliveryOptions) (out []carrel.Delivery, err error) {
	q := url.Values{}
	if opts.State != "" {
		q.Set("state", opts.State)
	}
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	err = w.c.call(ctx, "list deliveries", http.MethodGet, "/webhooks/"+url.PathEscape(id)+"/deliveries", q, nil, &out)
	return out, err
}

// Replay implements carrel.Webhooks.
func (w Webhooks) Replay(ctx context.Context, id string, opts carrel.ReplayOptions) (out carrel.Replayed, err error) {
	err = w.c.call(ctx, "replay deliveries", http.MethodPost, "/webhooks/"+url.PathEscape(id)+"/replay", nil, opts, &out)
	return out, err
}
