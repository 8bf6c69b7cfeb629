//go:build unix

package cli

import (
	"io/fs"
	"syscall"
)

// hardLinks records the first name of each file with several names.
type hardLinks map[[2]uint64]string

// first returns the file's name from an earlier call, "" if there was none.
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

// forget removes a file that was not copied after all.
func (h hardLinks) forget(info fs.FileInfo) {
	inode, _ := severalNames(info)
	delete(h, inode)
}

// has reports whether the file has several names.
func (hardLinks) has(info fs.FileInfo) bool {
	_, several := severalNames(info)
	return several
}

// severalNames returns the identity of a file, and whether it has more than one name.
func severalNames(info fs.FileInfo) (inode [2]uint64, several bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return inode, false
	}
	return [2]uint64{uint64(st.Dev), st.Ino}, st.Nlink > 1
}
