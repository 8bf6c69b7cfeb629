package carrel

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Secret describes a secret without its value. The value leaves the service only inside requests,
// as an [Injection] says.
type Secret struct {
	ID       string            `json:"id"`   // "sec_…"
	Name     string            `json:"name"` // lower case, unique for its owner
	Version  int               `json:"version"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Hosts are the only hosts whose requests may carry the secret, in the form of
	// [Injection].Host; none means every host that a policy names.
	Hosts   []string  `json:"hosts,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// NewSecret is a secret to store.
type NewSecret struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Hosts    []string          `json:"hosts,omitempty"`
}

// Secrets is the set of secrets of the caller's project. A reference is an ID or a name.
type Secrets interface {
	// CreateSecret errors: Invalid, AlreadyExists.
	CreateSecret(ctx context.Context, s NewSecret) (Secret, error)
	// UpdateSecret replaces the value; nil metadata changes nothing. Running sandboxes use the new
	// value from their next request on. Errors: NotFound, Invalid.
	UpdateSecret(ctx context.Context, ref, value string, metadata map[string]string) (Secret, error)
	GetSecret(ctx context.Context, ref string) (Secret, error)
	// ListSecrets returns all, sorted by name.
	ListSecrets(ctx context.Context) ([]Secret, error)
	// DeleteSecret deletes a secret. Later requests that need it fail. Error: NotFound.
	DeleteSecret(ctx context.Context, ref string) error
}

// TokenSpec is an identity token that a sandbox may have: a short-lived JWT, signed by
// this service, that says which sandbox it is.
type TokenSpec struct {
	Audience string   `json:"audience"`         // who it is for
	Scopes   []string `json:"scopes,omitempty"` // the claim "scope"
}

// Token is a minted identity token.
type Token struct {
	Value   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// Format implements fmt.Formatter: no verb prints the value.
func (s NewSecret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "secret %q", s.Name) }

// LogValue implements slog.LogValuer.
func (s NewSecret) LogValue() slog.Value { return slog.StringValue("secret " + s.Name) }

// Format implements fmt.Formatter: no verb prints the token.
func (t Token) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "token that expires at %s", t.Expires.Format(time.RFC3339))
}

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(t)) }
