package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

// Create stores a new secret. Errors: Invalid, AlreadyExists, Exhausted.
func (v *Vault) Create(_ context.Context, owner string, s carrel.NewSecret) (carrel.Secret, error) {
	const op = "create secret"
	name, hosts := strings.ToLower(s.Name), make([]string, len(s.Hosts))
	for i, h := range s.Hosts {
		hosts[i] = hostForm(h)
	}
	for _, err := range []error{checkOwner(owner), checkName(name), checkValue(s.Value), checkMetadata(s.Metadata), checkHosts(hosts)} {
		if err != nil {
			return carrel.Secret{}, withOp(op, err)
		}
	}
	v.writing.Lock()
	defer v.writing.Unlock()
	if err := v.room(op, owner, name); err != nil {
		return carrel.Secret{}, err
	}
	now := v.now()
	h := header{ID: newID(), Owner: owner, Name: name, Version: 1, Metadata: clone(s.Metadata), Hosts: hosts, Created: now, Updated: now}
	secret, err := v.write(op, h, s.Value)
	if err != nil {
		_ = os.Remove(filepath.Join(v.dir, h.ID+".json")) // left by a write that failed late
	}
	return secret, err
}

// room refuses a name that is taken, and a secret beyond the bound of its owner.
func (v *Vault) room(op, owner, name string) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if _, taken := v.byName[ownName{owner, name}]; taken || v.findBroken(owner, name) != "" {
		return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "name", Err: fmt.Errorf("there is a secret %q already", name),
			Hint: "update it, or remove it first"}
	}
	n := 0
	for of := range v.byName {
		if of.owner == owner {
			n++
		}
	}
	if n >= maxPerOwner {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: fmt.Errorf("there are %d secrets already", n), Hint: "remove some"}
	}
	return nil
}

// Update replaces a secret's value. Nil metadata keeps the present metadata. Errors: NotFound,
// Invalid.
func (v *Vault) Update(_ context.Context, owner, ref, value string, metadata map[string]string) (carrel.Secret, error) {
	const op = "update secret"
	for _, err := range []error{checkValue(value), checkMetadata(metadata)} {
		if err != nil {
			return carrel.Secret{}, withOp(op, err)
		}
	}
	v.writing.Lock()
	defer v.writing.Unlock()
	r, err := v.find(op, owner, ref)
	if err != nil {
		return carrel.Secret{}, err
	}
	h := r.header
	h.Version++
	h.Updated = v.now()
	if metadata != nil {
		h.Metadata = clone(metadata)
	}
	return v.write(op, h, value)
}

// write seals and stores a value. The caller holds v.writing.
func (v *Vault) write(op string, h header, value string) (carrel.Secret, error) {
	r, err := seal(v.sealingKey(), h, []byte(value))
	if err != nil {
		return carrel.Secret{}, internal(op, err)
	}
	if err := v.put(op, r); err != nil {
		return carrel.Secret{}, err
	}
	return r.tell(), nil
}

// Get returns the public data of a secret. Error: NotFound.
func (v *Vault) Get(_ context.Context, owner, ref string) (carrel.Secret, error) {
	r, err := v.find("get secret", owner, ref)
	if err != nil {
		return carrel.Secret{}, err
	}
	return r.tell(), nil
}

// List returns an owner's secrets, sorted by name.
func (v *Vault) List(_ context.Context, owner string) ([]carrel.Secret, error) {
	return v.list(owner), nil
}

// Delete removes a secret, even if its file was refused. Error: NotFound.
func (v *Vault) Delete(_ context.Context, owner, ref string) error {
	const op = "delete secret"
	v.writing.Lock()
	defer v.writing.Unlock()
	r, err := v.find(op, owner, ref)
	var id string
	if err == nil {
		id = r.ID
	} else {
		v.mu.RLock()
		id = v.findBroken(owner, strings.ToLower(ref))
		v.mu.RUnlock()
		if id == "" {
			return err
		}
	}
	if err := failpoint.Hit("vault.delete"); err != nil {
		return internal(op, err)
	}
	if err := os.Remove(filepath.Join(v.dir, id+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return internal(op, err)
	}
	v.mu.Lock()
	delete(v.broken, id)
	delete(v.byID, id)
	if r != nil {
		delete(v.byName, ownName{owner, r.Name})
	}
	v.mu.Unlock()
	if err := atomicfile.SyncDir(v.dir); err != nil {
		return internal(op, err)
	}
	return nil
}

// now is the time in the form that files store.
func (v *Vault) now() time.Time { return v.opts.Now().UTC().Round(0) }

// withOp adds the operation to an error.
func withOp(op string, err error) error {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		e.Op = op
	}
	return err
}

// For returns the secrets of one project.
func (v *Vault) For(project string) carrel.Secrets { return secrets{v, ownerOf(project)} }

// secrets is one owner's part of a vault.
type secrets struct {
	vault *Vault
	owner string
}

var _ carrel.Secrets = secrets{}

// CreateSecret implements carrel.Secrets.
func (s secrets) CreateSecret(ctx context.Context, n carrel.NewSecret) (carrel.Secret, error) {
	return s.vault.Create(ctx, s.owner, n)
}

// UpdateSecret implements carrel.Secrets.
func (s secrets) UpdateSecret(ctx context.Context, ref, value string, metadata map[string]string) (carrel.Secret, error) {
	return s.vault.Update(ctx, s.owner, ref, value, metadata)
}

// GetSecret implements carrel.Secrets.
func (s secrets) GetSecret(ctx context.Context, ref string) (carrel.Secret, error) {
	return s.vault.Get(ctx, s.owner, ref)
}

// ListSecrets implements carrel.Secrets.
func (s secrets) ListSecrets(ctx context.Context) ([]carrel.Secret, error) {
	return s.vault.List(ctx, s.owner)
}

// DeleteSecret implements carrel.Secrets.
func (s secrets) DeleteSecret(ctx context.Context, ref string) error {
	return s.vault.Delete(ctx, s.owner, ref)
}

// RekeySecrets changes the key that the secrets of all owners are sealed with: see
// [Vault.Rekey].
func (s secrets) RekeySecrets(_ context.Context, key []byte) error { return s.vault.Rekey(key) }
