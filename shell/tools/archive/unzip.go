package archive

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// deflated returns the compressed length of data.
func deflated(data []byte) (int, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, 5)
	if err != nil {
		return 0, err
	}
	if _, err := w.Write(data); err != nil {
		return 0, err
	}
	err = w.Close()
	return b.Len(), err
}

// unzipRun is one run of unzip.
type unzipRun struct {
	*tool.Call
	f       tool.Flags
	name    string
	dir     string
	exclude []string
	members []string
	matched []bool
	status  int
}

// openZip reads a whole archive, because its directory is at its end.
func openZip(c *tool.Call, name string) (*zip.Reader, string, int) {
	found := name
	data, err := readAll(c, name)
	for _, suffix := range []string{".zip", ".ZIP"} {
		if errors.Is(err, fs.ErrNotExist) {
			if data, err = readAll(c, name+suffix); err == nil {
				found = name + suffix
			}
		}
	}
	if err != nil {
		if c.Stopped(err) {
			return nil, found, 1
		}
		fmt.Fprintf(c.Err, "%s:  cannot find or open %s, %s.zip or %s.ZIP.\n", c.Base(), name, name, name)
		return nil, found, 9
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		fmt.Fprintf(c.Err, "%s:  no zip archive: %s (nor with .zip or .ZIP added)\n", c.Base(), name)
		return nil, found, 9
	}
	if err := c.Pay(int64(len(r.File)) * 512); err != nil {
		return nil, found, 1
	}
	return r, found, 0
}

// unzipMain is unzip.
func unzipMain(c *tool.Call) int {
	u := &unzipRun{Call: c}
	var args []string
	for i := 0; i < len(c.Args); i++ { // -x takes all names behind it
		if c.Args[i] != "-x" {
			args = append(args, c.Args[i])
			continue
		}
		for i+1 < len(c.Args) && !strings.HasPrefix(c.Args[i+1], "-") {
			i++
			u.exclude = append(u.exclude, c.Args[i])
		}
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-Z") {
		c.Args = args[1:]
		if rest := args[0][2:]; rest != "" {
			c.Args = append([]string{"-" + rest}, c.Args...)
		}
		return zipinfoMain(c)
	}
	c.Args = args
	f, ok := c.Flags("lvtpcnoqjaCd:fuKXUWLVMTsP:2", "quiet=q")
	if !ok {
		return 10
	}
	if len(f.Args) == 0 {
		fmt.Fprintln(c.Out, "UnZip (Carrel): unzip [-options] file[.zip] [list] [-x xlist] [-d exdir]")
		return 10
	}
	u.f, u.dir, u.members = f, f.Value('d', ""), f.Args[1:]
	u.matched = make([]bool, len(u.members))
	r, name, code := openZip(c, f.Args[0])
	if r == nil {
		return code
	}
	u.name = name
	switch {
	case f.Has('l') || f.Has('v'):
		u.list(r)
	default:
		u.all(r)
	}
	for i, m := range u.members {
		if !u.matched[i] {
			if !f.Has('l') {
				fmt.Fprintf(c.Err, "caution: filename not matched:  %s\n", m)
			}
			u.status = max(u.status, 11)
		}
	}
	return u.status
}

// wants applies the named members and -x.
func (u *unzipRun) wants(name string) bool {
	ok := len(u.members) == 0
	for i, m := range u.members {
		if wildMatch(m, name) {
			u.matched[i], ok = true, true
		}
	}
	return ok && !slices.ContainsFunc(u.exclude, func(p string) bool { return wildMatch(p, name) })
}

func (u *unzipRun) quiet() bool { return u.f.Has('q') }

// list is unzip -l.
func (u *unzipRun) list(r *zip.Reader) {
	out := u.Buffered()
	defer func() { u.status = u.Flush(out, u.status) }()
	if !u.quiet() {
		fmt.Fprintf(out, "Archive:  %s\n", u.name)
	}
	long := u.f.Has('v')
	if long {
		fmt.Fprintf(out, " Length   Method    Size  Cmpr    Date    Time   CRC-32   Name\n--------  ------  ------- ---- ---------- ----- --------  ----\n")
	} else {
		fmt.Fprintf(out, "  Length      Date    Time    Name\n---------  ---------- -----   ----\n")
	}
	var size, small uint64
	n := 0
	for _, e := range r.File {
		if !u.Step(8) {
			return
		}
		if !u.wants(e.Name) {
			continue
		}
		n++
		size += e.UncompressedSize64
		small += e.CompressedSize64
		when := e.Modified.In(u.Now().Location()).Format("2006-01-02 15:04")
		if long {
			method := "Stored"
			if e.Method == zip.Deflate {
				method = "Defl:N"
			}
			fmt.Fprintf(out, "%8d  %-6s %8d %3d%% %s %08x  %s\n", e.UncompressedSize64, method, e.CompressedSize64, percent(int64(e.CompressedSize64), int64(e.UncompressedSize64)), when, e.CRC32, e.Name)
		} else {
			fmt.Fprintf(out, "%9d  %s   %s\n", e.UncompressedSize64, when, e.Name)
		}
	}
	word := "files"
	if n == 1 {
		word = "file"
	}
	if long {
		fmt.Fprintf(out, "--------          -------  ---                            -------\n%8d         %8d %3d%%                            %d %s\n", size, small, percent(int64(small), int64(size)), n, word)
	} else {
		fmt.Fprintf(out, "---------                     -------\n%9d                     %d %s\n", size, n, word)
	}
}

// all extracts, tests or prints.
func (u *unzipRun) all(r *zip.Reader) {
	if !u.quiet() && !u.f.Has('p') {
		fmt.Fprintf(u.Out, "Archive:  %s\n", u.name)
	}
	if len(r.File) == 0 {
		fmt.Fprintf(u.Err, "warning [%s]:  zipfile is empty\n", u.name)
		u.status = 1
	}
	bad := 0
	for _, e := range r.File {
		if !u.Step(16) {
			u.status = 1
			return
		}
		if !u.wants(e.Name) {
			continue
		}
		err := u.one(e)
		if err == nil {
			continue
		}
		if u.Stopped(err) {
			u.status = 1
			return
		}
		bad++
		var w writeError
		switch {
		case errors.As(err, &w):
			fmt.Fprintf(u.Err, "%s:  write error: %s\n", e.Name, tool.ErrText(w.error))
			u.status = 50
			return
		case errors.Is(err, zip.ErrChecksum):
			fmt.Fprintf(u.Err, "%s  bad CRC\n", e.Name)
			u.status = max(u.status, 2)
		case errors.Is(err, zip.ErrAlgorithm):
			fmt.Fprintf(u.Err, "   skipping: %s  unsupported compression method %d\n", e.Name, e.Method)
			u.status = max(u.status, 81)
		default:
			fmt.Fprintf(u.Err, "%s: %v\n", e.Name, tool.ErrText(err))
			u.status = max(u.status, 2)
		}
	}
	if u.f.Has('t') {
		if bad == 0 {
			fmt.Fprintf(u.Out, "No errors detected in compressed data of %s.\n", u.name)
		} else {
			fmt.Fprintf(u.Out, "At least one error was detected in %s.\n", u.name)
		}
	}
}

// one extracts, tests or prints one member.
func (u *unzipRun) one(e *zip.File) error {
	dir := strings.HasSuffix(e.Name, "/") || e.Mode().IsDir()
	switch {
	case u.f.Has('p') || u.f.Has('c'):
		if dir {
			return nil
		}
		return u.show(e)
	case u.f.Has('t'):
		return u.test(e)
	}
	name := u.safeName(e)
	if u.f.Has('j') {
		if dir {
			return nil
		}
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	if name == "" || name == "." {
		return nil
	}
	path := join(u.dir, strings.TrimRight(name, "/"))
	if dir {
		return u.directory(e, path)
	}
	if at := strings.LastIndexByte(path, '/'); at > 0 {
		if err := u.FS().MkdirAll(u.Abs(path[:at]), 0o777&^u.Umask()); err != nil {
			return err
		}
	}
	if wanted, err := u.makeRoom(e, path); err != nil || !wanted {
		return err
	}
	if !u.quiet() {
		fmt.Fprintf(u.Out, "%s%-22s  \n", label(e), path)
	}
	if e.Mode()&fs.ModeSymlink != 0 {
		return u.symlink(e, path)
	}
	return u.file(e, path)
}

// show writes an entry on standard output.
func (u *unzipRun) show(e *zip.File) error {
	named := u.f.Has('c') && !u.quiet()
	if named {
		fmt.Fprintf(u.Out, "%s  \n", label(e)+e.Name)
	}
	if err := u.copy(e, u.Out); err != nil {
		return err
	}
	if named {
		fmt.Fprintln(u.Out)
	}
	return nil
}

// test reads an entry and reports whether it is intact.
func (u *unzipRun) test(e *zip.File) error {
	if !u.quiet() {
		fmt.Fprintf(u.Out, "    testing: %-22s  ", e.Name)
	}
	if err := u.copy(e, io.Discard); err != nil {
		return err
	}
	if !u.quiet() {
		fmt.Fprintln(u.Out, " OK")
	}
	return nil
}

// safeName returns an entry's name without parts that lead out of the directory. It writes a
// message about them.
func (u *unzipRun) safeName(e *zip.File) string {
	name := strings.TrimLeft(e.Name, "/")
	if name != e.Name {
		fmt.Fprintf(u.Err, "warning:  stripped absolute path spec from %s\n", e.Name)
		u.status = max(u.status, 1)
	}
	if hasDots(name) {
		fmt.Fprintf(u.Err, "warning:  skipped \"../\" path component(s) in %s\n", e.Name)
		u.status = max(u.status, 1)
		name = strings.Join(slices.DeleteFunc(strings.Split(name, "/"), func(p string) bool { return p == ".." }), "/")
	}
	return name
}

// directory makes a directory.
func (u *unzipRun) directory(e *zip.File, path string) error {
	full := u.Abs(path)
	if i, err := u.FS().Stat(full); err == nil && i.Mode.IsDir() {
		return nil
	}
	if !u.quiet() {
		fmt.Fprintf(u.Out, "   creating: %s/\n", path)
	}
	if err := u.FS().MkdirAll(full, 0o777&^u.Umask()); err != nil {
		return err
	}
	if m := e.Mode().Perm(); m != 0 {
		return u.FS().Chmod(full, m|0o700)
	}
	return nil
}

// makeRoom removes the file that an entry replaces. wanted is false if the entry is skipped,
// because of the options or because nobody can be asked.
func (u *unzipRun) makeRoom(e *zip.File, path string) (wanted bool, err error) {
	full := u.Abs(path)
	old, err := u.FS().Lstat(full)
	if err != nil {
		return !u.f.Has('f'), nil
	}
	switch {
	case u.f.Has('n'):
		return false, nil
	case (u.f.Has('u') || u.f.Has('f')) && !e.Modified.After(old.Modified):
		return false, nil
	case !u.f.Has('o') && !u.f.Has('u') && !u.f.Has('f'):
		fmt.Fprintf(u.Err, "replace %s? [y]es, [n]o, [A]ll, [N]one, [r]ename:  NULL\n(EOF or read error, treating as \"[N]one\" ...)\n", path)
		u.f.All = append(u.f.All, tool.Flag{Letter: 'n'})
		u.status = max(u.status, 1)
		return false, nil
	}
	return true, u.FS().Remove(full)
}

// symlink makes a symbolic link, whose target is the entry's contents.
func (u *unzipRun) symlink(e *zip.File, path string) error {
	var target bytes.Buffer
	if e.UncompressedSize64 > 4096 {
		return fmt.Errorf("symbolic link is too long")
	}
	if err := u.copy(e, &target); err != nil {
		return err
	}
	return u.FS().Symlink(target.String(), u.Abs(path))
}

// file makes a regular file.
func (u *unzipRun) file(e *zip.File, path string) error {
	full := u.Abs(path)
	out, err := u.FS().OpenFile(full, vfs.WriteOnly|vfs.CreateNew|vfs.Exclusive, 0o666&^u.Umask())
	if err != nil {
		return err
	}
	err = u.copy(e, out)
	_ = out.Close() // written
	if err != nil {
		return err
	}
	if m := e.Mode(); m.Perm() != 0 && e.CreatorVersion>>8 == 3 {
		_ = u.FS().Chmod(full, m.Perm()) // its own
	}
	_ = u.FS().SetTimes(full, vfs.Times{Modified: e.Modified}) // its own
	return nil
}

// label returns the word that is printed before a member's name.
func label(e *zip.File) string {
	switch {
	case e.Mode()&fs.ModeSymlink != 0:
		return "    linking: "
	case e.Method == zip.Deflate:
		return "  inflating: "
	}
	return " extracting: "
}

func (u *unzipRun) copy(e *zip.File, out io.Writer) error {
	if e.Flags&1 != 0 {
		return fmt.Errorf("this machine's unzip does not decrypt")
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := u.Pay(64 << 10); err != nil {
		return err
	}
	_, err = copyAll(u.Call, out, r)
	_ = u.Pay(-64 << 10)
	return err
}

// zipinfoMain is zipinfo.
func zipinfoMain(c *tool.Call) int {
	f, ok := c.Flags("12smlvhtMTzC")
	if !ok || len(f.Args) == 0 {
		return 10
	}
	u := &unzipRun{Call: c, f: f, members: f.Args[1:]}
	u.matched = make([]bool, len(u.members))
	r, name, code := openZip(c, f.Args[0])
	if r == nil {
		return code
	}
	out := c.Buffered()
	plain := f.Has('1') || f.Has('2')
	if !plain {
		size, _ := c.FS().Stat(c.Abs(name)) // it was read
		fmt.Fprintf(out, "Archive:  %s\nZip file size: %d bytes, number of entries: %d\n", name, size.Size, len(r.File))
	}
	var big, small uint64
	n := 0
	for _, e := range r.File {
		if !c.Step(8) {
			return 1
		}
		if !u.wants(e.Name) {
			continue
		}
		n++
		if plain {
			fmt.Fprintln(out, e.Name)
			continue
		}
		big += e.UncompressedSize64
		small += e.CompressedSize64
		method := "stor"
		if e.Method == zip.Deflate {
			method = "defN"
		}
		fmt.Fprintf(out, "%s  %d.%d unx %8d bx %s %s %s\n", fs.FileMode(e.Mode()), e.CreatorVersion&0xff/10, e.CreatorVersion&0xff%10, e.UncompressedSize64, method, e.Modified.Format("06-Jan-02 15:04"), e.Name)
	}
	if !plain {
		word := "files"
		if n == 1 {
			word = "file"
		}
		fmt.Fprintf(out, "%d %s, %d bytes uncompressed, %d bytes compressed:  %.1f%%\n", n, word, big, small, float64(percent(int64(small), int64(big))))
	}
	return c.Flush(out, 0)
}
