package overlay

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// whiteout reports whether a node of an upper layer stands for "removed". That is a character
// device 0/0, or an empty file with an attribute if devices can't be made.
func (t *tree) whiteout(p string, n *node) (bool, error) {
	if n.typ() == unix.S_IFCHR {
		return n.Rdev == 0, nil
	}
	if !n.isRegular() || n.Size != 0 {
		return false, nil
	}
	v, err := t.attribute(p, "whiteout", false)
	return v != "", err
}

// opaque reports whether a directory of an upper layer hides the files below it. It refuses a
// directory that stands for one with another name: our mounts don't make such layers.
func (t *tree) opaque(p string) (bool, error) {
	fd, err := t.open(p, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if v, err := attributeFD(fd, "redirect"); err != nil || v != "" {
		return false, orForeign(path.Join(t.name, p), "redirect", err)
	}
	v, err := attributeFD(fd, "opaque")
	return v == "y", err
}

// whole refuses a file whose content is not in the layer.
func whole(f *os.File) error {
	v, err := attributeFD(int(f.Fd()), "metacopy")
	if err == nil && v == "" {
		return nil
	}
	return orForeign(f.Name(), "metacopy", err)
}

// orForeign returns err, if there is one. Otherwise it returns the error for a layer with a feature
// that Carrel's mounts switch off.
func orForeign(name, feature string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: the layer was made with overlayfs's %s, which is not read here", name, feature)
}

// Whiteout marks name, a path relative to the upper layer, as removed.
func Whiteout(upper, name string) error {
	t, err := openTree(upper, true)
	if err != nil {
		return err
	}
	defer t.Close()
	dir, err := t.dir(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(name)
	err = unix.Mknodat(dir, base, unix.S_IFCHR, 0)
	if err == nil || err == unix.EEXIST {
		return err
	}
	// A filter or an old kernel forbids mknod.
	fd, err := unix.Openat(dir, base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsetxattr(fd, "user.overlay.whiteout", []byte("y"), 0)
}

// Opaque marks a directory of an upper layer as opaque: it hides everything below it.
func Opaque(upper, name string) error {
	t, err := openTree(upper, true)
	if err != nil {
		return err
	}
	defer t.Close()
	fd, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsetxattr(fd, "user.overlay.opaque", []byte("y"), 0)
}
