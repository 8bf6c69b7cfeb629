package snapshot

import (
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Bounds of a blob's name, which every place that blobs lie in can hold.
const (
	maxBlobName = 500 // bytes; object stores allow 1024, a prefix included
	maxBlobPart = 200 // bytes between two slashes; file systems allow 255
)

// CheckBlobName says what is wrong with a blob's name: nil, or Invalid. A name is of
// letters, digits and "-._/"; between its slashes is always something, and never "."
// or "..". No name may be another one's directory: "a" and "a/b" do not go together.
func CheckBlobName(name string) error {
	if name == "" || len(name) > maxBlobName {
		return badBlobName(name, fmt.Sprintf("a name has 1–%d bytes", maxBlobName))
	}
	if err := CheckBlobPrefix(name); err != nil {
		return err
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxBlobPart {
			return badBlobName(name, fmt.Sprintf("between slashes are 1–%d bytes, other than . and ..", maxBlobPart))
		}
	}
	return nil
}

// CheckBlobPrefix says whether a blob's name could begin like this: nil, or Invalid.
func CheckBlobPrefix(prefix string) error {
	for i := range len(prefix) {
		c := prefix[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._/", rune(c)) {
			return badBlobName(prefix, "a name has only letters, digits and -._/")
		}
	}
	return nil
}

// badBlobName is the error about a name, of which it shows no more than a line.
func badBlobName(name, hint string) error {
	const most = 80
	if len(name) > most {
		name = name[:most] + "…"
	}
	return &carrel.Error{Kind: carrel.Invalid, Field: "name", Err: fmt.Errorf("%q is not the name of a blob", name), Hint: hint}
}
