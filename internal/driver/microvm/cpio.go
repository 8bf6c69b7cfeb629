//go:build linux

package microvm

import (
	"bytes"
	"fmt"
)

// This file writes an initrd: a cpio archive in the form "newc", without compression. The format:
// https://docs.kernel.org/driver-api/early-userspace/buffer-format.html

// Modes of entries.
const (
	cpioDir  = 0o040755
	cpioFile = 0o100755
)

// archive is an archive that is being written.
type archive struct {
	buf    bytes.Buffer
	inodes int
}

// add appends an entry. Its directory must have been added before.
func (a *archive) add(name string, mode int, data []byte) {
	a.inodes++
	links := 1
	if mode == cpioDir {
		links = 2
	}
	a.buf.WriteString("070701")
	for _, field := range []int{a.inodes, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(&a.buf, "%08x", field)
	}
	a.buf.WriteString(name + "\x00")
	a.pad()
	a.buf.Write(data)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

// end returns the whole archive.
func (a *archive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}
