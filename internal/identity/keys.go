package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	keysFile   = "keys.json"
	keysFormat = 1
)

// signingKey is one key and its start. It signs from From until the next key does.
type signingKey struct {
	From time.Time       `json:"from"`
	Key  jose.JSONWebKey `json:"key"` // private
}

// keyFile is the file of keys, oldest first: the past ones, the present one, and the next one.
type keyFile struct {
	Format   int          `json:"format"`
	Sequence int64        `json:"sequence"` // number of changes, for SPIFFE bundles
	Keys     []signingKey `json:"keys"`
}

// keyring holds the keys. Its owner guards it.
type keyring struct {
	name string
	life time.Duration
	keep time.Duration // how long a key stays published after its successor took over
	file keyFile
}

// openKeys reads the keys in dir.
func openKeys(dir string, life, keep time.Duration) (*keyring, error) {
	r := &keyring{name: filepath.Join(dir, keysFile), life: life, keep: keep, file: keyFile{Format: keysFormat}}
	raw, err := os.ReadFile(r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = parseKeys(raw, &r.file)
	}
	if err != nil {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Err: fmt.Errorf("%s: %w", r.name, err),
			Hint: "restore it from a backup; or remove it, and tokens that are out can't be verified any more"}
	}
	return r, os.Chmod(r.name, 0o600)
}

// parseKeys reads a file of keys.
func parseKeys(raw []byte, f *keyFile) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		return errors.New("not a file of keys") // the cause may quote a key
	}
	if f.Format != keysFormat {
		return fmt.Errorf("format %d is not known to this version", f.Format)
	}
	for i, k := range f.Keys {
		private, ok := k.Key.Key.(*ecdsa.PrivateKey)
		if !ok || private.Curve != elliptic.P256() || !k.Key.Valid() || k.Key.KeyID == "" || k.From.IsZero() {
			return errors.New("a key is not one of ours")
		}
		if i > 0 && k.From.Before(f.Keys[i-1].From) {
			return errors.New("the keys are in no order")
		}
	}
	return nil
}

// current returns the key that signs now. It makes and drops keys as their time comes.
func (r *keyring) current(now time.Time) (*signingKey, error) {
	if err := r.turn(now); err != nil {
		return nil, err
	}
	return &r.file.Keys[r.index(now)], nil
}

// index is the youngest key whose time has come. If the clock went back before all of them, it is
// the oldest.
func (r *keyring) index(now time.Time) int {
	for i := len(r.file.Keys) - 1; i > 0; i-- {
		if !r.file.Keys[i].From.After(now) {
			return i
		}
	}
	return 0
}

// turn makes sure that one key signs and another is published ahead. It drops an old key only after
// all of its tokens have expired.
func (r *keyring) turn(now time.Time) error {
	keys := append([]signingKey(nil), r.file.Keys...)
	changed := false
	for len(keys) == 0 || !keys[len(keys)-1].From.After(now) {
		from := now
		if n := len(keys); n > 0 {
			if from = keys[n-1].From.Add(r.life); from.Before(now) { // nobody was here for long
				from = now.Add(r.life)
			}
		}
		k, err := newSigningKey(from)
		if err != nil {
			return err
		}
		keys, changed = append(keys, k), true
	}
	for len(keys) > 2 && keys[1].From.Add(r.keep).Before(now) {
		keys, changed = keys[1:], true
	}
	if !changed {
		return nil
	}
	file := keyFile{Format: keysFormat, Sequence: r.file.Sequence + 1, Keys: keys}
	raw, err := json.Marshal(file)
	if err == nil {
		err = atomicfile.Write(r.name, append(raw, '\n'), 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: "make signing key", Kind: carrel.Internal, Err: err}
	}
	r.file = file
	return nil
}

// public returns the keys for verifying tokens, for use.
func (r *keyring) public(use string) jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{}
	for _, k := range r.file.Keys {
		p := k.Key.Public()
		p.Use = use
		set.Keys = append(set.Keys, p)
	}
	return set
}

// verifier returns the public key of an ID.
func (r *keyring) verifier(id string) (crypto.PublicKey, bool) {
	for _, k := range r.file.Keys {
		if k.Key.KeyID == id {
			return k.Key.Public().Key, true
		}
	}
	return nil, false
}

func newSigningKey(from time.Time) (signingKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signingKey{}, &carrel.Error{Op: "make signing key", Kind: carrel.Internal, Err: err}
	}
	k := jose.JSONWebKey{Key: private, Algorithm: string(jose.ES256), Use: "sig"}
	thumb, err := k.Thumbprint(crypto.SHA256)
	if err != nil {
		return signingKey{}, &carrel.Error{Op: "make signing key", Kind: carrel.Internal, Err: err}
	}
	k.KeyID = base64.RawURLEncoding.EncodeToString(thumb)
	return signingKey{From: from.UTC().Round(0), Key: k}, nil
}
