package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Remove removes a directory with everything that a program left in it, also directories without
// permissions. It follows no link.
func Remove(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// os.Root ensures both: only this user's directories are made writable, and only inside the
	// tree.
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return err
	}
	_ = os.Chmod(dir, 0o700)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	openUp(root, ".")
	return os.RemoveAll(dir)
}

// openUp makes every directory writable for its owner. If that fails, RemoveAll fails later with a
// better error.
func openUp(root *os.Root, dir string) {
	d, err := root.Open(dir)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		if e.IsDir() {
			name := filepath.Join(dir, e.Name())
			_ = root.Chmod(name, 0o700)
			openUp(root, name)
		}
	}
}
