//go:build !linux

package settings

import (
	"io/fs"
	"os"
)

// listDir calls each for every entry of a directory.
func listDir(dir string, _ []byte, each func(name []byte, typ fs.FileMode, ino uint64)) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		typ := e.Type().Type()
		each([]byte(e.Name()), typ, 0)
	}
	return err
}

// entered reports whether files in a directory that can't be listed can still be opened.
func entered(string, error) bool { return false }

// fileOf returns a file's identity. Nothing needs it on this system.
func fileOf(string) (f file, links uint64, ok bool) { return f, 0, false }
