// Package kept keeps the programs of earlier builds for a driver. Memory that one build saved can
// be restored only by that build, so its program must outlive an upgrade.
//
// # Form
//
// A kept build is one file: a line of JSON, the [Facts], and then the program, compressed. The file
// appears whole or not at all. Its name is a hash of the build's name, so it is written once for
// each build. The same bytes are copied to other machines by way of an object store.
//
// # Threat
//
// A kept program becomes the kernel of a sandbox. The directory belongs to the daemon's user alone,
// and the program's hash is checked whenever it is unpacked. A file that came from an object store
// is as trustworthy as the store, which holds the memory of all sandboxes anyway.
package kept

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// Bounds of a file's parts, in bytes.
const (
	maxFacts   = 256 << 10
	maxProgram = 512 << 20
)

// ending is the end of the name of each file.
const ending = ".build"

// Facts describe a kept build.
type Facts struct {
	// Name is the driver's name of the build. Snapshots carry it.
	Name string `json:"name"`
	// Version is Carrel's own, for people.
	Version string `json:"version"`
	// Control is the version of the protocol between a daemon and this program.
	Control int `json:"control"`
	// Driver holds the driver's own facts. Only the driver reads them.
	Driver json.RawMessage `json:"driver,omitempty"`
	// Size and Sum are the program's, unpacked. Keep sets them.
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // SHA-256, in hexadecimal
}

// Store is a directory of kept builds. It is safe for concurrent use, also by several processes.
type Store struct{ dir string }

// Open opens a directory, and makes it if it is missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Store{dir}, nil
}

// File is the name of a build's file, in a directory or an object store.
func File(build string) string {
	sum := sha256.Sum256([]byte(build))
	return hex.EncodeToString(sum[:12]) + ending
}

// path is the place of a build.
func (s *Store) path(build string) string { return filepath.Join(s.dir, File(build)) }

// Has reports whether a build is kept.
func (s *Store) Has(build string) bool {
	fi, err := os.Stat(s.path(build))
	return err == nil && fi.Mode().IsRegular()
}

// Keep writes a build, unless it is there. program is read from its start.
func (s *Store) Keep(f Facts, program io.ReadSeeker) error {
	if s.Has(f.Name) {
		return nil
	}
	h := sha256.New()
	size, err := io.Copy(h, program)
	if err == nil {
		_, err = program.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	f.Size, f.Sum = size, hex.EncodeToString(h.Sum(nil))
	head, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return s.write(f.Name, func(w io.Writer) error {
		if _, err := w.Write(append(head, '\n')); err != nil {
			return err
		}
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return err
		}
		if _, err := io.Copy(z, program); err != nil {
			_ = z.Close()
			return err
		}
		return z.Close()
	})
}

// write makes a build's file.
func (s *Store) write(build string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(s.dir, "."+File(build)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path(build))
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(s.dir)
}

// Get returns the facts of a build. Error: NotFound, Invalid.
func (s *Store) Get(build string) (Facts, error) {
	f, err := os.Open(s.path(build))
	if err != nil {
		return Facts{}, missing(build, err)
	}
	defer f.Close()
	facts, _, err := readFacts(f)
	if err == nil && facts.Name != build {
		err = damaged("it is of build %q", facts.Name)
	}
	return facts, err
}

// missing is the error for a build without a readable file.
func missing(build string, err error) error {
	kind := carrel.Internal
	if errors.Is(err, os.ErrNotExist) {
		kind, err = carrel.NotFound, fmt.Errorf("build %q is not kept", build)
	}
	return &carrel.Error{Op: "open kept build", Kind: kind, Err: err}
}

// damaged is the error for a file that Keep can't have written.
func damaged(format string, args ...any) error {
	return &carrel.Error{Op: "read kept build", Kind: carrel.Invalid, Err: fmt.Errorf(format, args...)}
}

// readFacts reads the first line. The returned reader continues after it.
func readFacts(r io.Reader) (Facts, *bufio.Reader, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxFacts {
			return Facts{}, nil, damaged("its facts: %w", err)
		}
	}
	var f Facts
	if err := json.Unmarshal(bytes.TrimSpace(line), &f); err != nil {
		return Facts{}, nil, damaged("its facts: %w", err)
	}
	if f.Name == "" || f.Size <= 0 || f.Size > maxProgram || len(f.Sum) != 2*sha256.Size {
		return Facts{}, nil, damaged("its facts are not complete")
	}
	return f, br, nil
}

// Unpack writes a build's program into a new file that has no name, and returns it open for
// reading. Errors: NotFound, Invalid when the content is damaged.
func (s *Store) Unpack(build string) (_ *os.File, err error) {
	f, err := os.Open(s.path(build))
	if err != nil {
		return nil, missing(build, err)
	}
	defer f.Close()
	facts, r, err := readFacts(f)
	if err != nil {
		return nil, err
	}
	out, err := os.CreateTemp(s.dir, ".program-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	if err := unpack(out, r, facts); err != nil {
		return nil, err
	}
	if err := out.Chmod(0o555); err != nil {
		return nil, err
	}
	// A file that is open for writing can't be executed.
	return os.Open(out.Name())
}

// unpack decompresses a program and checks it.
func unpack(w io.Writer, r io.Reader, facts Facts) error {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxProgram))
	if err != nil {
		return err
	}
	defer z.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), io.LimitReader(z, facts.Size+1))
	if err != nil {
		return damaged("its program: %w", err)
	}
	if n != facts.Size || sumOf(h) != facts.Sum {
		return damaged("its program is not the one that was kept")
	}
	return nil
}

// sumOf is a hash as text.
func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// List returns the facts of all kept builds, in no order. It leaves out damaged files.
func (s *Store) List() ([]Facts, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []Facts
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ending) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		f, err := os.Open(filepath.Join(s.dir, e.Name()))
		if err != nil {
			continue // dropped meanwhile
		}
		facts, _, err := readFacts(f)
		f.Close()
		if err == nil && File(facts.Name) == e.Name() {
			out = append(out, facts)
		}
	}
	return out, nil
}

// Export opens a build's file as it is, for a copy elsewhere. Error: NotFound.
func (s *Store) Export(build string) (_ io.ReadCloser, size int64, err error) {
	f, err := os.Open(s.path(build))
	if err != nil {
		return nil, 0, missing(build, err)
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}

// Import takes a file that Export gave, unless the build is there. Error: Invalid when it is
// damaged or of another build.
func (s *Store) Import(build string, r io.Reader) error {
	if s.Has(build) {
		return nil
	}
	return s.write(build, func(w io.Writer) error {
		facts, rest, err := readFacts(io.TeeReader(r, w))
		if err != nil {
			return err
		}
		if facts.Name != build {
			return damaged("it is of build %q, not %q", facts.Name, build)
		}
		if err := unpack(io.Discard, rest, facts); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, rest) // all of it is copied to w
		return err
	})
}

// Drop forgets a build; idempotent.
func (s *Store) Drop(build string) error {
	if err := os.Remove(s.path(build)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes the leftovers of a process that died in the middle of its work. No other process
// may use the directory meanwhile.
func (s *Store) Sweep() error {
	left, err := filepath.Glob(filepath.Join(s.dir, ".*-*"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
