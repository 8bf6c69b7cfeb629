package trail

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	keyName    = "key"
	publicName = "key.pub"
)

// loadKey reads the signing key, or makes one if there is none.
func loadKey(dir string) (ed25519.PrivateKey, error) {
	name := filepath.Join(dir, keyName)
	raw, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(dir)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("the file " + keyName + " holds no key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the key in the file " + keyName + " is no Ed25519 key")
	}
	return key, writePublic(dir, key)
}

func makeKey(dir string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	raw := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	// The head of an empty trail comes first: a key without a head means that somebody removed it.
	if err := putHead(dir, head{Hash: zeroHash, Sig: sign(key, zeroHash)}); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(filepath.Join(dir, keyName), raw, 0o600); err != nil {
		return nil, err
	}
	return key, writePublic(dir, key)
}

// writePublic writes the public key if it is not there.
func writePublic(dir string, key ed25519.PrivateKey) error {
	name := filepath.Join(dir, publicName)
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return atomicfile.Write(name, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}

// ReadPublicKey reads a public key from a file in PEM.
func ReadPublicKey(name string) (ed25519.PublicKey, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("it holds no key in PEM")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("it is no Ed25519 key")
	}
	return key, nil
}

// Fingerprint names a public key, in the form of SSH's fingerprints.
func Fingerprint(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return "SHA256:" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "=")
}
