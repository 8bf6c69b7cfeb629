package assembly

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel/internal/guest/guestbin"
)

// guestCheck keeps the guest's image whole. All sandboxes run their first process from that file.
// Before a sandbox starts, guestCheck compares the file's metadata with the file that was last
// known to be whole. Another file is compared by its checksum, and written again if it is damaged:
// this program carries it.
type guestCheck struct {
	path string // "" if there is no image

	mu   sync.Mutex
	good os.FileInfo // nil before the first check
}

// quick is the check before a start.
func (g *guestCheck) quick() error {
	if g == nil || g.path == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := os.Stat(g.path)
	if err == nil && g.good != nil && os.SameFile(now, g.good) && now.Size() == g.good.Size() &&
		now.ModTime().Equal(g.good.ModTime()) {
		return nil
	}
	return g.extract()
}

// whole reads the file in any case.
func (g *guestCheck) whole() error {
	if g == nil || g.path == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.extract()
}

// extract verifies the file, or writes it again. The caller holds mu.
func (g *guestCheck) extract() error {
	if _, err := guestbin.Extract(filepath.Dir(g.path)); err != nil {
		return err
	}
	var err error
	g.good, err = os.Stat(g.path)
	return err
}
