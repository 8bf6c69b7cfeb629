//go:build linux

package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
)

// A flipped digit in the file of an identity leaves it readable. The directory would then take
// itself for a copy of another one. So the file ends with a checksum of the text before it.
//
// Builds from before the checksum ignore it, and write files without one. Such a file is read as it
// is, unless it has a member that those builds did not know: that is a checksum whose name is
// damaged.

// sumName begins the checksum, which is the last member of the file.
var sumName = []byte("\"sum\": ")

// errSum says that a file does not have its checksum.
var errSum = errors.New("its checksum is wrong")

// Encode returns the text of the identity's file.
func (i Identity) Encode() ([]byte, error) {
	raw, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return nil, err
	}
	raw = append(bytes.TrimSuffix(raw, []byte("\n}")), ",\n  "...)
	sum, err := json.Marshal(sumOf(raw))
	if err != nil {
		return nil, err
	}
	raw = append(append(raw, sumName...), sum...)
	return append(raw, "\n}\n"...), nil
}

// decode reads the text of the identity's file. summed reports whether it has a checksum.
func decode(raw []byte) (i Identity, summed bool, err error) {
	var file struct {
		Identity
		Sum *string `json:"sum"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	at := bytes.LastIndex(raw, sumName)
	if at < 0 {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(&file); err != nil {
		return i, false, err
	}
	if _, err := d.Token(); err != io.EOF {
		return i, false, errors.New("it goes on after its end")
	}
	switch {
	case at < 0 && file.Sum == nil:
		return file.Identity, false, nil
	case at < 0 || file.Sum == nil || *file.Sum != sumOf(raw[:at]):
		return i, false, errSum
	}
	return file.Identity, true, nil
}

// sumOf returns the checksum of the text before it.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
