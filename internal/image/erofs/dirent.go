package erofs

import (
	"encoding/binary"
	"io/fs"
	"slices"
)

// entries returns the names of a directory as they are stored: with "." and "..", sorted by byte,
// because readers use binary search.
func entries(n *Node) []string {
	names := append(n.Names(), ".", "..")
	slices.Sort(names)
	return names
}

// packDirents returns how many of names, from the first on, fit into one block, and the bytes that
// they need there.
func packDirents(names []string) (count, size int) {
	for _, name := range names {
		need := direntSize + len(name)
		if size+need > BlockSize {
			break
		}
		size += need
		count++
	}
	return count, size
}

// direntsSize is the size of a directory: full blocks and a last, shorter one.
func direntsSize(n *Node) int64 {
	names, total := entries(n), int64(0)
	for len(names) > 0 {
		count, size := packDirents(names)
		names = names[count:]
		if len(names) > 0 {
			size = BlockSize
		}
		total += int64(size)
	}
	return total
}

// dirents encodes a directory.
func dirents(n, parent *Node) []byte {
	names := entries(n)
	out := make([]byte, 0, direntsSize(n))
	le := binary.LittleEndian
	for len(names) > 0 {
		count, size := packDirents(names)
		block := make([]byte, size, BlockSize)
		nameAt := count * direntSize
		for i, name := range names[:count] {
			target := n
			switch name {
			case ".":
			case "..":
				target = parent
			default:
				target = n.children[name]
			}
			d := block[i*direntSize:]
			le.PutUint64(d[0:], target.nid)
			le.PutUint16(d[8:], uint16(nameAt))
			d[10] = fileType(target.Mode)
			nameAt += copy(block[nameAt:], name)
		}
		names = names[count:]
		if len(names) > 0 {
			block = block[:BlockSize]
		}
		out = append(out, block...)
	}
	return out
}

// fileType is the type byte of a directory entry, Linux's FT_*.
func fileType(m fs.FileMode) byte {
	switch m.Type() {
	case 0:
		return 1
	case fs.ModeDir:
		return 2
	case fs.ModeDevice | fs.ModeCharDevice:
		return 3
	case fs.ModeDevice:
		return 4
	case fs.ModeNamedPipe:
		return 5
	case fs.ModeSocket:
		return 6
	case fs.ModeSymlink:
		return 7
	}
	return 0
}

// unixMode turns a Go mode into st_mode.
func unixMode(m fs.FileMode) uint16 {
	out := uint16(m.Perm())
	switch m.Type() {
	case 0:
		out |= 0o100000
	case fs.ModeDir:
		out |= 0o040000
	case fs.ModeSymlink:
		out |= 0o120000
	case fs.ModeNamedPipe:
		out |= 0o010000
	case fs.ModeSocket:
		out |= 0o140000
	case fs.ModeDevice | fs.ModeCharDevice:
		out |= 0o020000
	case fs.ModeDevice:
		out |= 0o060000
	}
	if m&fs.ModeSetuid != 0 {
		out |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		out |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		out |= 0o1000
	}
	return out
}
