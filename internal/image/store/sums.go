package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// An image has gigabytes: it can't be read at each start of the daemon or of a sandbox. So packing
// writes a table with a checksum of each chunk beside the image, and template.json holds the digest
// of the table.
//
// A create checks cheaply: is the file the one that was checked, by its inode, size and time of
// change, and is its first chunk whole. If the file is another one (somebody wrote into it, or it
// came from a backup), it is read as a whole, once. The rest, such as a bit that changed on the
// disk, is found by a check in the background, chunk by chunk.
//
// The checksums find faults of disks, programs and people, not forgery: who can write the image can
// write the table.

const (
	sumsFile  = "image.sums"
	sumsChunk = 1 << 20
)

// sumsTable is the content of image.sums.
type sumsTable struct {
	Version int    `json:"version"`
	Size    int64  `json:"size"`
	Chunk   int64  `json:"chunk"`
	Sums    string `json:"sums"` // 8 bytes for each chunk, in base64
	// Inode and Modified are those of the file when it was known to be whole.
	Inode    uint64 `json:"inode"`
	Modified int64  `json:"modified"` // Unix nanoseconds
	// SHA256 is the sum of the whole file, in hexadecimal; "" for an image that was not built here.
	SHA256 string `json:"sha256,omitempty"`
}

// version of a file: another one means that somebody replaced or changed it.
type fileVersion struct {
	inode    uint64
	size     int64
	modified int64
}

func versionOf(f *os.File) (fileVersion, error) {
	info, err := f.Stat()
	if err != nil {
		return fileVersion{}, err
	}
	v := fileVersion{size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		v.inode = st.Ino
	}
	return v, nil
}

// writeSums writes the table of the image in dir, and returns its digest.
func writeSums(ctx context.Context, dir string) (digest string, err error) {
	t, err := makeSums(ctx, dir, nil)
	if err != nil {
		return "", err
	}
	return t.digest(), t.write(dir)
}

// makeSums makes the table of the image in dir. whole is the hash of the whole file; nil makes
// none.
func makeSums(ctx context.Context, dir string, whole hash.Hash) (*sumsTable, error) {
	f, err := os.Open(filepath.Join(dir, imageFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	v, err := versionOf(f)
	if err != nil {
		return nil, err
	}
	t := &sumsTable{Version: 1, Size: v.size, Chunk: sumsChunk, Inode: v.inode, Modified: v.modified}
	var sums []byte
	for at := int64(0); at < v.size; at += sumsChunk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(sumsChunk, v.size-at)
		sum, err := chunkSum(f, at, n)
		if err == nil && whole != nil { // the chunk is in memory now
			_, err = io.Copy(whole, io.NewSectionReader(f, at, n))
		}
		if err != nil {
			return nil, err
		}
		sums = binary.BigEndian.AppendUint64(sums, sum)
	}
	t.Sums = base64.RawStdEncoding.EncodeToString(sums)
	if whole != nil {
		t.SHA256 = hex.EncodeToString(whole.Sum(nil))
	}
	return t, nil
}

// digest is the digest of the checksums. It does not depend on the file's place.
func (t *sumsTable) digest() string {
	sum := sha256.Sum256([]byte(t.Sums))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (t *sumsTable) write(dir string) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, sumsFile), append(raw, '\n'), 0o644)
}

// chunkSum reads a part of a file and returns its checksum.
func chunkSum(f *os.File, at, n int64) (uint64, error) {
	h := xxhash.New()
	got, err := io.Copy(h, io.NewSectionReader(f, at, n))
	if err == nil && got != n {
		err = io.ErrUnexpectedEOF
	}
	return h.Sum64(), err
}

// readSums reads a table. It is nil for an image of an older build, which has none.
func readSums(dir string) (*sumsTable, []byte, error) {
	raw, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	var t sumsTable
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", sumsFile, err)
	}
	sums, err := base64.RawStdEncoding.DecodeString(t.Sums)
	if err != nil || t.Version != 1 || t.Chunk != sumsChunk ||
		int64(len(sums)) != 8*((t.Size+sumsChunk-1)/sumsChunk) {
		return nil, nil, fmt.Errorf("%s: not a table of checksums", sumsFile)
	}
	// template.json has the digest. The base of an older build, and an image being made, have none.
	var m struct {
		Sums string `json:"sums"`
	}
	raw, err = os.ReadFile(filepath.Join(dir, manifestFile))
	if err == nil && json.Unmarshal(raw, &m) == nil && m.Sums != "" && m.Sums != t.digest() {
		return nil, nil, fmt.Errorf("%s is not the one that %s names", sumsFile, manifestFile)
	}
	return &t, sums, nil
}

// checks remembers what is known about images.
type checks struct {
	mu    sync.Mutex
	known map[string]*checked // by the directory
}

// checked is the knowledge about one image.
type checked struct {
	mu      sync.Mutex // held while the image is read as a whole
	table   *sumsTable
	sums    []byte
	version fileVersion // that err is about
	err     error       // what is wrong with that version; nil if it is whole
}

func (c *checks) of(dir string) *checked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]*checked{}
	}
	if c.known[dir] == nil {
		c.known[dir] = &checked{}
	}
	return c.known[dir]
}

// forget drops the knowledge about an image that was made anew or deleted.
func (c *checks) forget(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, dir)
}

// errDamaged is in the error of an image that is damaged.
var errDamaged = errors.New("the image is damaged")

// quick checks an image before a sandbox starts from it. The error of damage is errDamaged.
func (c *checks) quick(ctx context.Context, dir string) error {
	k := c.of(dir)
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := os.Open(filepath.Join(dir, imageFile))
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := versionOf(f)
	if err != nil {
		return err
	}
	if k.table == nil {
		if k.table, k.sums, err = readSums(dir); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if k.table == nil {
			return nil // the check in the background makes the table
		}
		k.version = fileVersion{k.table.Inode, k.table.Size, k.table.Modified}
	}
	if v != k.version {
		k.err = k.read(ctx, f, v, 0)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.version = v
		if k.err == nil { // it is whole, only its place is new: spare the next start the reading
			k.table.Inode, k.table.Modified = v.inode, v.modified
			if f.Sync() == nil { // a thin template's image was not
				_ = k.table.write(dir)
			}
		}
	}
	if k.err == nil {
		k.err = k.chunk(f, 0)
	}
	return k.err
}

// chunk checks the chunk that begins at an offset.
func (k *checked) chunk(f *os.File, at int64) error {
	n := min(sumsChunk, k.table.Size-at)
	if n <= 0 {
		return nil
	}
	sum, err := chunkSum(f, at, n)
	switch {
	case err != nil:
		return fmt.Errorf("%w: read at %d: %w", errDamaged, at, err)
	case sum != binary.BigEndian.Uint64(k.sums[8*(at/sumsChunk):]):
		return fmt.Errorf("%w between bytes %d and %d", errDamaged, at, at+n)
	}
	return nil
}

// read checks all chunks, with a pause after each.
func (k *checked) read(ctx context.Context, f *os.File, v fileVersion, pause time.Duration) error {
	if v.size != k.table.Size {
		return fmt.Errorf("%w: it has %d bytes instead of %d", errDamaged, v.size, k.table.Size)
	}
	for at := int64(0); at < v.size; at += sumsChunk {
		if err := k.chunk(f, at); err != nil {
			return err
		}
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// whole reads an image as a whole and remembers the result. It makes the table of an image that has
// none. A create need not wait meanwhile.
func (c *checks) whole(ctx context.Context, dir string, pause time.Duration) error {
	table, sums, err := readSums(dir)
	if err == nil && table == nil {
		_, err := writeSums(ctx, dir)
		return err
	}
	f, ferr := os.Open(filepath.Join(dir, imageFile))
	if ferr != nil {
		return ferr
	}
	defer f.Close()
	v, verr := versionOf(f)
	if verr != nil {
		return verr
	}
	if err == nil {
		err = (&checked{table: table, sums: sums}).read(ctx, f, v, pause)
	} else {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	k := c.of(dir)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table == nil {
		k.table, k.sums = table, sums
	}
	k.version, k.err = v, err
	return err
}

// damaged is the error of a create from a damaged image.
func damaged(name string, err error) error {
	return &carrel.Error{Op: "open template", Kind: carrel.Unavailable, Field: "template",
		Err:  fmt.Errorf("%q can't be used: %w", name, err),
		Hint: "make it again under the same name (carrel template import, pull or build), or put its image.erofs back from a backup"}
}
