// Package atomicfile writes files that exist completely or not at all, also after a crash or power
// loss.
package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Write writes data to name. It writes a temporary file beside it, syncs that file, renames it to
// name, and syncs the directory.
func Write(name string, data []byte, perm fs.FileMode) (err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
