package carrel

import "time"

// SSHKey is a public key that may open SSH sessions in sandboxes.
type SSHKey struct {
	Name        string `json:"name"`
	PublicKey   string `json:"publicKey"`   // as in an authorized_keys file, without options
	Fingerprint string `json:"fingerprint"` // "SHA256:…", as ssh-keygen -l shows it
	// Sandboxes are those that it opens; none means all.
	Sandboxes []ID      `json:"sandboxes,omitempty"`
	Added     time.Time `json:"added"`
}
