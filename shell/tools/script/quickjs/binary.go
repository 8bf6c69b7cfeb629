package quickjs

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
)

//go:generate go run ../../../internal/qjswasm -o assets

// Sum is the SHA-256 of the interpreter.
const Sum = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"

//go:embed all:assets
var assets embed.FS

// ErrMissing is the error of a binary that was built without the interpreter.
var ErrMissing = errors.New("this build has no JavaScript: it was made without the interpreter (make build fetches it)")

// binaryCode returns the interpreter.
func binaryCode() ([]byte, error) {
	b, err := assets.ReadFile("assets/quickjs.wasm")
	if err != nil {
		return nil, ErrMissing
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != Sum {
		return nil, errors.New("the JavaScript interpreter in this build is not the one that it should be")
	}
	return b, nil
}

// Missing returns [ErrMissing] in a binary without the interpreter.
func Missing() error {
	f, err := assets.Open("assets/quickjs.wasm")
	if err != nil {
		return ErrMissing
	}
	return f.Close()
}
