//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/ns"
)

// layers makes a root that is not this machine's: layers, or an empty directory.
func (b *builder) layers() error {
	tree, err := b.rootTree()
	if err != nil {
		return err
	}
	links := topLinks(b.Spec.Root)
	slash, err := ns.Open("/")
	if err != nil {
		return err
	}
	defer unix.Close(slash)
	if err := ns.Attach(tree, slash); err != nil {
		return err
	}
	if err := unix.Fchdir(tree); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	_ = unix.Close(tree)
	// The old root then lies over the new one, and is unmounted from there.
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/tmp", "/run"} {
		if err := unix.Mkdir(dir, 0o755); err != nil && err != unix.EEXIST && err != unix.EROFS {
			return &os.PathError{Op: "mkdir", Path: dir, Err: err}
		}
	}
	for name, to := range links {
		if err := unix.Symlink(to, "/"+name); err != nil {
			return &os.PathError{Op: "symlink", Path: "/" + name, Err: err}
		}
	}
	return nil
}

// rootTree makes the new root. It is attached nowhere yet.
func (b *builder) rootTree() (int, error) {
	r := b.Spec.Root
	if len(r.Lower) == 0 {
		return b.tmpfs("0755", 16<<20)
	}
	if r.Upper == "" && len(r.Lower) == 1 {
		tree, err := b.source(r.Lower[0])
		if err != nil {
			return -1, err
		}
		return tree, ns.Attr(tree, ns.ReadOnly, true)
	}
	return overlayTree(r.Lower, r.Upper, r.Work)
}

// topLinks returns the links in this machine's root directory (/bin is often one), for an empty
// root.
func topLinks(r Root) map[string]string {
	links := map[string]string{}
	if len(r.Lower) > 0 {
		return links
	}
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		if to, err := os.Readlink("/" + e.Name()); err == nil && !filepath.IsAbs(to) {
			links[e.Name()] = to
		}
	}
	return links
}

// overlayTree makes an overlay. It passes the layers as descriptors. So a path may be long and
// contain colons, and can't turn into a link.
func overlayTree(lower []string, upper, work string) (int, error) {
	var open []int
	defer func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}()
	layer := func(path string) (string, error) {
		fd, err := ns.Open(path)
		if err != nil {
			return "", linked(path, err)
		}
		open = append(open, fd)
		return "/proc/self/fd/" + strconv.Itoa(fd), nil
	}
	names := make([]string, 0, len(lower)+2)
	for _, path := range append(append([]string(nil), lower...), upper, work) {
		name := ""
		if path != "" {
			var err error
			if name, err = layer(path); err != nil {
				return -1, err
			}
		}
		names = append(names, name)
	}
	options := []ns.Option{{Key: "lowerdir", Value: strings.Join(names[:len(lower)], ":")}}
	if len(options[0].Value) > 255 { // longer than fsconfig takes; newer kernels take one layer at a time
		options = options[:0]
		for _, n := range names[:len(lower)] {
			options = append(options, ns.Option{Key: "lowerdir+", Value: n})
		}
	}
	if upper != "" {
		options = append(options, ns.Option{Key: "upperdir", Value: names[len(lower)]}, ns.Option{Key: "workdir", Value: names[len(lower)+1]})
	}
	options = append(options, ns.Option{Key: "userxattr"})
	return ns.Filesystem("overlay", ns.NoSUID|ns.NoDev, options...)
}

// submount is a mount below the target of an overlay. The overlay does not show it.
type submount struct {
	path string
	tree int
}

// overlay makes the overlay of mount i, and copies the mounts below its lower directory.
func (b *builder) overlay(i int, m Mount) (int, error) {
	lower := m.Target
	for _, earlier := range b.Spec.Mounts[:i] {
		if earlier.Target == m.Target && earlier.Source != "" && earlier.Kind != ReadFile {
			lower = earlier.Source
		}
	}
	tree, err := overlayTree([]string{lower}, m.Source, m.Work)
	if err != nil {
		return -1, err
	}
	return tree, b.copyBelow(i, lower, m.Target)
}

// copyBelow copies the mounts below a directory, read-only: no layer could take writes to them.
func (b *builder) copyBelow(i int, lower, target string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var last string
	for line := range strings.Lines(string(info)) {
		w := strings.Fields(line)
		if len(w) < 5 {
			continue
		}
		path := unescape(w[4])
		if path == lower || !within(path, lower) || (last != "" && within(path, last)) {
			continue
		}
		tree, err := b.source(path)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err == nil {
			err = ns.Attr(tree, ns.ReadOnly, true)
		}
		if err != nil {
			return fmt.Errorf("%s, mounted below: %w", path, err)
		}
		last = path
		b.below[i] = append(b.below[i], submount{target + strings.TrimPrefix(path, lower), tree})
		b.missing = append(b.missing, path+" is another filesystem: it is read-only while changes are kept apart")
	}
	return nil
}

// attachBelow attaches these copies in their old places.
func (b *builder) attachBelow(i int) error {
	for _, s := range b.below[i] {
		fd, err := ns.Open(s.path)
		if err != nil {
			return err
		}
		err = ns.Attach(s.tree, fd)
		_ = unix.Close(fd)
		_ = unix.Close(s.tree)
		if err != nil {
			return err
		}
	}
	return nil
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
