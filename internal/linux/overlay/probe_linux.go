package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Probe returns nil if this process can mount an overlay over lower with the upper layer in dir.
// Otherwise it returns an Unsupported error with the reason. Some filesystems can't be an upper
// layer, for example another overlay. In a user namespace a directory with a mount below it can't
// be overlaid. A process that may mount tries it, without attaching the mount anywhere. For another
// process, Probe tests the features that an upper layer needs.
func Probe(lower, dir string) error {
	why := probe(lower, dir)
	if why == nil {
		return nil
	}
	var e *carrel.Error
	if errors.As(why, &e) {
		return why
	}
	return &carrel.Error{Op: "overlay", Kind: carrel.Unsupported, Err: why,
		Hint: "keep the private layer in a directory on a local filesystem such as ext4, xfs, btrfs or tmpfs, outside of the directory that is overlaid"}
}

// probe is Probe without a hint.
func probe(lower, dir string) error {
	low, err := filepath.EvalSymlinks(lower)
	if err != nil {
		return err
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if at == low || strings.HasPrefix(at, strings.TrimSuffix(low, "/")+"/") {
		return fmt.Errorf("%s lies in %s, which it is to be a layer over", dir, lower)
	}
	if st, err := os.Stat(low); err != nil || !st.IsDir() {
		return fmt.Errorf("%s is no directory", lower)
	}
	if m := mountBelow(low); m != "" {
		return fmt.Errorf("something is mounted at %s, below %s: a user namespace may not look under it, so it can't overlay what is around it", m, lower)
	}
	if err := filesystem(at); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(at, ".carrel-probe-")
	if err != nil {
		return fmt.Errorf("nothing can be written to %s: %w", dir, errors.Unwrap(err))
	}
	defer func() { _ = Remove(tmp) }()
	if err := features(tmp); err != nil {
		return fmt.Errorf("the filesystem of %s can't hold changes: %w", dir, err)
	}
	return tryMount(low, tmp)
}

// mountBelow returns a mount point below a directory; "" if there is none.
func mountBelow(dir string) string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := unescape.Replace(fields[4])
		if strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/") && at != "/" {
			return at
		}
	}
	return ""
}

// unescape undoes mountinfo's escapes in names.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// filesystem refuses, by name, kinds of filesystems that can't be an upper layer.
func filesystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	for kind, name := range map[int64]string{
		unix.OVERLAYFS_SUPER_MAGIC: "an overlay itself", unix.NFS_SUPER_MAGIC: "NFS", unix.FUSE_SUPER_MAGIC: "FUSE",
		unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB", unix.MSDOS_SUPER_MAGIC: "FAT",
		unix.V9FS_MAGIC: "9p", unix.AFS_SUPER_MAGIC: "AFS", unix.CEPH_SUPER_MAGIC: "Ceph", unix.ECRYPTFS_SUPER_MAGIC: "eCryptfs",
	} {
		if int64(st.Type) == kind {
			return fmt.Errorf("%s lies on %s, which can't hold a layer", dir, name)
		}
	}
	return nil
}

// features tries the operations of overlayfs in an upper layer.
func features(tmp string) error {
	if err := unix.Setxattr(tmp, "user.overlay.probe", []byte("y"), 0); err != nil {
		return fmt.Errorf("no extended attributes of users (a tmpfs has them from Linux 6.6 on): %w", err)
	}
	if err := unix.Mknod(filepath.Join(tmp, "w"), unix.S_IFCHR, 0); err != nil {
		return fmt.Errorf("no whiteouts can be made: %w", err)
	}
	return nil
}

// tryMount makes an overlay that is attached nowhere and ends with its descriptor. If the kernel
// refuses, the reason can be read from the descriptor.
func tryMount(lower, tmp string) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	switch err {
	case nil:
	case unix.EPERM, unix.ENOSYS: // no permission, or an old kernel: use features
		return nil
	case unix.ENODEV:
		return fmt.Errorf("this kernel has no overlayfs: %w", err)
	default:
		return err
	}
	defer unix.Close(fd)
	up, work := filepath.Join(tmp, "u"), filepath.Join(tmp, "k")
	for _, d := range []string{up, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	for _, kv := range [][2]string{{"lowerdir", quote.Replace(lower)}, {"upperdir", quote.Replace(up)}, {"workdir", quote.Replace(work)}} {
		if err := unix.FsconfigSetString(fd, kv[0], kv[1]); err != nil {
			return fmt.Errorf("%s: %w%s", kv[0], err, said(fd))
		}
	}
	if err := unix.FsconfigSetFlag(fd, "userxattr"); err != nil {
		return fmt.Errorf("userxattr: %w%s", err, said(fd))
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("the kernel refuses the mount: %w%s", err, said(fd))
	}
	return nil
}

// said reads the kernel's message about an attempt.
func said(fd int) string {
	buf := make([]byte, 1024)
	n, err := unix.Read(fd, buf)
	if err != nil || n <= 0 {
		return ""
	}
	return " (" + strings.TrimSpace(strings.TrimLeft(string(buf[:n]), "ewi ")) + ")"
}
