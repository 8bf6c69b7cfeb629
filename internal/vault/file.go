package vault

import (
	"bytes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	format = 1
	// maxFile bounds a secret's file. It has room for a value, its metadata and its hosts.
	maxFile = 256 << 10
)

// header is the cleartext part of a secret's file. All of it is authenticated with the value.
type header struct {
	Format   int               `json:"format"`
	ID       string            `json:"id"`
	Owner    string            `json:"owner"`
	Name     string            `json:"name"`
	Version  int               `json:"version"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Hosts    []string          `json:"hosts,omitempty"`
	Created  time.Time         `json:"created"`
	Updated  time.Time         `json:"updated"`
	Key      string            `json:"key"` // the ID of the key that the value is sealed with
}

// record is a secret's file. After seal or unlock it keeps its cipher, so that opening the value
// for a request costs little.
type record struct {
	header
	Sealed []byte `json:"sealed"`

	aead  cipher.AEAD
	bound []byte // the bytes authenticated with the value
}

var (
	errDamaged  = errors.New("its file was changed or damaged")
	errOtherKey = errors.New("it is sealed with another key")
)

// seal makes a record from a header and a value.
func seal(k *key, h header, value []byte) (*record, error) {
	h.Format, h.Key = format, k.id
	bound, err := h.bytes()
	if err != nil {
		return nil, err
	}
	r := &record{header: h, aead: k.aead(h.ID), bound: bound}
	r.Sealed = r.aead.Seal(nil, nil, value, bound)
	return r, nil
}

// unlock prepares a record that was read from a file, and checks that it can be opened.
func (r *record) unlock(k *key) error {
	if r.Key != k.id {
		return errOtherKey
	}
	bound, err := r.header.bytes()
	if err != nil {
		return err
	}
	r.aead, r.bound = k.aead(r.ID), bound
	_, err = r.open()
	return err
}

// open returns the value.
func (r *record) open() ([]byte, error) {
	value, err := r.aead.Open(nil, nil, r.Sealed, r.bound)
	if err != nil {
		return nil, errDamaged
	}
	return value, nil
}

// bytes returns the bytes that are authenticated. They are always the same for the same header.
func (h header) bytes() ([]byte, error) { return json.Marshal(h) }

// encode returns the file's content.
func (r *record) encode() ([]byte, error) {
	raw, err := json.Marshal(r)
	return append(raw, '\n'), err
}

// parse reads a file. The result is not authenticated until it is opened. On error it holds as much
// as could be read.
func parse(raw []byte) (*record, error) {
	r := &record{}
	if len(raw) > maxFile {
		return r, fmt.Errorf("longer than %d bytes", maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return r, fmt.Errorf("not a secret's file: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("something follows the document")
	}
	switch {
	case r.Format != format:
		return r, fmt.Errorf("format %d is not known to this version", r.Format)
	case !isID(r.ID):
		return r, errors.New("no ID of a secret")
	case r.Version < 1:
		return r, errors.New("no version")
	}
	if checkOwner(r.Owner) != nil || checkName(r.Name) != nil || checkMetadata(r.Metadata) != nil || checkHosts(r.Hosts) != nil {
		return r, errors.New("its owner, name, metadata or hosts are not those of a secret")
	}
	return r, nil
}

// tell returns the public data of the secret.
func (h header) tell() carrel.Secret {
	return carrel.Secret{ID: h.ID, Name: h.Name, Version: h.Version, Metadata: clone(h.Metadata),
		Hosts: append([]string(nil), h.Hosts...), Created: h.Created, Updated: h.Updated}
}

func clone(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
