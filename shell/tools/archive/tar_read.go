package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// selection has the members that the command line names.
type selection struct {
	t     *tarRun
	names []string
	found []bool
}

func newSelection(t *tarRun) *selection {
	s := &selection{t: t}
	for _, o := range t.operands {
		s.names = append(s.names, strings.TrimRight(o.name, "/"))
	}
	s.found = make([]bool, len(s.names))
	return s
}

// wants reports whether a member is selected.
func (s *selection) wants(name string) bool {
	if s.t.excluded(name) {
		return false
	}
	if len(s.names) == 0 {
		return true
	}
	name = strings.TrimRight(name, "/")
	ok := false
	for i, want := range s.names {
		hit := want == name || strings.HasPrefix(name, want+"/")
		if s.t.noRecurse {
			hit = want == name
		}
		if !hit && s.t.wildcards {
			if hit = wildMatch(want, name); !hit {
				for j := range len(name) {
					if name[j] == '/' && wildMatch(want, name[:j]) {
						hit = true
					}
				}
			}
		}
		if hit {
			s.found[i], ok = true, true
		}
	}
	return ok
}

// missing writes a message about each name that was not in the archive.
func (s *selection) missing() {
	for i, n := range s.names {
		if !s.found[i] && n != "\x00" {
			s.t.fail("%s: Not found in archive", quoteName(s.t.operands[i].name))
		}
	}
}

// read lists, extracts or compares.
func (t *tarRun) read() int {
	var raw io.Reader = t.In
	if t.file != "-" {
		f, err := t.Open(t.file, vfs.ReadOnly, 0)
		if err != nil {
			return t.fatal("%s: Cannot open: %s", t.file, tool.ErrText(err))
		}
		defer f.Close()
		raw = f
	}
	br := bufio.NewReaderSize(raw, 64<<10)
	codec := sniff(br)
	if t.codec != "" && codec != t.codec {
		if _, err := br.Peek(1); err == nil || t.codec != "" {
			names := map[string]string{"gzip": "\ngzip: stdin: not in gzip format", "bzip2": "bzip2: (stdin) is not a bzip2 file.", "xz": "xz: (stdin): File format not recognized", "zstd": "zstd: /*stdin*\\: unsupported format "}
			if text := names[t.codec]; text != "" {
				fmt.Fprintln(t.Err, text)
			}
			t.Errorf(2, "Child returned status 1")
			return t.fatal("Error is not recoverable: exiting now")
		}
	}
	if codec == "lzma" && t.codec != "lzma" && !strings.HasSuffix(t.file, ".lzma") && !strings.HasSuffix(t.file, ".tlz") {
		codec = ""
	}
	in, err := decoder(t.Call, codec, br)
	if err != nil {
		t.Errorf(2, "%v", err)
		return t.fatal("Child returned status 1")
	}
	t.dir = strings.TrimSuffix(t.dir, "/")
	if t.oneTop && t.dir == "" {
		t.dir = strings.SplitN(t.file[strings.LastIndexByte(t.file, '/')+1:], ".", 2)[0]
		_ = t.FS().MkdirAll(t.Abs(t.dir), 0o777&^t.Umask()) // what is in it fails otherwise
	}
	if t.dir != "" && t.op == 'x' {
		if i, err := t.FS().Stat(t.Abs(t.dir)); err != nil || !i.Mode.IsDir() {
			if err == nil {
				err = syscall.ENOTDIR
			}
			return t.fatal("%s: Cannot open: %s", t.dir, tool.ErrText(err))
		}
	}
	u := &unpacker{tarRun: t, s: newSelection(t)}
	count := &position{r: in}
	code := u.members(tar.NewReader(count), count)
	u.finish()
	if code == 0 {
		u.s.missing()
	}
	return code
}

// late is a directory whose attributes are set at the end. Set earlier, they could prevent the
// extraction of its files.
type late struct {
	path string
	h    *tar.Header
}

// unpacker extracts members.
type unpacker struct {
	*tarRun
	s    *selection
	dirs []late
	seen bool
}

// members handles all members of the archive.
func (u *unpacker) members(tr *tar.Reader, in *position) int {
	for {
		if !u.Step(8) {
			return 2
		}
		h, err := tr.Next()
		if err == io.EOF && in.n == 0 {
			u.Errorf(2, "This does not look like a tar archive")
			u.status = 2
			return 0
		}
		if err == io.EOF && in.n%512 != 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return 0
		}
		if err != nil {
			if u.Stopped(err) {
				return 2
			}
			_ = u.out.Flush()
			switch {
			case errors.Is(err, tar.ErrHeader) && !u.seen:
				u.Errorf(2, "This does not look like a tar archive")
				u.status = 2
				return 0
			case errors.Is(err, io.ErrUnexpectedEOF):
				return u.fatal("Unexpected EOF in archive")
			case errors.Is(err, tar.ErrHeader):
				u.fail("Skipping to next header")
				return 0
			}
			return u.fatal("%v", err)
		}
		u.seen = true
		if h.Typeflag == tar.TypeXGlobalHeader || !u.s.wants(h.Name) {
			continue
		}
		if err := u.one(h, tr); err != nil {
			if u.Stopped(err) {
				return 2
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				_ = u.out.Flush()
				return u.fatal("Unexpected EOF in archive")
			}
			return u.fatal("%v", err)
		}
	}
}

// one lists, extracts or compares one member.
func (u *unpacker) one(h *tar.Header, tr *tar.Reader) error {
	if u.op == 't' {
		u.say(h, h.Name, u.verbose > 0)
		return nil
	}
	if u.toStdout {
		if u.verbose > 0 {
			u.say(h, h.Name, u.verbose > 1)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
			return nil
		}
		if err := u.out.Flush(); err != nil {
			return err
		}
		_, err := copyAll(u.Call, u.Out, tr)
		return err
	}
	name, ok := u.renamed(h.Name, 0)
	if !ok {
		return nil
	}
	if u.verbose > 0 {
		u.say(h, h.Name, u.verbose > 1)
	}
	if !u.absolute && hasDots(name) {
		u.fail("%s: Member name contains '..'", quoteName(h.Name))
		return nil
	}
	name = u.stripped(name, "member names")
	path := join(u.dir, name)
	if u.op == 'd' {
		return u.compare(h, path, tr)
	}
	return u.extract(h, path, tr)
}

func hasDots(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// mode returns the mode for a member's file.
func (u *unpacker) mode(h *tar.Header) fs.FileMode {
	m := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if (u.UID() == 0 || u.keepPerm) && !u.noPerm {
		return m
	}
	return m.Perm() &^ u.Umask()
}

// extract makes one member's file.
func (u *unpacker) extract(h *tar.Header, path string, in io.Reader) error {
	full := u.Abs(path)
	old, err := u.FS().Lstat(strings.TrimRight(full, "/"))
	exists := err == nil
	if exists && !old.Mode.IsDir() {
		switch {
		case u.keepSilent:
			return nil
		case u.keep && h.Typeflag != tar.TypeDir:
			u.fail("%s: Cannot open: File exists", quoteName(h.Name))
			return nil
		case u.keepNewer && !h.ModTime.After(old.Modified):
			u.Errorf(0, "Current %s is newer or same age", quoteLike(h.Name))
			return nil
		}
	}
	if h.Typeflag == tar.TypeDir || strings.HasSuffix(h.Name, "/") && h.Typeflag == tar.TypeReg {
		return u.directory(h, strings.TrimRight(path, "/"), exists, old)
	}
	if exists {
		if old.Mode.IsDir() {
			if err := u.FS().Remove(full); err != nil {
				u.fail("%s: Cannot open: File exists", quoteName(h.Name))
				return nil
			}
		} else if !u.overwrite || old.Mode&fs.ModeSymlink != 0 || h.Typeflag != tar.TypeReg {
			if err := u.FS().Remove(full); err != nil {
				u.fail("%s: Cannot unlink: %s", quoteName(h.Name), tool.ErrText(err))
				return nil
			}
		}
	}
	err = u.make(h, path, full, in)
	if errors.Is(err, syscall.ENOENT) && u.parents(path) {
		err = u.make(h, path, full, in)
	}
	var w writeError
	switch {
	case err == nil:
	case u.Stopped(err):
		return err
	case errors.As(err, &w):
		return fmt.Errorf("%s: Cannot write: %s", h.Name, tool.ErrText(w.error))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return err
	default:
		what := map[byte]string{tar.TypeSymlink: "Cannot create symlink to " + quoteLike(h.Linkname), tar.TypeLink: "Cannot hard link to " + quoteLike(h.Linkname), tar.TypeFifo: "Cannot mkfifo", tar.TypeChar: "Cannot mknod", tar.TypeBlock: "Cannot mknod"}[h.Typeflag]
		if what == "" {
			what = "Cannot open"
		}
		u.fail("%s: %s: %s", quoteName(h.Name), what, tool.ErrText(err))
	}
	return nil
}

func quoteLike(s string) string { return "‘" + quoteName(s) + "’" }

// parents makes the missing directories of a path.
func (u *unpacker) parents(path string) bool {
	at := strings.LastIndexByte(path, '/')
	if at <= 0 {
		return false
	}
	return u.FS().MkdirAll(u.Abs(path[:at]), 0o777&^u.Umask()) == nil
}

// directory makes a directory. Its attributes are set at the end.
func (u *unpacker) directory(h *tar.Header, path string, exists bool, old vfs.Info) error {
	full := u.Abs(path)
	if path == "" {
		return nil
	}
	if exists && !old.Mode.IsDir() {
		if i, err := u.FS().Stat(full); err == nil && i.Mode.IsDir() && old.Mode&fs.ModeSymlink != 0 {
			if err := u.FS().Remove(full); err != nil {
				u.fail("%s: Cannot unlink: %s", quoteName(h.Name), tool.ErrText(err))
				return nil
			}
		} else if err := u.FS().Remove(full); err != nil {
			u.fail("%s: Cannot mkdir: File exists", quoteName(h.Name))
			return nil
		}
		exists = false
	}
	if !exists {
		err := u.FS().Mkdir(full, 0o700|u.mode(h).Perm())
		if errors.Is(err, syscall.ENOENT) && u.parents(path) {
			err = u.FS().Mkdir(full, 0o700|u.mode(h).Perm())
		}
		if err != nil {
			u.fail("%s: Cannot mkdir: %s", quoteName(h.Name), tool.ErrText(err))
			return nil
		}
	}
	if err := u.Pay(int64(len(path) + 256)); err != nil {
		return err
	}
	u.dirs = append(u.dirs, late{path, h})
	return nil
}

// make makes a file that is not a directory.
func (u *unpacker) make(h *tar.Header, path, full string, in io.Reader) error {
	switch h.Typeflag {
	case tar.TypeSymlink:
		target := h.Linkname
		if s, ok := u.renamed(target, tar.TypeSymlink); ok {
			target = s
		}
		if err := u.FS().Symlink(target, full); err != nil {
			return err
		}
		if !u.noTime {
			_ = u.FS().SetTimes(full, vfs.Times{Modified: h.ModTime, NoFollow: true}) // its own
		}
		return nil
	case tar.TypeLink:
		target, _ := u.renamed(h.Linkname, tar.TypeLink)
		if !u.absolute && hasDots(target) {
			return syscall.EPERM
		}
		return u.FS().Link(u.Abs(join(u.dir, u.stripped(target, "hard link targets"))), full)
	case tar.TypeFifo:
		return u.FS().Mkfifo(full, u.mode(h))
	case tar.TypeChar, tar.TypeBlock:
		return syscall.EPERM
	}
	flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	if !u.overwrite {
		flags |= vfs.Exclusive
	}
	out, err := u.FS().OpenFile(full, flags, u.mode(h).Perm()&^0o077)
	if err != nil {
		return err
	}
	_, err = copyAll(u.Call, out, in)
	_ = out.Close() // written
	if err != nil {
		return err
	}
	u.attributes(full, h)
	return nil
}

// attributes sets owner, mode and time as far as the user may.
func (u *unpacker) attributes(full string, h *tar.Header) {
	if u.UID() == 0 && !u.noOwner || u.sameOwner {
		uid, gid := uint32(h.Uid), uint32(h.Gid)
		if a, ok := u.Machine().User(h.Uname); ok && !u.numeric && h.Uname != "" {
			uid = a.UID
		}
		if i, err := u.FS().Stat(full); err == nil && (i.UID != uid || i.GID != gid) {
			_ = u.FS().Chown(full, uid, gid) // as far as it is allowed
		}
	}
	_ = u.FS().Chmod(full, u.mode(h)) // its own
	if !u.noTime {
		_ = u.FS().SetTimes(full, vfs.Times{Modified: h.ModTime}) // its own
	}
}

// finish sets the attributes of the directories, the deepest first.
func (u *unpacker) finish() {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		full := u.Abs(u.dirs[i].path)
		if s, err := u.FS().Lstat(full); err == nil && s.Mode.IsDir() {
			u.attributes(full, u.dirs[i].h)
		}
	}
}

// compare is tar -d.
func (u *unpacker) compare(h *tar.Header, path string, in io.Reader) error {
	differs := func(what string) {
		fmt.Fprintf(u.out, "%s: %s\n", quoteName(h.Name), what)
		u.status = max(u.status, 1)
	}
	i, err := u.FS().Lstat(u.Abs(strings.TrimRight(path, "/")))
	if err != nil {
		_ = u.out.Flush()
		u.Errorf(1, "%s: Warning: Cannot stat: %s", quoteName(h.Name), tool.ErrText(err))
		u.status = max(u.status, 1)
		return nil
	}
	if h.FileInfo().Mode().Type() != i.Mode.Type() && h.Typeflag != tar.TypeLink {
		differs("File type differs")
		return nil
	}
	if h.FileInfo().Mode().Perm() != i.Mode.Perm() && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink {
		differs("Mode differs")
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		if i.Target != h.Linkname {
			differs("Symlink differs")
		}
		return nil
	case tar.TypeReg:
	default:
		return nil
	}
	if !i.Modified.Truncate(time.Second).Equal(h.ModTime.Truncate(time.Second)) {
		differs("Mod time differs")
	}
	if i.Size != h.Size {
		differs("Size differs")
		return nil
	}
	f, err := u.Open(path, vfs.ReadOnly, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(in, a)
		m, _ := io.ReadFull(f, b[:n]) // a shorter one differs
		if !u.Step(1 + n>>8) {
			return tool.ErrStop
		}
		if !bytes.Equal(a[:n], b[:m]) {
			differs("Contents differ")
			return nil
		}
		if err != nil {
			return nil
		}
	}
}
