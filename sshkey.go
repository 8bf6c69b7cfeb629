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
	// Project is the project whose sandboxes the key opens; "" means all projects.
	Project string `json:"project,omitempty"`
	// Sandboxes are the sandboxes that the key opens; none means all of the project's.
	Sandboxes []ID      `json:"sandboxes,omitempty"`
	Added     time.Time `json:"added"`
}

// SSHAccess is the set of keys that may open SSH sessions.
type SSHAccess interface {
	// SSHKeys returns the keys, sorted by name.
	SSHKeys(ctx context.Context) ([]SSHKey, error)
	// AddSSHKey adds a public key under a name. It opens the given sandboxes of the caller's
	// project; if none are given, it opens all of them. An administrator's key opens the sandboxes
	// of all projects. Errors: Invalid, AlreadyExists, Exhausted.
	AddSSHKey(ctx context.Context, name, publicKey string, sandboxes []ID) (SSHKey, error)
	// RemoveSSHKey removes a key. Connections that it opened go on. Error: NotFound.
	RemoveSSHKey(ctx context.Context, name string) error
}
