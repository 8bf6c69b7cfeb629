package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Secrets = (*Client)(nil)

// CreateSecret implements carrel.Secrets.
func (c *Client) CreateSecret(ctx context.Context, s carrel.NewSecret) (carrel.Secret, error) {
	var out carrel.Secret
	err := c.call(ctx, "create secret", http.MethodPost, "/secrets", nil, s, &out)
	return out, err
}

// UpdateSecret implements carrel.Secrets.
func (c *Client) UpdateSecret(ctx context.Context, ref, value string, metadata map[string]string) (carrel.Secret, error) {
	body := struct {
		Value    string            `json:"value"`
		Metadata map[string]string `json:"metadata"` // null changes nothing, {} clears it
	}{value, metadata}
	var out carrel.Secret
	err := c.secret(ctx, "update secret", http.MethodPut, ref, body, &out)
	return out, err
}

// GetSecret implements carrel.Secrets.
func (c *Client) GetSecret(ctx context.Context, ref string) (carrel.Secret, error) {
	var out carrel.Secret
	err := c.secret(ctx, "get secret", http.MethodGet, ref, nil, &out)
	return out, err
}

// ListSecrets implements carrel.Secrets.
func (c *Client) ListSecrets(ctx context.Context) ([]carrel.Secret, error) {
	var out []carrel.Secret
	err := c.call(ctx, "list secrets", http.MethodGet, "/secrets", nil, nil, &out)
	return out, err
}

// DeleteSecret implements carrel.Secrets.
func (c *Client) DeleteSecret(ctx context.Context, ref string) error {
	return c.secret(ctx, "delete secret", http.MethodDelete, ref, nil, nil)
}

// RekeySecrets makes the daemon seal all secrets again under another key: the given one, in the
// form of its key file, or a random one for nil.
func (c *Client) RekeySecrets(ctx context.Context, key []byte) error {
	body := struct {
		Key []byte `json:"key"`
	}{key}
	return c.call(ctx, "change key of secrets", http.MethodPost, "/secret-store/rekey", nil, body, nil)
}

// secret sends a request about one secret.
func (c *Client) secret(ctx context.Context, op, method, ref string, body, out any) error {
	if ref == "" {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "name", Err: errors.New("empty")}
	}
	return c.call(ctx, op, method, "/secrets/"+url.PathEscape(ref), nil, body, out)
}
