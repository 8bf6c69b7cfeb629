package ns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
)

// unpackedDir is the directory of unpacked templates, in the driver's directory.
const unpackedDir = "unpacked"

// unpack unpacks an image into a directory, once, for users who may not mount it. Owners are lost,
// because there is only one id. Device nodes are lost, because such a user can't make them. Setuid
// bits are lost, because they would mean that user.
func (d *Driver) unpack(ctx context.Context, name, key string) (string, error) {
	dir := filepath.Join(d.opts.Root, unpackedDir, key)
	if _, err := os.Lstat(dir); err == nil {
		touch(dir + stampSuffix)
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	files, err := d.opts.Files(ctx, name)
	if err != nil {
		return "", err
	}
	defer files.Close()
	// Unpack beside it, then rename: a directory with the final name is complete.
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	u := unpacker{ctx: ctx, files: files, root: tmp}
	if err = u.all(); err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		_ = overlay.Remove(tmp)
		if _, lerr := os.Lstat(dir); lerr == nil && errors.Is(err, fs.ErrExist) {
			return dir, nil // another process was faster
		}
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	touch(dir + stampSuffix)
	return dir, nil
}

// stampSuffix ends the name of a file beside an unpacked template. The file's time is that of the
// template's last use. unusedFor is how long an unused template is kept.
const (
	stampSuffix = ".used"
	unusedFor   = 14 * 24 * time.Hour
)

// touch renews a stamp. If the stamp can't be written, the template may be removed early, and the
// next sandbox must unpack it again.
func touch(stamp string) {
	_ = os.WriteFile(stamp, nil, 0o600)
	now := time.Now()
	_ = os.Chtimes(stamp, now, now)
}

// sweepUnpacked removes the files of interrupted unpackings, and templates that no sandbox uses and
// that were not used for a long time.
func (d *Driver) sweepUnpacked() {
	used := map[string]bool{}
	for _, in := range d.live.All() {
		used[in.rec.Lower] = true
	}
	entries, _ := os.ReadDir(filepath.Join(d.opts.Root, unpackedDir))
	for _, e := range entries {
		dir := filepath.Join(d.opts.Root, unpackedDir, e.Name())
		if !e.IsDir() || used[dir] {
			continue
		}
		info, err := os.Stat(dir + stampSuffix)
		if err == nil && time.Since(info.ModTime()) < unusedFor {
			continue
		}
		_ = overlay.Remove(dir)
		_ = os.Remove(dir + stampSuffix)
	}
}

// unpacker writes the files of an image below root. The image is a template, which may come from a
// registry. So the unpacker never opens a file through a name that is a link.
type unpacker struct {
	ctx   context.Context
	files image.Files
	root  string
	late  []func() error // sets modes and times of directories, after their content
}

// all writes everything.
func (u *unpacker) all() error {
	if err := u.dir("."); err != nil {
		return err
	}
	for i := len(u.late) - 1; i >= 0; i-- {
		if err := u.late[i](); err != nil {
			return err
		}
	}
	return nil
}

// dir writes the content of an existing directory.
func (u *unpacker) dir(name string) error {
	info, err := u.files.Lstat(name)
	if err != nil {
		return err
	}
	to := filepath.Join(u.root, filepath.FromSlash(name))
	u.late = append(u.late, func() error {
		return errors.Join(os.Chmod(to, info.Mode.Perm()|info.Mode&fs.ModeSticky|0o500), setTime(to, info.Modified))
	})
	names, err := u.files.List(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := u.ctx.Err(); err != nil {
			return context.Cause(u.ctx)
		}
		if err := u.file(path.Join(name, n)); err != nil {
			return err
		}
	}
	return nil
}

// file writes one file. The image's reader returns only names of a single element.
func (u *unpacker) file(name string) error {
	info, err := u.files.Lstat(name)
	if err != nil {
		return err
	}
	to := filepath.Join(u.root, filepath.FromSlash(name))
	switch {
	case info.Mode.IsDir():
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		return u.dir(name)
	case info.Mode&fs.ModeSymlink != 0:
		if err := os.Symlink(info.Target, to); err != nil {
			return err
		}
		return setTime(to, info.Modified)
	case info.Mode&fs.ModeNamedPipe != 0:
		return unix.Mkfifo(to, uint32(info.Mode.Perm()))
	case !info.Mode.IsRegular():
		return nil
	}
	return u.regular(name, to, info)
}

// regular copies the contents of a file.
func (u *unpacker) regular(name, to string, info image.File) error {
	from, err := u.files.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, from)
	if err == nil && n != info.Size {
		err = io.ErrUnexpectedEOF
	}
	// Its owner is root inside, who may read every file. The overlay opens the file as that user.
	if err = errors.Join(err, f.Chmod(info.Mode.Perm()|0o400), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return setTime(to, info.Modified)
}

// setTime sets the time of a file or of a link itself.
func setTime(name string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
