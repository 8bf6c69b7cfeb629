// Package cursor writes and reads places in lists that are ordered by time and then by ID, as the
// opaque texts that clients see. A place needs no thing that is there: it stays valid when its
// thing has gone, and on a machine that never had it. So one text continues a list on many
// machines.
package cursor

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// longest is the most bytes of a text that [Read] looks at.
const longest = 128

// Write writes a place.
func Write(at time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at.UnixNano(), 10) + ":" + id))
}

// Read reads the text that [Write] wrote. ok is false for any other text. The caller checks the ID.
func Read(text string) (at time.Time, id string, ok bool) {
	if len(text) > longest {
		return time.Time{}, "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return time.Time{}, "", false
	}
	nanos, id, found := strings.Cut(string(raw), ":")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !found || err != nil {
		return time.Time{}, "", false
	}
	return time.Unix(0, n), id, true
}
