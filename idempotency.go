package carrel

import (
	"errors"
	"strings"
)

// maxIdempotencyKey bounds a key, in bytes.
const maxIdempotencyKey = 255

// ErrKeyReused is the cause of the Conflict for an idempotency key that was sent before, with
// another creation.
var ErrKeyReused = errors.New("this idempotency key was used for another creation")

// CheckIdempotencyKey says what is wrong with a key, with an Error of kind Invalid. A key has 1 to
// 255 lower-case letters, digits and hyphens. "" is no key.
func CheckIdempotencyKey(key string) error {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	if len(key) <= maxIdempotencyKey && strings.Trim(key, letters) == "" {
		return nil
	}
	return &Error{Op: "create sandbox", Kind: Invalid, Field: "idempotencyKey",
		Err:  errors.New("not 1 to 255 lower-case letters, digits and hyphens"),
		Hint: "use a random UUID for each creation"}
}
