package access

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Webhooks are the webhooks of the caller's own project. This holds for an administrator too: its
// key acts for another project with the header Carrel-Tenant.
type Webhooks struct {
	*Service
	// Of returns a project's webhooks.
	Of func(project string) carrel.Webhooks
}

var _ carrel.Webhooks = Webhooks{}

func (s Webhooks) own(ctx context.Context, op string) (carrel.Webhooks, context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return nil, ctx, err
	}
	return s.Of(c.Project), ctx, nil
}

// LifecycleEvents implements carrel.Webhooks.
func (s Webhooks) LifecycleEvents(ctx context.Context, opts carrel.LifecycleOptions) ([]carrel.LifecycleEvent, error) {
	own, ctx, err := s.own(ctx, "list events")
	if err != nil {
		return nil, err
	}
	return own.LifecycleEvents(ctx, opts)
}

// CreateWebhook implements carrel.Webhooks.
func (s Webhooks) CreateWebhook(ctx context.Context, n carrel.NewWebhook) (carrel.Webhook, error) {
	own, ctx, err := s.own(ctx, "create webhook")
	if err != nil {
		return carrel.Webhook{}, err
	}
	h, err := own.CreateWebhook(ctx, n)
	request.Touch(ctx, h.ID)
	return h, err
}

// ListWebhooks implements carrel.Webhooks.
func (s Webhooks) ListWebhooks(ctx context.Context) ([]carrel.Webhook, error) {
	own, ctx, err := s.own(ctx, "list webhooks")
	if err != nil {
		return nil, err
	}
	return own.ListWebhooks(ctx)
}

// GetWebhook implements carrel.Webhooks.
func (s Webhooks) GetWebhook(ctx context.Context, id string) (carrel.Webhook, error) {
	own, ctx, err := s.own(ctx, "get webhook")
	if err != nil {
		return carrel.Webhook{}, err
	}
	return own.GetWebhook(ctx, id)
}

// UpdateWebhook implements carrel.Webhooks.
func (s Webhooks) UpdateWebhook(ctx context.Context, id string, u carrel.WebhookUpdate) (carrel.Webhook, error) {
	own, ctx, err := s.own(ctx, "update webhook")
	if err != nil {
		return carrel.Webhook{}, err
	}
	return own.UpdateWebhook(ctx, id, u)
}

// DeleteWebhook implements carrel.Webhooks.
func (s Webhooks) DeleteWebhook(ctx context.Context, id string) error {
	own, ctx, err := s.own(ctx, "delete webhook")
	if err != nil {
		return err
	}
	return own.DeleteWebhook(ctx, id)
}

// Deliveries implements carrel.Webhooks.
func (s Webhooks) Deliveries(ctx context.Context, id string, opts carrel.DeliveryOptions) ([]carrel.Delivery, error) {
	own, ctx, err := s.own(ctx, "list deliveries")
	if err != nil {
		return nil, err
	}
	return own.Deliveries(ctx, id, opts)
}

// Replay implements carrel.Webhooks.
func (s Webhooks) Replay(ctx context.Context, id string, opts carrel.ReplayOptions) (carrel.Replayed, error) {
	own, ctx, err := s.own(ctx, "replay deliveries")
	if err != nil {
		return carrel.Replayed{}, err
	}
	return own.Replay(ctx, id, opts)
}
