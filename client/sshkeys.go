package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// SSHKeys lists the public keys that may open SSH sessions in sandboxes.
func (c *Client) SSHKeys(ctx context.Context) ([]carrel.SSHKey, error) {
	var keys []carrel.SSHKey
	err := c.call(ctx, "list SSH keys", http.MethodGet, "/ssh-keys", nil, nil, &keys)
	return keys, err
}

// AddSSHKey adds a public key under a name. It opens the given sandboxes, or all if none are given.
// Errors: Invalid, AlreadyExists, Exhausted.
func (c *Client) AddSSHKey(ctx context.Context, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error) {
	var key carrel.SSHKey
	body := map[string]any{"name": name, "publicKey": publicKey, "sandboxes": sandboxes}
	err := c.call(ctx, "add SSH key", http.MethodPost, "/ssh-keys", nil, body, &key)
	return key, err
}

// RemoveSSHKey removes a key. Error: NotFound.
func (c *Client) RemoveSSHKey(ctx context.Context, name string) error {
	return c.call(ctx, "remove SSH key", http.MethodDelete, "/ssh-keys/"+url.PathEscape(name), nil, nil, nil)
}
