//go:build unix

package cli

import (
	"io/fs"
	"syscall"
)

// hardLinks remembers the first name of each file that has several.
type hardLinks map[[2]uint64]string

// first returns the name under which the file was met before. It is "" for a file that is met for
// the first time.
func (h hardLinks) first(info fs.FileInfo, name string) string {
	inode, several := severalNames(info)
	if !several {
		return ""
	}
	if met, ok := h[inode]; ok {
		return met
	}
	h[inode] = name
	return ""
}

// forget takes back that the file was met: it was not copied after all.
func (h hardLinks) forget(info fs.FileInfo) {
	inode, _ := severalNames(info)
	delete(h, inode)
}

// has reports whether the file has several names.
func (hardLinks) has(info fs.FileInfo) bool {
	_, several := severalNames(info)
	return several
}

// severalNames returns what tells a file from all others, and whether it has more than one name.
func severalNames(info fs.FileInfo) (inode [2]uint64, several bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return inode, false
	}
	return [2]uint64{uint64(st.Dev), st.Ino}, st.Nlink > 1
}
