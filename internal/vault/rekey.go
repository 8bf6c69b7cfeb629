package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

// Rekey seals every secret anew under another key. That is the given one, in the form of a key
// file, or a random one if given is nil. The vault goes on serving secrets during this.
//
// Rekey first writes the new key to key.next. So after a crash at any moment, each secret is sealed
// under one of two keys that are available, and the next Open goes on. At the end, the new key
// replaces the old one. With Options.KeyFile, the caller gives the key and must put it into that
// file. key.next stays until an Open finds the new key there.
func (v *Vault) Rekey(given []byte) error {
	const op = "change key of secrets"
	v.writing.Lock()
	defer v.writing.Unlock()
	next := newKey()
	if given != nil {
		var err error
		if next, err = parseKey(given); err != nil {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "key", Err: err}
		}
	} else if v.opts.KeyFile != "" {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "key", Err: errors.New("a key that is kept elsewhere can't be made here"),
			Hint: "give the new one"}
	}
	v.mu.RLock()
	present, pending, broken := v.key, v.next, len(v.broken)
	v.mu.RUnlock()
	switch {
	case pending != nil && v.opts.KeyFile == "" && given == nil:
		return v.reseal(op) // try again: the disk may have been full then
	case pending != nil:
		return &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%s is still to be replaced by %s from the last change", v.keyFile(), filepath.Join(v.dir, nextName)),
			Hint: "put the new key there and start again"}
	case broken > 0: // they may need the present key, once repaired
		return &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%d secrets' files are refused", broken), Hint: "restore or remove them first"}
	case next.id == present.id:
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "key", Err: errors.New("it is the key in use")}
	}
	if err := failpoint.Hit("vault.rekey"); err != nil {
		return internal(op, err)
	}
	if err := atomicfile.Write(filepath.Join(v.dir, nextName), next.secret[:], 0o600); err != nil {
		return internal(op, err)
	}
	v.mu.Lock()
	v.next = next
	v.mu.Unlock()
	return v.reseal(op)
}

// finishRekey continues an unfinished change of the key.
func (v *Vault) finishRekey() error {
	v.writing.Lock()
	defer v.writing.Unlock()
	return v.reseal(opOpen)
}

// reseal seals every secret under the next key. It then makes the next key the present one. If the
// key lies in a file that the owner replaces, that step waits for the owner. The caller holds
// v.writing.
func (v *Vault) reseal(op string) error {
	v.mu.RLock()
	next := v.next
	var behind []*record
	for _, r := range v.byID {
		if r.Key != next.id {
			behind = append(behind, r)
		}
	}
	v.mu.RUnlock()
	for _, r := range behind {
		value, err := r.open()
		if err != nil {
			return internal(op, fmt.Errorf("secret %s: %w", r.Name, err))
		}
		renewed, err := seal(next, r.header, value)
		if err != nil {
			return internal(op, err)
		}
		if err := v.put(op, renewed); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("vault.resealed"); err != nil {
		return internal(op, err)
	}
	return v.replaceKey(op)
}

// replaceKey ends a change of the key.
func (v *Vault) replaceKey(op string) error {
	from := filepath.Join(v.dir, nextName)
	switch {
	case v.opts.KeyFile == "":
		if err := os.Rename(from, v.keyFile()); err != nil {
			return internal(op, err)
		}
	case v.key != nil && v.key.id == v.next.id:
		if err := os.Remove(from); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return internal(op, err)
		}
	default:
		v.opts.Logger.Warn("the key of the secrets was changed: put the new one into the key file", "keyFile", v.keyFile(), "new", from)
		return nil
	}
	if err := atomicfile.SyncDir(v.dir); err != nil {
		return internal(op, err)
	}
	v.mu.Lock()
	v.key, v.next = v.next, nil
	v.mu.Unlock()
	return nil
}
