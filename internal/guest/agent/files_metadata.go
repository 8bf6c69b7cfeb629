package agent

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const (
	// metadataHeader is the prefix of headers with metadata: X-Metadata-Author is the attribute
	// user.e2b.author.
	metadataHeader = "X-Metadata-"
	// attrPrefix is the prefix of those attributes. It counts towards the limits.
	attrPrefix = "user.e2b."
	// maxMetadataKey and maxMetadata are limits of Linux and ext4: 255 bytes for a name, and one
	// block for all names and values of a file.
	maxMetadataKey = 255 - len(attrPrefix)
	maxMetadata    = 4096
)

// metadataOf reads an upload's metadata. Without any it returns an empty map, not nil: an upload
// replaces the file's old metadata.
func metadataOf(h http.Header) (map[string]string, error) {
	meta := map[string]string{}
	total := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || key == "" || len(values) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if err := checkMetadata(key, values[0]); err != nil {
			return nil, fmt.Errorf("invalid metadata: %w", err)
		}
		meta[key] = values[0]
		total += len(attrPrefix) + len(key) + len(values[0])
	}
	if total > maxMetadata {
		return nil, fmt.Errorf("invalid metadata: total metadata size %d exceeds %d bytes", total, maxMetadata)
	}
	return meta, nil
}

// checkMetadata checks one key and its value.
func checkMetadata(key, value string) error {
	if key == "" {
		return errors.New("metadata key must not be empty")
	}
	if len(key) > maxMetadataKey {
		return fmt.Errorf("metadata key %q exceeds %d bytes", key, maxMetadataKey)
	}
	if err := checkPrintable("key", key); err != nil {
		return err
	}
	return checkPrintable(fmt.Sprintf("value for key %q", key), value)
}

// checkPrintable refuses characters other than printable ASCII.
func checkPrintable(what, s string) error {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return fmt.Errorf("metadata %s contains non-printable-ASCII byte 0x%02x at offset %d", what, s[i], i)
		}
	}
	return nil
}
