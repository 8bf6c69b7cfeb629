// Package sentrybin carries cmd/carrel-sentry inside the carrel binary, compressed. It is the small
// program that the kernels of sandboxes run.
//
// The program is a build product. A binary built without it works, too: [Extract] reports that it
// is missing, and package gvisor then runs the carrel binary itself as the sentry.
package sentrybin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// assets holds the program and its checksum, or only the README when the program was not built. So
// the package always compiles.
//
//go:embed all:assets
var assets embed.FS

// Names among the assets: the program, and the file with the SHA-256 of the unpacked program.
const (
	program = "assets/carrel-sentry.zst"
	sum     = "assets/carrel-sentry.sum"
)

// maxProgram bounds the size of the unpacked program.
const maxProgram = 256 << 20

// Extract unpacks the program into dir, unless it is there already, and returns its absolute path.
// It makes dir. The name carries the content's hash, so several versions can share a directory. A
// file that is there already is used only if it has that content. Errors: Unsupported when this
// binary carries no program.
func Extract(dir string) (string, error) { return extract(assets, dir) }

// extract is Extract from any file system.
func extract(from fs.FS, dir string) (string, error) {
	const op = "extract the sandboxes' kernel"
	fail := func(err error) (string, error) { return "", &carrel.Error{Op: op, Kind: carrel.Internal, Err: err} }
	_, err := fs.Stat(from, program)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &carrel.Error{Op: op, Kind: carrel.Unsupported,
			Err: errors.New("this binary was built without it"), Hint: "build it with: make build"}
	}
	if err != nil {
		return fail(err)
	}
	want, err := readSum(from)
	if err != nil {
		return fail(err)
	}
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return fail(err)
	}
	name := filepath.Join(dir, "carrel-sentry-"+hex.EncodeToString(want[:8]))
	if same(name, want) {
		return name, nil
	}
	packed, err := from.Open(program) // opened late: its content stays in this process's memory
	if err != nil {
		return fail(err)
	}
	defer packed.Close()
	data, err := unpack(packed)
	if err != nil {
		return fail(err)
	}
	if sha256.Sum256(data) != want {
		return fail(errors.New("what this binary carries is damaged"))
	}
	if err := atomicfile.Write(name, data, 0o555); err != nil {
		return fail(err)
	}
	return name, nil
}

// readSum reads the hash of the program.
func readSum(from fs.FS) (want [sha256.Size]byte, err error) {
	text, err := fs.ReadFile(from, sum)
	if err != nil {
		return want, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(want) {
		return want, fmt.Errorf("%s: not a hash", sum)
	}
	return [sha256.Size]byte(raw), nil
}

// unpack decompresses the program.
func unpack(packed io.Reader) ([]byte, error) {
	d, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxProgram))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	data, err := io.ReadAll(io.LimitReader(d, maxProgram+1))
	if err == nil && len(data) > maxProgram {
		err = errors.New("it is too big")
	}
	return data, err
}

// same reports whether a file is the program: this user owns it, every user may execute it, and its
// content has this hash. The program guards sandboxes, so its name alone is no proof.
func same(name string, want [sha256.Size]byte) bool {
	f, err := openOwn(name)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false
	}
	return [sha256.Size]byte(h.Sum(nil)) == want
}
