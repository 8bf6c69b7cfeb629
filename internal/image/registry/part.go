package registry

import (
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

const (
	// partSuffix ends the name of a layer that has not wholly arrived.
	partSuffix = ".part"
	// partAge is how long a part waits for the pull that goes on with it.
	partAge = 3 * 24 * time.Hour
)

// part is a layer that arrives. Its file has a name in the cache from the first byte on: a pull
// that is broken off, also by the end of the process, leaves it for the next one. Nothing in the
// file is trusted. Its bytes count for the digest of the whole layer like those that arrive later.
type part struct {
	file *os.File
	name string // "" for a file without a name
	have int64  // bytes at the beginning of the file
	sum  hash.Hash
}

// part returns the file for a layer, with the bytes that an earlier pull left of it. The file is
// locked while it is open. When another process has it, the part has a file without a name.
func (c *Cache) part(project string, h v1.Hash, size int64) (*part, error) {
	name := c.path(project, h) + partSuffix
	p := &part{sum: sha256.New()}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	var err error
	if c.maxBytes >= 0 {
		if p.file, err = openPart(name); err != nil {
			return nil, err
		}
	}
	if p.file == nil {
		p.file, err = c.create(filepath.Dir(name))
		return p, err
	}
	p.name = name
	info, err := p.file.Stat()
	if err == nil && info.Size() > 0 && info.Size() <= size {
		p.have, err = io.Copy(p.sum, p.file)
	}
	if err == nil && p.have != info.Size() {
		err = p.reset()
	}
	if err != nil {
		_ = p.file.Close()
		return nil, err
	}
	if p.have > 0 {
		c.log.Info("a pull goes on with a part of a layer", "layer", h.String(), "bytes", p.have,
			"of", size)
	}
	return p, nil
}

// openPart opens and locks a part. The file is nil if another process has it.
func openPart(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, f.Close()
		}
		// It may have been removed, or become the layer, before it was locked.
		own, err := f.Stat()
		there, lerr := os.Lstat(name)
		if err == nil && lerr == nil && os.SameFile(own, there) {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// removePart removes a part that no process has.
func removePart(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.Remove(name) == nil
}

// reset begins the layer anew.
func (p *part) reset() error {
	p.have = 0
	p.sum.Reset()
	return p.file.Truncate(0)
}

// leave closes the file. What has arrived stays for the next pull, unless it is worthless.
func (p *part) leave(worthless bool) error {
	if p.name != "" && (worthless || p.have == 0) {
		_ = os.Remove(p.name)
	}
	return p.file.Close()
}
