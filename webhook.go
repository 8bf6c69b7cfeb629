package carrel

import (
	"context"
	"time"
)

// The types of E2B's events. Each is also what a webhook may ask for.
const (
	LifecycleCreated      = "sandbox.lifecycle.created"
	LifecycleUpdated      = "sandbox.lifecycle.updated"
	LifecycleKilled       = "sandbox.lifecycle.killed"
	LifecyclePaused       = "sandbox.lifecycle.paused"
	LifecycleResumed      = "sandbox.lifecycle.resumed"
	LifecycleCheckpointed = "sandbox.lifecycle.checkpointed"
)

// LifecycleTypes are all types of E2B's events, and ours about held connections.
func LifecycleTypes() []string {
	return []string{LifecycleCreated, LifecycleUpdated, LifecycleKilled, LifecyclePaused,
		LifecycleResumed, LifecycleCheckpointed, ConnectionHeld, ConnectionAnswered}
}

// LifecycleEvent is an [Event] of a sandbox's life in E2B's form. Lists of events and webhooks have
// the same form.
type LifecycleEvent struct {
	Version     string         `json:"version"` // "v2"
	ID          string         `json:"id"`      // the same in each delivery of the event
	Type        string         `json:"type"`
	Data        *LifecycleData `json:"eventData"`
	BuildID     string         `json:"sandboxBuildId"`
	ExecutionID string         `json:"sandboxExecutionId"` // of this run: it changes with each resumption
	SandboxID   ID             `json:"sandboxId"`
	TeamID      string         `json:"sandboxTeamId"`
	TemplateID  string         `json:"sandboxTemplateId"`
	Timestamp   time.Time      `json:"timestamp"`
}

// LifecycleData is what a [LifecycleEvent] says besides. Values that are known as secrets are
// replaced.
type LifecycleData struct {
	Metadata   map[string]string `json:"sandbox_metadata,omitempty"`
	SetTimeout time.Time         `json:"set_timeout,omitzero"` // the new end
	// Execution is about the run that an end or a pause finished.
	Execution *LifecycleRun `json:"execution,omitempty"`
	// Carrel has what E2B has no field for.
	Carrel *LifecycleDetail `json:"carrel,omitempty"`
}

// LifecycleRun is one run of a sandbox: from its creation or resumption to its pause or end.
type LifecycleRun struct {
	Started  time.Time `json:"started_at"`
	VCPUs    int       `json:"vcpu_count"`
	MemoryMB int       `json:"memory_mb"`
	Millis   int64     `json:"execution_time"` // milliseconds
}

// LifecycleDetail is the event as package carrel has it.
type LifecycleDetail struct {
	Event   string    `json:"event"`
	Reason  EndReason `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}

// LifecycleOptions selects events.
type LifecycleOptions struct {
	Sandbox     ID // "" is all
	Types       []string
	Offset      int
	Limit       int // 1–100; 0 is 10
	OldestFirst bool
}

// Webhook is an address to which a project's events are sent.
type Webhook struct {
	ID        string    `json:"id"`
	TeamID    string    `json:"teamId"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	Enabled   bool      `json:"enabled"`
	URL       string    `json:"url"`
	Events    []string  `json:"events"`
	// Secret is the secret that signs deliveries. It is there only once: in the answer to a
	// creation that brought none.
	Secret string `json:"signatureSecret,omitempty"`
}

// NewWebhook describes a webhook that is to be made.
type NewWebhook struct {
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Events  []string `json:"events"`
	Enabled *bool    `json:"enabled,omitempty"`         // nil is true
	Secret  string   `json:"signatureSecret,omitempty"` // "" makes one
}

// WebhookUpdate changes a webhook. A nil field changes nothing.
type WebhookUpdate struct {
	Name    *string   `json:"name,omitempty"`
	URL     *string   `json:"url,omitempty"`
	Events  *[]string `json:"events,omitempty"`
	Enabled *bool     `json:"enabled,omitempty"`
	Secret  *string   `json:"signatureSecret,omitempty"`
}

// The states of a delivery.
const (
	DeliveryPending = "pending" // waits for its first attempt or the next one
	DeliveryDone    = "delivered"
	DeliveryDead    = "dead" // given up; Replay sends it again
)

// Delivery is one event on its way to a webhook.
type Delivery struct {
	Event     string    `json:"event"` // the ID of the event
	Type      string    `json:"type"`
	SandboxID ID        `json:"sandboxId"`
	Time      time.Time `json:"time"` // of the event
	State     string    `json:"state"`
	Attempts  int       `json:"attempts"`
	Status    int       `json:"status,omitempty"` // of the last answer
	Error     string    `json:"error,omitempty"`  // why the last attempt failed
	Tried     time.Time `json:"tried,omitzero"`   // the last attempt
	Next      time.Time `json:"next,omitzero"`    // the next attempt
}

// DeliveryOptions selects deliveries.
type DeliveryOptions struct {
	State string // "" is all
	Limit int    // 1–1000; 0 is 100
}

// ReplayOptions says which events are sent again. Exactly one field is set.
type ReplayOptions struct {
	Events []string  `json:"events,omitempty"` // by ID
	Dead   bool      `json:"dead,omitempty"`   // all that were given up
	Since  time.Time `json:"since,omitzero"`   // all that the webhook asks for, from this time on
}

// Replayed says how many events are sent again.
type Replayed struct {
	Events int `json:"events"`
}

// Webhooks tells programs what happens to the sandboxes of the caller's project. An administrator
// has those of its own project, too.
type Webhooks interface {
	// LifecycleEvents lists events of the last seven days. Error: Invalid.
	LifecycleEvents(ctx context.Context, opts LifecycleOptions) ([]LifecycleEvent, error)
	// CreateWebhook makes a webhook that gets the events from now on. Errors: Invalid, Exhausted.
	CreateWebhook(ctx context.Context, n NewWebhook) (Webhook, error)
	ListWebhooks(ctx context.Context) ([]Webhook, error)
	// GetWebhook finds a webhook by ID. Error: NotFound.
	GetWebhook(ctx context.Context, id string) (Webhook, error)
	// UpdateWebhook changes a webhook. What waits for a webhook that gets disabled is dropped.
	// Errors: NotFound, Invalid.
	UpdateWebhook(ctx context.Context, id string, u WebhookUpdate) (Webhook, error)
	// DeleteWebhook ends a webhook. When it returns, nothing more is sent. Error: NotFound.
	DeleteWebhook(ctx context.Context, id string) error
	// Deliveries lists what waits, what was given up and what was delivered lately, the newest event
	// first. Errors: NotFound, Invalid.
	Deliveries(ctx context.Context, id string, opts DeliveryOptions) ([]Delivery, error)
	// Replay sends events again. Errors: NotFound (the webhook, or an event that is not kept),
	// Invalid, Conflict (the webhook is disabled), Exhausted.
	Replay(ctx context.Context, id string, opts ReplayOptions) (Replayed, error)
}

// NoWebhooks is a [Webhooks] for services that send nothing.
type NoWebhooks struct{}

var _ Webhooks = NoWebhooks{}

func noWebhooks(op string) error { return lacking(op, "webhooks") }

// LifecycleEvents implements Webhooks.
func (NoWebhooks) LifecycleEvents(context.Context, LifecycleOptions) ([]LifecycleEvent, error) {
	return nil, lacking("list events", "list of events")
}

// CreateWebhook implements Webhooks.
func (NoWebhooks) CreateWebhook(context.Context, NewWebhook) (Webhook, error) {
	return Webhook{}, noWebhooks("create webhook")
}

// ListWebhooks implements Webhooks.
func (NoWebhooks) ListWebhooks(context.Context) ([]Webhook, error) {
	return nil, noWebhooks("list webhooks")
}

// GetWebhook implements Webhooks.
func (NoWebhooks) GetWebhook(context.Context, string) (Webhook, error) {
	return Webhook{}, noWebhooks("get webhook")
}

// UpdateWebhook implements Webhooks.
func (NoWebhooks) UpdateWebhook(context.Context, string, WebhookUpdate) (Webhook, error) {
	return Webhook{}, noWebhooks("update webhook")
}

// DeleteWebhook implements Webhooks.
func (NoWebhooks) DeleteWebhook(context.Context, string) error { return noWebhooks("delete webhook") }

// Deliveries implements Webhooks.
func (NoWebhooks) Deliveries(context.Context, string, DeliveryOptions) ([]Delivery, error) {
	return nil, noWebhooks("list deliveries")
}

// Replay implements Webhooks.
func (NoWebhooks) Replay(context.Context, string, ReplayOptions) (Replayed, error) {
	return Replayed{}, noWebhooks("replay deliveries")
}
