package oshost

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// attrPrefix is the prefix of the attributes with uploads' metadata. Attributes in the name space
// user.* need no privilege; e2b separates them from other tools'.
const attrPrefix = "user.e2b."

// Attrs reads the user.e2b.* attributes of a file. A file system without
// attributes has none.
func (*System) Attrs(name string) (map[string]string, error) {
	names, err := listAttrs(name)
	if err != nil {
		if errors.Is(err, unix.ENOTSUP) {
			return nil, nil
		}
		return nil, err
	}
	var attrs map[string]string
	for _, full := range names {
		value, err := readAttr(name, full)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if attrs == nil {
			attrs = make(map[string]string)
		}
		attrs[strings.TrimPrefix(full, attrPrefix)] = value
	}
	return attrs, nil
}

// SetAttrs replaces the user.e2b.* attributes of a file by attrs. On a file system without
// attributes, setting some returns syscall.ENOTSUP, and setting none succeeds.
func (*System) SetAttrs(name string, attrs map[string]string) error {
	old, err := listAttrs(name)
	if errors.Is(err, unix.ENOTSUP) && len(attrs) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for _, full := range old {
		if _, keep := attrs[strings.TrimPrefix(full, attrPrefix)]; keep {
			continue
		}
		if err := unix.Removexattr(name, full); err != nil && !errors.Is(err, unix.ENODATA) {
			return attrError("removexattr", name, err)
		}
	}
	for key, value := range attrs {
		if err := unix.Setxattr(name, attrPrefix+key, []byte(value), 0); err != nil {
			return attrError("setxattr", name, err)
		}
	}
	return nil
}

// listAttrs returns the full names of a file's user.e2b.* attributes.
func listAttrs(name string) ([]string, error) {
	list, err := grown(func(buf []byte) (int, error) { return unix.Listxattr(name, buf) })
	if err != nil {
		return nil, attrError("listxattr", name, err)
	}
	var names []string
	for full := range strings.SplitSeq(string(list), "\x00") {
		if strings.HasPrefix(full, attrPrefix) {
			names = append(names, full)
		}
	}
	return names, nil
}

// readAttr returns one attribute's value.
func readAttr(name, full string) (string, error) {
	value, err := grown(func(buf []byte) (int, error) { return unix.Getxattr(name, full, buf) })
	if err != nil {
		return "", attrError("getxattr", name, err)
	}
	return string(value), nil
}

// grown calls read with a buffer that is large enough. Most lists and values are small. A large one
// may grow between asking for its size and reading it.
func grown(read func([]byte) (int, error)) ([]byte, error) {
	for size := 256; ; {
		buf := make([]byte, size)
		n, err := read(buf)
		if err == nil {
			return buf[:n], nil
		}
		if !errors.Is(err, unix.ERANGE) || size > 1<<20 {
			return nil, err
		}
		size *= 8
	}
}

// attrError names the call and the file. Kernels have several errors for a file that can have no
// attributes; all become ENOTSUP.
func attrError(op, name string, err error) error {
	if errors.Is(err, unix.ENOSYS) {
		err = unix.ENOTSUP
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
