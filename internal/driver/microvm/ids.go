//go:build linux

package microvm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// These parts of an image are hashed to name it. A small image is hashed as a whole. Of a big one
// both ends are hashed, and blocks spread over the rest.
const (
	imageEnds    = 2 << 20
	imageSamples = 256
	imageSample  = 4 << 10
)

// imageIDs caches the names of images by their files.
type imageIDs struct {
	mu    sync.Mutex
	known map[fileKey]string
}

// fileKey tells files apart, and versions of one file.
type fileKey struct {
	dev, ino     uint64
	size         int64
	sec, nanosec int64
}

// keyOf names an open file.
func keyOf(f *os.File) (fileKey, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileKey{}, os.NewSyscallError("fstat", err)
	}
	return fileKey{st.Dev, st.Ino, st.Size, int64(st.Mtim.Sec), int64(st.Mtim.Nsec)}, nil
}

// of names an image by its content. It tells builds of a template apart. It does not detect an image
// that somebody forged.
func (c *imageIDs) of(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	key, err := keyOf(f)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	id := c.known[key]
	c.mu.Unlock()
	if id != "" {
		return id, nil
	}
	if id, err = imageID(f, key.size); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[fileKey]string{}
	}
	c.known[key] = id
	return id, nil
}

// imageID hashes an image.
func imageID(f io.ReaderAt, size int64) (string, error) {
	h := sha256.New()
	var errs error
	part := func(from, n int64) {
		_, err := io.Copy(h, io.NewSectionReader(f, from, n))
		errs = errors.Join(errs, err)
	}
	if size <= 2*imageEnds+imageSamples*imageSample {
		part(0, size)
	} else {
		part(0, imageEnds)
		step := (size - 2*imageEnds) / imageSamples
		for i := range int64(imageSamples) {
			part(imageEnds+i*step, imageSample)
		}
		part(size-imageEnds, imageEnds)
	}
	return fmt.Sprintf("%d-%s", size, hex.EncodeToString(h.Sum(nil)[:16])), errs
}
