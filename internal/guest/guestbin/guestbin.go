// Package guestbin carries the guest inside the carrel binary, as the EROFS image
// that drivers mount into each sandbox.
//
// The image is a build product. A binary built without it works, but can make no
// sandboxes with a kernel of their own: [Extract] says so.
package guestbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

//go:generate go run ../../tools/guestimage -o assets/guest.erofs

// assets holds guest.erofs, or only its README when the image was not built: so
// the package always compiles.
//
//go:embed all:assets
var assets embed.FS

// image is the image's name among the assets.
const image = "assets/guest.erofs"

// Extract writes the image into dir, which it makes, unless it is there, and
// returns its absolute path. The name carries the content's hash, so that several
// versions can share a directory. The file is readable by all: sandboxes run as
// users of their own. Error: Unsupported when this binary carries no image.
func Extract(dir string) (string, error) { return extract(assets, dir) }

// extract is Extract from any file system.
func extract(from fs.FS, dir string) (string, error) {
	const op = "extract guest"
	data, err := fs.ReadFile(from, image)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &carrel.Error{Op: op, Kind: carrel.Unsupported,
			Err:  errors.New("this binary was built without the guest's image"),
			Hint: "build it with: make build"}
	}
	if err != nil {
		return "", &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	sum := sha256.Sum256(data)
	name := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:8])+".erofs")
	if same(name, sum) {
		return name, nil
	}
	if err := atomicfile.Write(name, data, 0o644); err != nil {
		return "", &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	return name, nil
}

// same reports whether a file has the content with this hash: what a sandbox's
// first process is made of is not taken on a name's word.
func same(name string, sum [sha256.Size]byte) bool {
	data, err := os.ReadFile(name)
	return err == nil && sha256.Sum256(data) == sum
}
