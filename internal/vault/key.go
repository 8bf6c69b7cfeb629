package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	keyLen   = 32
	keyIDLen = 8
	keyName  = "key"
	nextName = "key.next"
)

// key is the vault's key. It prints as "[key]".
type key struct {
	secret [keyLen]byte
	id     string // identifies the key without revealing it
}

// Format implements fmt.Formatter, so that no verb prints the key.
func (k *key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// aead returns the cipher for one secret's values.
func (k *key) aead(secretID string) cipher.AEAD {
	block, err := aes.NewCipher(k.derive("carrel vault secret "+secretID, keyLen))
	if err == nil {
		var sealer cipher.AEAD
		if sealer, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return sealer
		}
	}
	panic(err) // the key's length is right
}

func (k *key) derive(info string, n int) []byte {
	out, err := hkdf.Key(sha256.New, k.secret[:], nil, info, n)
	if err != nil {
		panic(err) // the length is right
	}
	return out
}

func makeKey(secret []byte) *key {
	k := &key{}
	copy(k.secret[:], secret)
	k.id = hex.EncodeToString(k.derive("carrel vault key id", keyIDLen))
	return k
}

func newKey() *key {
	var secret [keyLen]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand aborts the process instead
	return makeKey(secret[:])
}

// parseKey reads a key file: 32 bytes, or 64 hexadecimal digits and white space.
func parseKey(raw []byte) (*key, error) {
	if len(raw) == keyLen {
		return makeKey(raw), nil
	}
	if text := bytes.TrimSpace(raw); len(text) == 2*keyLen {
		if secret, err := hex.DecodeString(string(text)); err == nil {
			return makeKey(secret), nil
		}
	}
	return nil, errors.New("neither 32 bytes nor 64 hexadecimal digits")
}

// readKey reads a key file. It returns nil when there is none.
func readKey(name string) (*key, error) {
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		var k *key
		if k, err = parseKey(raw); err == nil {
			return k, nil
		}
	}
	return nil, &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "secret-key-file", Err: fmt.Errorf("%s: %w", name, err),
		Hint: "restore the key file; without it the secrets can't be read and have to be set anew"}
}

// own makes the vault's own key file unreadable for other users.
func own(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(name, 0o600)
	}
	return err
}

// openKey finds the key to use. used says that there are secrets already. A new key could not open
// those.
func (v *Vault) openKey(used bool) error {
	file := v.keyFile()
	k, err := readKey(file)
	if err != nil {
		return err
	}
	next, err := readKey(filepath.Join(v.dir, nextName))
	if err != nil {
		return err
	}
	if k == nil && next == nil {
		switch {
		case v.opts.KeyFile != "":
			return &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "secret-key-file", Err: fmt.Errorf("%s does not exist", file),
				Hint: "make it once, for example with: openssl rand -out " + file + " 32"}
		case used:
			return &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "secret-key-file", Err: fmt.Errorf("there are secrets in %s, but their key %s is gone", v.dir, file),
				Hint: "restore the key file from where it was kept; or remove the secrets' files and set them anew"}
		}
		k = newKey()
		if err := atomicfile.Write(file, k.secret[:], 0o600); err != nil {
			return internal(opOpen, err)
		}
	}
	if v.opts.KeyFile == "" && k != nil {
		if err := own(file); err != nil {
			return internal(opOpen, err)
		}
	} else if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o007 != 0 { // it is not ours to change
		v.opts.Logger.Warn("everybody may read the key of the secrets", "file", file, "hint", "chmod 400 "+file)
	}
	v.key, v.next = k, next
	return nil
}

// keyFile is where the key is.
func (v *Vault) keyFile() string {
	if v.opts.KeyFile != "" {
		return v.opts.KeyFile
	}
	return filepath.Join(v.dir, keyName)
}
