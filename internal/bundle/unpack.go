package bundle

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// Placement says where unpacked files go and whose they are.
type Placement struct {
	// Target is an absolute path. Files go into it if it is a directory or ends with "/". A single
	// file otherwise becomes Target.
	Target string `json:"target"`
	Single bool   `json:"single,omitempty"` // see Packed
	Owner  string `json:"owner,omitempty"`  // "user:group"; "" keeps the stream's
	Mode   string `json:"mode,omitempty"`   // see NewMode; "" keeps the stream's
	// Parent owns the directories that are made above and for Target. "" is root.
	Parent string `json:"parent,omitempty"`
}

// Unpack writes the files of a stream that Pack wrote into the filesystem of this process.
func Unpack(r io.Reader, at Placement) error {
	u := &unpacker{at: at, uid: -1, gid: -1}
	var err error
	if at.Owner != "" {
		if u.uid, u.gid, err = ids(at.Owner); err != nil {
			return err
		}
	}
	into := strings.HasSuffix(at.Target, "/") || !at.Single
	if info, err := os.Stat(at.Target); err == nil && info.IsDir() {
		into = true
	}
	dir := path.Clean(at.Target)
	if !into {
		dir = path.Dir(dir)
	}
	if err := MakeDir(dir, at.Parent); err != nil {
		return err
	}
	tr := tar.NewReader(bufio.NewReaderSize(r, 256<<10))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name := path.Join(path.Clean(at.Target), path.Clean("/"+h.Name))
		if !into {
			name = path.Clean(at.Target)
		}
		if err := u.entry(tr, h, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := len(u.dirs) - 1; i >= 0; i-- { // when nothing more is written into them
		_ = os.Chtimes(u.dirs[i].name, u.dirs[i].at, u.dirs[i].at)
	}
	return nil
}

// unpacker is one run of Unpack.
type unpacker struct {
	at       Placement
	uid, gid int // −1 keeps the stream's
	dirs     []madeDir
}

// madeDir is a directory whose time is set at the end.
type madeDir struct {
	name string
	at   time.Time
}

// entry writes one file.
func (u *unpacker) entry(r io.Reader, h *tar.Header, name string) error {
	uid, gid := h.Uid, h.Gid
	if u.uid >= 0 {
		uid, gid = u.uid, u.gid
	}
	mode, err := NewMode(u.at.Mode, uint32(h.Mode)&0o7777, h.Typeflag == tar.TypeDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		info, err := os.Stat(name)
		if err == nil && info.IsDir() { // its owner and mode stay
			return nil
		}
		_ = os.Remove(name)
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
		u.dirs = append(u.dirs, madeDir{name, h.ModTime})
		return errors.Join(os.Lchown(name, uid, gid), os.Chmod(name, fileMode(mode)))
	}
	if info, err := os.Lstat(name); err == nil {
		if info.IsDir() {
			return errors.New("there is a directory of that name")
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeSymlink {
		return errors.Join(os.Symlink(h.Linkname, name), os.Lchown(name, uid, gid))
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Chown(uid, gid), f.Chmod(fileMode(mode)), f.Close())
	if err == nil {
		err = os.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

// fileMode turns Unix permission bits into a Go mode.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if bits&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if bits&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// MakeDir makes a directory and those above it, unless they are there. New ones belong to owner
// ("user:group"; "" is root).
func MakeDir(dir, owner string) error {
	uid, gid := 0, 0
	if owner != "" {
		var err error
		if uid, gid, err = ids(owner); err != nil {
			return err
		}
	}
	var missing []string
	for d := path.Clean(dir); ; d = path.Dir(d) {
		info, err := os.Stat(d)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory", d)
		}
		if err == nil || d == "/" {
			break
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := errors.Join(os.Chmod(missing[i], 0o755), os.Lchown(missing[i], uid, gid)); err != nil {
			return err
		}
	}
	return nil
}

// ids resolves "user:group" by this filesystem's accounts. Without a group it is the user's own.
func ids(owner string) (uid, gid int, err error) {
	user, group, grouped := strings.Cut(owner, ":")
	uid, gid = 0, 0
	if user != "" {
		line, found := account("/etc/passwd", user)
		switch n, err := strconv.Atoi(user); {
		case found && len(line) > 3:
			uid, _ = strconv.Atoi(line[2])
			gid, _ = strconv.Atoi(line[3])
		case err == nil && n >= 0:
			uid, gid = n, n
		default:
			return 0, 0, &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("there is no user %q", user)}
		}
	}
	if grouped && group != "" {
		line, found := account("/etc/group", group)
		switch n, err := strconv.Atoi(group); {
		case found:
			gid, _ = strconv.Atoi(line[2])
		case err == nil && n >= 0:
			gid = n
		default:
			return 0, 0, &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("there is no group %q", group)}
		}
	}
	return uid, gid, nil
}

// account finds the line of a name or number in a file of accounts.
func account(file, name string) ([]string, bool) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, false
	}
	for l := range strings.Lines(string(raw)) {
		if f := strings.Split(strings.TrimSpace(l), ":"); len(f) > 2 && (f[0] == name || f[2] == name) {
			return f, true
		}
	}
	return nil, false
}

// OS is the filesystem of this process as a [Tree].
type OS struct{}

// Lstat implements Tree.
func (OS) Lstat(name string) (image.File, error) {
	info, err := os.Lstat("/" + name)
	if err != nil {
		return image.File{}, err
	}
	out := image.File{Mode: info.Mode(), Size: info.Size(), Modified: info.ModTime()}
	out.UID, out.GID = ownerOf(info)
	if out.Mode&fs.ModeSymlink != 0 {
		out.Target, err = os.Readlink("/" + name)
	}
	return out, err
}

// List implements Tree.
func (OS) List(name string) ([]string, error) {
	entries, err := os.ReadDir("/" + name)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out, nil
}

// Open implements Tree.
func (OS) Open(name string) (io.ReadCloser, error) { return os.Open("/" + name) }
