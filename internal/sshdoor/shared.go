package sshdoor

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
)

// KeyStore keeps the keys of several machines that serve the same sandboxes.
type KeyStore interface {
	SSHKeys(ctx context.Context) ([]carrel.SSHKey, error)
	// PutSSHKey keeps a key unless its project has one of this name, or this key: then it returns that
	// one. It keeps at most so many keys. Error: Exhausted.
	PutSSHKey(ctx context.Context, k carrel.SSHKey, most int) (old *carrel.SSHKey, err error)
	// DropSSHKey forgets a key. It returns whether there was one.
	DropSSHKey(ctx context.Context, project, name string) (bool, error)
}

const (
	// sharedFor is how long keys are remembered that were read from a store.
	sharedFor = time.Second
	// storeTime bounds a call of it.
	storeTime = 3 * time.Second
	// maxShared bounds the keys of all machines together.
	maxShared = 10_000
)

// SharedKeys are keys in a [KeyStore]. A key that another machine added or removed is known within a
// second. While the store is away, the last known keys hold. It is safe for concurrent use.
type SharedKeys struct {
	store KeyStore
	log   *slog.Logger

	mu   sync.Mutex
	keys []entry
	read time.Time
}

var _ Finder = (*SharedKeys)(nil)

// NewSharedKeys returns the keys in a store.
func NewSharedKeys(s KeyStore, log *slog.Logger) *SharedKeys { return &SharedKeys{store: s, log: log} }

// all returns the keys. The caller does not change them.
func (k *SharedKeys) all() []entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.read) < sharedFor {
		return k.keys
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	list, err := k.store.SSHKeys(ctx)
	k.read = time.Now()
	if err != nil {
		k.log.Warn("read SSH keys", "err", err)
		return k.keys
	}
	next := make([]entry, 0, len(list))
	for _, s := range list {
		key, err := parseKey(s.PublicKey)
		if err != nil {
			k.log.Warn("an SSH key can't be read", "name", s.Name, "project", s.Project, "err", err)
			continue
		}
		next = append(next, entry{SSHKey: s, blob: key.Marshal()})
	}
	slices.SortFunc(next, byName)
	k.keys = next
	return next
}

// again makes the next call read the store.
func (k *SharedKeys) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = time.Time{}
}

// Find implements Finder.
func (k *SharedKeys) Find(blob []byte) []carrel.SSHKey { return among(k.all(), blob) }

// List returns the keys, sorted by name.
func (k *SharedKeys) List() []carrel.SSHKey {
	all := k.all()
	out := make([]carrel.SSHKey, 0, len(all))
	for _, e := range all {
		out = append(out, e.SSHKey)
	}
	return out
}

// Add is [Keys.Add] in the store. Errors: also Unavailable.
func (k *SharedKeys) Add(project, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error) {
	const op = "add SSH key"
	e, err := newEntry(op, project, name, publicKey, sandboxes)
	if err != nil {
		return carrel.SSHKey{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	defer k.again()
	old, err := k.store.PutSSHKey(ctx, e.SSHKey, maxShared)
	switch {
	case carrel.KindOf(err) == carrel.Exhausted:
		return carrel.SSHKey{}, tooManyKeys(op, maxShared)
	case err != nil:
		return carrel.SSHKey{}, err
	case old != nil:
		return carrel.SSHKey{}, keyTaken(op, old.Fingerprint, old.Name)
	}
	return e.SSHKey, nil
}

// Remove is [Keys.Remove] in the store.
func (k *SharedKeys) Remove(project, name string) error {
	const op = "remove SSH key"
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	defer k.again()
	found, err := k.store.DropSSHKey(ctx, project, name)
	if err == nil && !found {
		err = noKey(op, name)
	}
	return err
}

// SeededHostKey is the host key that a secret of 32 bytes makes: machines that share the secret have
// the same one.
func SeededHostKey(seed []byte) (ssh.Signer, error) {
	return ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed))
}

// Fingerprint is how ssh shows the public part of a host key: SHA256:….
func Fingerprint(k ssh.Signer) string { return ssh.FingerprintSHA256(k.PublicKey()) }
