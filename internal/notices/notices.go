// Package notices holds the licences of all parts of this binary: the modules that are linked into
// it and into the programs inside it, the Go standard library, and the interpreters that are
// compiled to WebAssembly.
//
// internal/tools/licenses gathers them when the binary is built. A package test, or a build without
// "make", has none.
package notices

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
)

//go:embed all:assets
var assets embed.FS

// Notice is one part of the binary. "carrel licenses --json" prints its fields.
type Notice struct {
	Name     string   `json:"name"` // a module's path, or a description
	Version  string   `json:"version"`
	Licenses []string `json:"licenses"` // SPDX identifiers
	Texts    []Text   `json:"texts"`
}

// Text is a file with a part's licence or notice.
type Text struct {
	File string `json:"file"` // its path within the part
	Text string `json:"text"`
}

// ErrMissing is the error of a binary that was built without notices.
var ErrMissing = errors.New("this build carries no notices: it was not made by make build")

// All returns the notices, sorted by name.
func All() ([]Notice, error) {
	packed, err := assets.ReadFile("assets/notices.json.gz")
	if err != nil {
		return nil, ErrMissing
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read notices: %w", err)
	}
	var all []Notice
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		return nil, fmt.Errorf("read notices: %w", err)
	}
	return all, nil
}
