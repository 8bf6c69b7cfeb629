// Package guestbin holds the guest inside the carrel binary, as the EROFS image that drivers mount
// into each sandbox. It also holds carrel-init, the first program of a virtual machine.
//
// Both are build products. A binary built without them works, but can make no sandboxes with a
// kernel of their own: [Extract] and [ExtractInit] return an error that says so.
package guestbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

//go:generate go run ../../tools/guestimage -o assets/guest.erofs

// assets holds guest.erofs and carrel-init, each with its SHA-256. If they were not built, it holds
// only the README, so that the package always compiles.
//
//go:embed all:assets
var assets embed.FS

// Names among the assets.
const (
	image  = "assets/guest.erofs"
	vmInit = "assets/carrel-init"
)

// Extract writes the image into dir, unless it is there, and returns its absolute path. It makes
// dir if needed. The name contains a hash of the content, so that several versions can share a
// directory. All users can read the file, because sandboxes run as their own users. Error:
// Unsupported if this binary has no image.
func Extract(dir string) (string, error) { return extract(assets, dir, image) }

// ExtractInit is Extract for carrel-init. Nothing on this machine executes the file.
func ExtractInit(dir string) (string, error) { return extract(assets, dir, vmInit) }

// extract is Extract from any file system, for one asset.
func extract(from fs.FS, dir, asset string) (string, error) {
	op := "extract " + path.Base(asset)
	fail := func(err error) (string, error) { return "", &carrel.Error{Op: op, Kind: carrel.Internal, Err: err} }
	want, err := readSum(from, asset)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &carrel.Error{Op: op, Kind: carrel.Unsupported,
			Err:  errors.New("this binary was built without " + path.Base(asset)),
			Hint: "build it with: make build"}
	}
	if err != nil {
		return fail(err)
	}
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return fail(err)
	}
	// If the file is there, the embedded image is not read: it would stay in this process's memory.
	kind := path.Ext(asset)
	name := filepath.Join(dir, strings.TrimSuffix(path.Base(asset), kind)+"-"+hex.EncodeToString(want[:8])+kind)
	if same(name, want) {
		return name, nil
	}
	data, err := fs.ReadFile(from, asset)
	if err != nil {
		return fail(err)
	}
	if sha256.Sum256(data) != want {
		return fail(errors.New("what this binary carries is damaged"))
	}
	if err := atomicfile.Write(name, data, 0o644); err != nil {
		return fail(err)
	}
	return name, nil
}

// readSum returns the hash that the asset must have: the one noted at build time, or else the hash
// of the embedded file.
func readSum(from fs.FS, asset string) (want [sha256.Size]byte, err error) {
	if _, err := fs.Stat(from, asset); err != nil {
		return want, err
	}
	text, err := fs.ReadFile(from, asset+".sum")
	if errors.Is(err, fs.ErrNotExist) {
		f, err := from.Open(asset)
		if err != nil {
			return want, err
		}
		return hash(f)
	}
	if err != nil {
		return want, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(want) {
		return want, errors.New(asset + ".sum: not a hash")
	}
	return [sha256.Size]byte(raw), nil
}

// same reports whether a file has this hash. A name alone is not trusted, because the file becomes
// a sandbox's first process.
func same(name string, want [sha256.Size]byte) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	sum, err := hash(f)
	return err == nil && sum == want
}

// hash reads a file to its end, a piece at a time, and closes it.
func hash(f io.ReadCloser) (sum [sha256.Size]byte, err error) {
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return [sha256.Size]byte(h.Sum(nil)), err
}
