package carrel

import (
	"context"
	"time"
)

// SSHKey is a public key that may open SSH sessions in sandboxes.
type SSHKey struct {
	Name        string `json:"name"`
	PublicKey   string `json:"publicKey"`   // as in an authorized_keys file, without options
	Fingerprint string `json:"fingerprint"` // "SHA256:…", as ssh-keygen -l shows it
	// Project is whose sandboxes it opens; "" means those of all projects.
	Project string `json:"project,omitempty"`
	// Sandboxes are those of them that it opens; none means all.
	Sandboxes []ID      `json:"sandboxes,omitempty"`
	Added     time.Time `json:"added"`
}

// SSHAccess is the set of keys that may open SSH sessions.
type SSHAccess interface {
	// SSHKeys returns the keys, by name.
	SSHKeys(ctx context.Context) ([]SSHKey, error)
	// AddSSHKey adds a public key under a name, for these sandboxes of the caller's project,
	// or for all of them when there are none. An administrator's key opens the sandboxes of
	// all projects. Errors: Invalid, AlreadyExists, Exhausted.
	AddSSHKey(ctx context.Context, name, publicKey string, sandboxes []ID) (SSHKey, error)
	// RemoveSSHKey removes a key. Connections that it opened go on. Error: NotFound.
	RemoveSSHKey(ctx context.Context, name string) error
}
