package snapshot

import (
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Bounds of a blob's name. Every kind of storage can hold names within these bounds.
const (
	maxBlobName = 500 // bytes; object stores allow 1024, a prefix included
	maxBlobPart = 200 // bytes between two slashes; file systems allow 255
)

// CheckBlobName checks a blob's name: it returns nil, or Invalid with the fault. A name consists of
// letters, digits and "-._/". The parts between slashes are never empty, "." or "..". No name may
// be another one's directory: "a" and "a/b" do not go together.
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

// CheckBlobPrefix checks whether a blob's name could begin like this. It returns nil, or Invalid.
func CheckBlobPrefix(prefix string) error {
	for i := range len(prefix) {
		c := prefix[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._/", rune(c)) {
			return badBlobName(prefix, "a name has only letters, digits and -._/")
		}
	}
	return nil
}

// badBlobName is the error about a name. It shows at most a line of the name.
func badBlobName(name, hint string) error {
	const most = 80
	if len(name) > most {
		name = name[:most] + "…"
	}
	return &carrel.Error{Kind: carrel.Invalid, Field: "name", Err: fmt.Errorf("%q is not the name of a blob", name), Hint: hint}
}
