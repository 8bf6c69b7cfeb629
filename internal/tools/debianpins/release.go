package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// release is a verified InRelease file.
type release struct {
	codename, version string
	date              time.Time
	sums              map[string]string // SHA-256 by name of an index
}

// verifyRelease checks the signature of an InRelease file and reads the signed part of it. keys is
// an OpenPGP key ring, as in the package debian-archive-keyring. One good signature by a key of the
// ring is enough: an archive signs with its old and its new key while it changes keys.
func verifyRelease(file, keys []byte) (*release, error) {
	ring, err := openpgp.ReadKeyRing(bytes.NewReader(keys))
	if err != nil {
		return nil, fmt.Errorf("key ring: %w", err)
	}
	block, rest := clearsign.Decode(file)
	if block == nil {
		return nil, errors.New("it is not signed")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("it has text after its signature")
	}
	if _, err := block.VerifySignature(ring, nil); err != nil {
		return nil, fmt.Errorf("its signature: %w", err)
	}
	return readRelease(string(block.Plaintext))
}

// readRelease reads the text of a Release file.
func readRelease(text string) (*release, error) {
	r := &release{sums: map[string]string{}}
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, " ") {
			if f := strings.Fields(line); section == "SHA256" && len(f) == 3 {
				r.sums[f[2]] = f[0]
			}
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		section = key
		var err error
		switch key {
		case "Codename":
			r.codename = value
		case "Version":
			r.version = value
		case "Date":
			r.date, err = time.Parse("Mon, 02 Jan 2006 15:04:05 MST", value)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.codename == "" || r.date.IsZero() || len(r.sums) == 0 {
		return nil, errors.New("it has no code name, date or SHA-256 sums")
	}
	return r, nil
}

// check compares an index with the sum that the release gives for it.
func (r *release) check(name string, index []byte) error {
	sum := sha256.Sum256(index)
	switch want, ok := r.sums[name]; {
	case !ok:
		return fmt.Errorf("the release does not list %s", name)
	case want != hex.EncodeToString(sum[:]):
		return fmt.Errorf("%s is not the one that the release lists", name)
	}
	return nil
}
