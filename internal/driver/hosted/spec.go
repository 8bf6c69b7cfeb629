package hosted

import (
	"fmt"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// OpCreate is the Op of errors of a creation.
const OpCreate = "create sandbox"

// Bounds are the limits of sandboxes that a driver can start.
type Bounds struct {
	MinMemoryMB int
	MemoryFor   string // the user of that memory: "the guest"
	MinPids     int
	MaxDiskMB   int // 0 is no bound
}

// Check refuses a spec that would otherwise fail half way through Create. Error: Invalid, naming
// the field.
func (b Bounds) Check(s driver.Spec) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: OpCreate, Kind: carrel.Invalid, ID: s.ID, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if _, err := carrel.ParseID(string(s.ID)); err != nil {
		return err
	}
	for _, p := range [...]struct{ field, path string }{{"root.image", s.Root.Image}, {"guest", s.Guest}, {"dir", s.Dir}} {
		if !filepath.IsAbs(p.path) {
			return bad(p.field, "%q is not an absolute path", p.path)
		}
	}
	l := s.Limits
	switch {
	case l.MemoryMB < b.MinMemoryMB:
		return bad("memoryMB", "%d MiB is less than the %d that %s needs", l.MemoryMB, b.MinMemoryMB, b.MemoryFor)
	case l.DiskMB < 1:
		return bad("diskMB", "%d is not positive", l.DiskMB)
	case b.MaxDiskMB > 0 && l.DiskMB > b.MaxDiskMB:
		return bad("diskMB", "%d is more than the %d that a disk can have", l.DiskMB, b.MaxDiskMB)
	case !(l.CPUs > 0): // true also for NaN
		return bad("cpus", "%g is not positive", l.CPUs)
	case l.Pids < b.MinPids:
		return bad("pids", "%d is less than %d", l.Pids, b.MinPids)
	}
	return nil
}
