package agent

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const (
	// metadataHeader begins the headers that carry metadata: X-Metadata-Author is
	// the attribute user.e2b.author.
	metadataHeader = "X-Metadata-"
	// attrPrefix is the name space of those attributes. It counts for the limits.
	attrPrefix = "user.e2b."
	// maxMetadataKey and maxMetadata are what Linux and ext4 take: a name of 255
	// bytes, and all names and values of a file in one block.
	maxMetadataKey = 255 - len(attrPrefix)
	maxMetadata    = 4096
)

// metadataOf reads an upload's metadata. It is not nil without any: an upload
// replaces what a file had.
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

// checkPrintable refuses what is not printable ASCII.
func checkPrintable(what, s string) error {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return fmt.Errorf("metadata %s contains non-printable-ASCII byte 0x%02x at offset %d", what, s[i], i)
		}
	}
	return nil
}
