//go:build linux

package guard

import "golang.org/x/sys/unix"

// kind is the effect of a call on a name.
type kind uint8

const (
	makes   kind = iota // a new file, directory, link or device
	links               // a new symbolic link, hard link or device; never a directory
	removes             // a name
	changes             // what is there: its length, mode, owner, attributes
	opens               // for writing
)

// shape says which arguments of a call hold its name, by number. A dir of -1 is the working
// directory.
type shape struct {
	kind      kind
	dir, path int
	quiet     bool // a refusal is of no interest: attributes
}

// shapeOf returns the shape of a call that changes one name.
func shapeOf(name string) (shape, bool) {
	switch name {
	case "mkdir":
		return shape{kind: makes, dir: -1, path: 0}, true
	case "mkdirat":
		return shape{kind: makes, dir: 0, path: 1}, true
	case "mknod":
		return shape{kind: links, dir: -1, path: 0}, true
	case "mknodat":
		return shape{kind: links, dir: 0, path: 1}, true
	case "symlink", "link":
		return shape{kind: links, dir: -1, path: 1}, true
	case "symlinkat":
		return shape{kind: links, dir: 1, path: 2}, true
	case "linkat":
		return shape{kind: links, dir: 2, path: 3}, true
	case "unlinkat":
		return shape{kind: removes, dir: 0, path: 1}, true
	case "truncate", "chmod", "chown", "lchown":
		return shape{kind: changes, dir: -1, path: 0}, true
	case "fchmodat", "fchmodat2", "fchownat":
		return shape{kind: changes, dir: 0, path: 1}, true
	case "file_setattr":
		return shape{kind: changes, dir: 0, path: 1, quiet: true}, true
	}
	return shape{}, false
}

// openShape returns the arguments that hold an open's name, and its flags.
func openShape(name string, args [6]uint64) (dir, path int, flags int) {
	switch name {
	case "creat":
		return -1, 0, unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC
	case "open":
		return -1, 0, int(int32(args[1]))
	}
	return 0, 1, int(int32(args[2]))
}

// renameShape returns the arguments that hold a rename's names, and its flags.
func renameShape(name string, args [6]uint64) (oldDir, oldPath, newDir, newPath int, flags uint32) {
	switch name {
	case "rename":
		return -1, 0, -1, 1, 0
	case "renameat":
		return 0, 1, 2, 3, 0
	}
	return 0, 1, 2, 3, uint32(args[4])
}
