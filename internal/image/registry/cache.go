package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// Cache keeps the compressed layers of pulled images, by project and digest. It removes the ones
// that were not used for the longest time. Its methods are safe for concurrent use, also by several
// processes on one directory.
type Cache struct {
	dir      string
	maxBytes int64
	log      *slog.Logger

	mu   sync.Mutex
	busy map[string]chan struct{} // downloads under way, by path
}

// DefaultCacheBytes bounds a cache that has no other bound.
const DefaultCacheBytes = 4 << 30

// NewCache returns a cache in a directory, which is made at the first use. maxBytes 0 is
// DefaultCacheBytes; a negative one keeps nothing.
func NewCache(dir string, maxBytes int64, log *slog.Logger) *Cache {
	return &Cache{dir: dir, maxBytes: cmp.Or(maxBytes, DefaultCacheBytes), log: log,
		busy: map[string]chan struct{}{}}
}

// path is the place of a layer. The project's name may hold characters that a directory's may not.
func (c *Cache) path(project string, h v1.Hash) string {
	sum := sha256.Sum256([]byte(project))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:8]), h.Hex)
}

// claim makes the caller the only one of this process who downloads a layer for a project. It waits
// until the one before has ended.
func (c *Cache) claim(project string, h v1.Hash, done <-chan struct{}) (free func(), ok bool) {
	p := c.path(project, h)
	for {
		c.mu.Lock()
		other := c.busy[p]
		if other == nil {
			mine := make(chan struct{})
			c.busy[p] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.busy, p)
				c.mu.Unlock()
				close(mine)
			}, true
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-done:
			return nil, false
		}
	}
}

// open returns a kept layer, or nil. It checks the whole content, because a damaged layer must not
// look like a registry's lie.
func (c *Cache) open(project string, h v1.Hash, size int64) *os.File {
	name := c.path(project, h)
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err == nil && n == size && hex.EncodeToString(sum.Sum(nil)) == h.Hex {
		now := time.Now()
		_ = os.Chtimes(name, now, now) // the time of the last use
		return f
	}
	c.log.Warn("a kept layer is damaged and is removed", "layer", h.String(), "err", err)
	_ = f.Close()
	_ = os.Remove(name)
	return nil
}

// create returns a file without a name for a layer. It is gone when it is closed.
func (c *Cache) create(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "layer")), nil
	}
	// Some file systems have no files without a name.
	f, err := os.CreateTemp(dir, "part-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// keep gives a whole, checked layer its name, and removes the oldest layers that are too many. A
// failure only means that the layer is downloaded again some day.
func (c *Cache) keep(project string, h v1.Hash, p *part) {
	if p.name == "" {
		return // another process keeps it, or nothing is kept
	}
	if err := os.Rename(p.name, c.path(project, h)); err != nil {
		c.log.Debug("a layer is not kept", "layer", h.String(), "err", err)
		return
	}
	p.name = ""
	c.trim()
}

// trim removes the layers that were not used for the longest time, and parts that nobody went on
// with for partAge.
func (c *Cache) trim() {
	type kept struct {
		path string
		size int64
		used time.Time
	}
	var all []kept
	total := int64(0)
	_ = filepath.WalkDir(c.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			if filepath.Ext(p) == partSuffix && time.Since(info.ModTime()) > partAge && removePart(p) {
				return nil
			}
			all = append(all, kept{p, info.Size(), info.ModTime()})
			total += info.Size()
		}
		return nil
	})
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, k := range all {
		if total <= c.maxBytes {
			return
		}
		remove := func(p string) bool { return os.Remove(p) == nil }
		if filepath.Ext(k.path) == partSuffix {
			remove = removePart
		}
		if remove(k.path) {
			total -= k.size
		}
	}
}
