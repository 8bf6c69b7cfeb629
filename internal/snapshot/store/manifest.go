package store

import (
	"bytes"
	"encoding/json"
	"math"
	"os"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Bounds of a valid manifest.
const (
	maxManifest = 64 << 20 // bytes
	maxFiles    = 4096
	maxName     = 128
)

// validName reports whether a file of a snapshot may have this name.
func validName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// parseManifest reads the text of a manifest. It must be the manifest of id.
func parseManifest(b []byte, id carrel.SnapshotID) (snapshot.Manifest, error) {
	var m snapshot.Manifest
	if len(b) > maxManifest {
		return m, invalid("the manifest is larger than %d bytes", maxManifest)
	}
	// Check the version first, because it decides the meaning of the rest.
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return m, invalid("the manifest is not JSON: %w", err)
	}
	if v.Version > snapshot.ManifestVersion {
		return m, &carrel.Error{Kind: carrel.Invalid, Hint: "use the newer carrel that wrote it",
			Err: errFuture(v.Version)}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, invalid("the manifest: %w", err)
	}
	return m, checkManifest(m, id)
}

// checkManifest returns an error that says what is wrong with a manifest, or nil.
func checkManifest(m snapshot.Manifest, id carrel.SnapshotID) error {
	if m.Version != snapshot.ManifestVersion {
		return invalid("the manifest has the unknown version %d", m.Version)
	}
	if m.ID != id {
		return invalid("the manifest is that of another snapshot, %.64q", m.ID)
	}
	if len(m.Files) > maxFiles {
		return invalid("the manifest has %d files", len(m.Files))
	}
	seen := map[string]bool{}
	var size int64
	for _, f := range m.Files {
		if !validName(f.Name) {
			return invalid("the manifest has a file of the bad name %.80q", f.Name)
		}
		if seen[f.Name] {
			return invalid("the manifest has file %q twice", f.Name)
		}
		seen[f.Name] = true
		if f.Size < 0 || f.Size > math.MaxInt64/maxFiles {
			return invalid("file %q has the impossible size %d", f.Name, f.Size)
		}
		if _, err := decodeSums(f); err != nil {
			return err
		}
		size += f.Size
	}
	if size != m.Size {
		return invalid("the manifest's size %d is not that of its files, %d", m.Size, size)
	}
	return nil
}

// readManifest reads the manifest of a hot copy.
func readManifest(path string, id carrel.SnapshotID) (snapshot.Manifest, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return snapshot.Manifest{}, invalid("the manifest is missing")
	} else if err != nil {
		return snapshot.Manifest{}, err
	}
	return parseManifest(b, id)
}

// encodeManifest makes the text of a manifest.
func encodeManifest(m snapshot.Manifest) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	if buf.Len() > maxManifest {
		return nil, invalid("the manifest is larger than %d bytes", maxManifest)
	}
	return buf.Bytes(), nil
}
