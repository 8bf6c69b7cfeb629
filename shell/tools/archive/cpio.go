package archive

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Limits for the sizes in an archive's headers.
const (
	maxCpioName = 4096
	maxCpioSize = 1 << 40
)

// errCpio is the error of an incomplete archive.
var errCpio = errors.New("premature end of archive")

// cpioHeader has the fields that all formats of cpio store for a file.
type cpioHeader struct {
	ino, mode, uid, gid, links, mtime, size int64
	name                                    string
}

// cpioRun is one run of cpio.
type cpioRun struct {
	*tool.Call
	out              *bufio.Writer
	format           string
	verbose, quiet   bool
	dirs, times      bool
	always, link     bool
	table, numeric   bool
	outside, follow  bool
	patterns         []string
	except, toStdout bool
	bytes            int64
	status           int
	links            map[int64]string // the first name of each file with several names
	seen             int64
}

func cpioMain(c *tool.Call) int {
	f, ok := c.Flags("oiptvdmulLH:0f:E:F:O:I:BcC:nR:aVAbs\x80\x81\x82", "create=o", "extract=i", "pass-through=p", "list=t", "verbose=v", "make-directories=d", "preserve-modification-time=m", "unconditional=u", "link=l",
		"dereference=L", "format=H", "null=0", "nonmatching=f", "pattern-file=E", "file=F", "numeric-uid-gid=n", "reset-access-time=a", "quiet=\x80", "no-absolute-filenames=\x81", "to-stdout=\x82", "owner=R", "dot=V", "absolute-filenames=\x83")
	if !ok {
		return 2
	}
	r := &cpioRun{Call: c, out: c.Buffered(), format: f.Value('H', "bin"), verbose: f.Has('v'), quiet: f.Has('\x80'), dirs: f.Has('d'), times: f.Has('m'), always: f.Has('u'), link: f.Has('l'),
		table: f.Has('t'), numeric: f.Has('n'), follow: f.Has('L'), patterns: f.Args, except: f.Has('f'), toStdout: f.Has('\x82'), links: map[int64]string{}}
	if f.Has('c') && !f.Has('H') {
		r.format = "odc"
	}
	if f.Has('f') {
		r.patterns = append(r.patterns, f.Value('f', ""))
	}
	archive := f.Value('F', f.Value('O', f.Value('I', "")))
	mode := f.Last("oip")
	if mode == 0 && r.table {
		mode = 'i'
	}
	code := 0
	switch mode {
	case 'o':
		code = r.create(archive, f.Has('0'))
	case 'i':
		code = r.extract(archive)
	case 'p':
		if len(f.Args) != 1 {
			fmt.Fprintf(c.Err, "cpio: %s\nTry 'cpio --help' or 'cpio --usage' for more information.\n", map[bool]string{true: "Too many arguments", false: "Not enough arguments"}[len(f.Args) > 1])
			return 2
		}
		code = r.pass(f.Args[0], f.Has('0'))
	default:
		fmt.Fprintln(c.Err, "cpio: You must specify one of -oipt options.\nTry 'cpio --help' or 'cpio --usage' for more information.")
		return 2
	}
	if code = max(code, r.status); c.Ctx.Err() == nil && code != 3 && !r.quiet {
		_ = r.out.Flush() // the flush at the end reports
		n, s := (r.bytes+511)/512, "s"
		if n == 1 {
			s = ""
		}
		fmt.Fprintf(c.Err, "%d block%s\n", n, s)
	}
	if code == 3 {
		code = 2
	}
	return c.Flush(r.out, code)
}

func (r *cpioRun) fail(format string, args ...any) {
	r.status = r.Errorf(2, format, args...)
}

// names calls fn with each name from standard input.
func (r *cpioRun) names(null bool, fn func(name string, i vfs.Info) error) error {
	end := byte('\n')
	if null {
		end = 0
	}
	return r.Lines(r.In, end, func(l []byte, _ bool) error {
		name := string(l)
		if name == "" {
			r.fail("blank line ignored")
			return nil
		}
		stat := r.FS().Lstat
		if r.follow {
			stat = r.FS().Stat
		}
		i, err := stat(r.Abs(name))
		if err != nil {
			r.fail("%s: Cannot stat: %s", name, tool.ErrText(err))
			return nil
		}
		return fn(name, i)
	})
}

// create is cpio -o.
func (r *cpioRun) create(archive string, null bool) int {
	if r.format != "newc" && r.format != "crc" && r.format != "odc" && r.format != "bin" {
		if r.format == "tar" || r.format == "ustar" {
			return r.Errorf(3, "archives of format %s are made by tar here", r.format)
		}
		r.Errorf(3, "invalid archive format '%s'; valid formats are:\ncrc newc odc bin ustar tar (all-caps also recognized)", r.format)
		return 3
	}
	var to io.Writer = r.out
	if archive != "" {
		f, err := r.Open(archive, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return r.Errorf(3, "Cannot open %s: %s", archive, tool.ErrText(err))
		}
		defer f.Close()
		w := bufio.NewWriterSize(f, 64<<10)
		defer w.Flush()
		to = w
	}
	err := r.names(null, func(name string, i vfs.Info) error {
		if r.verbose {
			fmt.Fprintln(r.Err, name)
		}
		return r.put(to, name, i)
	})
	if err == nil {
		err = r.header(to, cpioHeader{links: 1, name: "TRAILER!!!"})
	}
	if err == nil && r.bytes%512 != 0 {
		err = r.write(to, make([]byte, 512-r.bytes%512))
	}
	if err != nil && !r.Stopped(err) {
		return r.Errorf(2, "write error: %s", tool.ErrText(err))
	}
	return 0
}

func (r *cpioRun) write(to io.Writer, b []byte) error {
	r.bytes += int64(len(b))
	_, err := to.Write(b)
	return err
}

// put writes one file into an archive.
func (r *cpioRun) put(to io.Writer, name string, i vfs.Info) error {
	r.seen++
	h := cpioHeader{ino: r.seen, mode: int64(unixMode(i.Mode)), uid: int64(i.UID), gid: int64(i.GID), links: int64(max(i.Links, 1)), mtime: i.Modified.Unix(), name: strings.TrimPrefix(name, "./")}
	if h.name == "" {
		h.name = "."
	}
	switch {
	case i.Mode&fs.ModeSymlink != 0:
		h.size = int64(len(i.Target))
		if err := r.header(to, h); err != nil {
			return err
		}
		return r.pad(to, []byte(i.Target))
	case !i.Mode.IsRegular():
		return r.header(to, h)
	}
	in, err := r.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		r.fail("%s: Cannot open: %s", name, tool.ErrText(err))
		return nil
	}
	defer in.Close()
	h.size, h.links = i.Size, 1
	if r.format == "bin" && h.size >= 1<<32 || r.format == "odc" && h.size >= 1<<33 || h.size >= 1<<32 {
		r.fail("%s: field width not sufficient for storing file size", name)
		return nil
	}
	if err := r.header(to, h); err != nil {
		return err
	}
	n, err := copyAll(r.Call, to, io.LimitReader(in, h.size))
	r.bytes += n
	for err == nil && n < h.size { // it has become shorter
		k := min(h.size-n, 32<<10)
		err = r.write(to, make([]byte, k))
		n += k
	}
	if err != nil {
		return err
	}
	return r.pad(to, nil)
}

// pad writes data, and padding up to the next boundary of the format.
func (r *cpioRun) pad(to io.Writer, data []byte) error {
	if err := r.write(to, data); err != nil {
		return err
	}
	return r.write(to, make([]byte, (r.align()-r.bytes%r.align())%r.align()))
}

// align returns the alignment of headers and contents.
func (r *cpioRun) align() int64 {
	return map[string]int64{"newc": 4, "crc": 4, "bin": 2}[r.format] + map[string]int64{"odc": 1}[r.format]
}

func (r *cpioRun) header(to io.Writer, h cpioHeader) error {
	var b []byte
	switch r.format {
	case "odc":
		b = fmt.Appendf(nil, "070707%06o%06o%06o%06o%06o%06o%06o%011o%06o%011o%s\x00", 0, h.ino&0o777777, h.mode&0o777777, h.uid&0o777777, h.gid&0o777777, h.links&0o777777, 0, h.mtime, len(h.name)+1, h.size, h.name)
	case "bin":
		for _, v := range []int64{0o70707, 0, h.ino, h.mode, h.uid, h.gid, h.links, 0, h.mtime >> 16, h.mtime, int64(len(h.name) + 1), h.size >> 16, h.size} {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		}
		b = append(append(b, h.name...), 0)
	default:
		b = fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00", h.ino, h.mode, h.uid, h.gid, h.links, uint32(h.mtime), h.size, 0, 0, 0, 0, len(h.name)+1, 0, h.name)
	}
	return r.pad(to, b)
}

// unixMode is st_mode.
func unixMode(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	for bit, v := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			out |= v
		}
	}
	switch {
	case m.IsDir():
		return out | 0o040000
	case m&fs.ModeSymlink != 0:
		return out | 0o120000
	case m&fs.ModeNamedPipe != 0:
		return out | 0o010000
	case m&fs.ModeCharDevice != 0:
		return out | 0o020000
	}
	return out | 0o100000
}

// goMode is the reverse of unixMode.
func goMode(m int64) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	for bit, v := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&v != 0 {
			out |= bit
		}
	}
	kinds := map[int64]fs.FileMode{0o040000: fs.ModeDir, 0o120000: fs.ModeSymlink, 0o010000: fs.ModeNamedPipe, 0o020000: fs.ModeDevice | fs.ModeCharDevice, 0o060000: fs.ModeDevice, 0o140000: fs.ModeSocket}
	return out | kinds[m&0o170000]
}

// extract is cpio -i.
func (r *cpioRun) extract(archive string) int {
	var in io.Reader = r.In
	if archive != "" {
		f, err := r.Open(archive, vfs.ReadOnly, 0)
		if err != nil {
			return r.Errorf(3, "Cannot open %s: %s", archive, tool.ErrText(err))
		}
		defer f.Close()
		in = f
	}
	br := bufio.NewReaderSize(in, 64<<10)
	for {
		if !r.Step(8) {
			return 2
		}
		h, err := r.next(br)
		if err == nil && h.name == "TRAILER!!!" {
			r.bytes = (r.bytes + 511) / 512 * 512
			return 0
		}
		if err == nil {
			err = r.member(br, h)
		}
		if err != nil {
			if !r.Stopped(err) {
				r.Errorf(2, "%s", tool.ErrText(err))
			}
			return 3
		}
	}
}

// take reads n bytes.
func (r *cpioRun) take(br *bufio.Reader, n int64) ([]byte, error) {
	b := make([]byte, n)
	k, err := io.ReadFull(br, b)
	r.bytes += int64(k)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errCpio
	}
	return b, err
}

func (r *cpioRun) fill(br *bufio.Reader) error {
	_, err := r.take(br, (r.align()-r.bytes%r.align())%r.align())
	return err
}

// next reads a header of any format.
func (r *cpioRun) next(br *bufio.Reader) (h cpioHeader, err error) {
	magic, _ := br.Peek(6) // a shorter one is none
	nameSize := int64(0)
	numbers := func(b []byte, base int, widths ...int) (out []int64) {
		for _, w := range widths {
			n, nerr := strconv.ParseInt(string(b[:w]), base, 64)
			if nerr != nil {
				err = errors.New("malformed header")
			}
			out, b = append(out, n), b[w:]
		}
		return out
	}
	switch {
	case string(magic) == "070701" || string(magic) == "070702":
		r.format = "newc"
		b, terr := r.take(br, 110)
		if terr != nil {
			return h, terr
		}
		v := numbers(b[6:], 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8)
		h = cpioHeader{ino: v[0], mode: v[1], uid: v[2], gid: v[3], links: v[4], mtime: v[5], size: v[6]}
		nameSize = v[11]
	case string(magic) == "070707":
		r.format = "odc"
		b, terr := r.take(br, 76)
		if terr != nil {
			return h, terr
		}
		v := numbers(b[6:], 8, 6, 6, 6, 6, 6, 6, 6, 11, 6, 11)
		h = cpioHeader{ino: v[1], mode: v[2], uid: v[3], gid: v[4], links: v[5], mtime: v[7], size: v[9]}
		nameSize = v[8]
	case len(magic) >= 2 && magic[0] == 0xc7 && magic[1] == 0x71:
		r.format = "bin"
		b, terr := r.take(br, 26)
		if terr != nil {
			return h, terr
		}
		v := make([]int64, 13)
		for i := range v {
			v[i] = int64(binary.LittleEndian.Uint16(b[2*i:]))
		}
		h = cpioHeader{ino: v[2], mode: v[3], uid: v[4], gid: v[5], links: v[6], mtime: v[8]<<16 | v[9], size: v[11]<<16 | v[12]}
		nameSize = v[10]
	default:
		return h, errCpio
	}
	if err != nil {
		return h, err
	}
	if nameSize < 1 || nameSize > maxCpioName || h.size < 0 || h.size > maxCpioSize {
		return h, errors.New("malformed header")
	}
	name, err := r.take(br, nameSize)
	h.name = strings.TrimRight(string(name), "\x00")
	if err == nil {
		err = r.fill(br)
	}
	return h, err
}

// wants reports whether the patterns select a member.
func (r *cpioRun) wants(name string) bool {
	if len(r.patterns) == 0 {
		return true
	}
	for _, p := range r.patterns {
		if wildMatch(p, name) {
			return !r.except
		}
	}
	return r.except
}

// contents reads a member. finish skips the rest.
type contents struct {
	r  *cpioRun
	br *bufio.Reader
	n  int64
}

func (m *contents) Read(b []byte) (int, error) {
	if m.n == 0 {
		return 0, io.EOF
	}
	k, err := m.br.Read(b[:min(int64(len(b)), m.n)])
	m.n -= int64(k)
	m.r.bytes += int64(k)
	if err == io.EOF {
		err = errCpio
	}
	return k, err
}

// member lists or extracts one file.
func (r *cpioRun) member(br *bufio.Reader, h cpioHeader) error {
	body := &contents{r, br, h.size}
	var err error
	switch {
	case !r.wants(h.name):
	case r.table:
		target := ""
		if goMode(h.mode)&fs.ModeSymlink != 0 && r.verbose {
			if h.size > maxCpioName {
				return errors.New("malformed header")
			}
			b, terr := r.take(br, h.size)
			if terr != nil {
				return terr
			}
			body.n, target = 0, " -> "+string(b)
		}
		r.list(h, target)
	case r.toStdout:
		_, err = copyAll(r.Call, r.out, body)
	default:
		err = r.make(body, h)
	}
	if err == nil {
		_, err = copyAll(r.Call, io.Discard, body)
	}
	if err != nil {
		return err
	}
	return r.fill(br)
}

func (r *cpioRun) list(h cpioHeader, target string) {
	if !r.verbose {
		fmt.Fprintln(r.out, h.name)
		return
	}
	user, group := strconv.FormatInt(h.uid, 10), strconv.FormatInt(h.gid, 10)
	if !r.numeric {
		user, group = r.Machine().UserName(uint32(h.uid)), r.Machine().GroupName(uint32(h.gid))
	}
	when := time.Unix(h.mtime, 0).In(r.Now().Location())
	layout := "Jan _2 15:04"
	if age := r.Now().Sub(when); age > 180*24*time.Hour || age < -time.Hour {
		layout = "Jan _2  2006"
	}
	mode := []byte("-rwxrwxrwx")
	m := goMode(h.mode)
	switch {
	case m.IsDir():
		mode[0] = 'd'
	case m&fs.ModeSymlink != 0:
		mode[0] = 'l'
	case m&fs.ModeNamedPipe != 0:
		mode[0] = 'p'
	}
	for i := range 9 {
		if m&(0o400>>i) == 0 {
			mode[i+1] = '-'
		}
	}
	fmt.Fprintf(r.out, "%s %3d %-8s %-8s %8d %s %s%s\n", mode, h.links, user, group, h.size, when.Format(layout), h.name, target)
}

// make makes a member's file.
func (r *cpioRun) make(body *contents, h cpioHeader) error {
	name := h.name
	if !r.outside {
		name = strings.TrimLeft(name, "/")
		if hasDots(name) {
			r.fail("%s: Member name contains '..'", name)
			return nil
		}
	}
	if name == "" {
		return nil
	}
	mode, full := goMode(h.mode), r.Abs(name)
	old, err := r.FS().Lstat(full)
	if err == nil && !(old.Mode.IsDir() && mode.IsDir()) {
		if !r.always && h.mtime <= old.Modified.Unix() {
			r.Errorf(0, "%s not created: newer or same age version exists", name)
			return nil
		}
		if err := r.FS().Remove(full); err != nil {
			r.fail("cannot remove current %s: %s", name, tool.ErrText(err))
			return nil
		}
	}
	if r.dirs {
		if dir := path.Dir(full); dir != "/" {
			_ = r.FS().MkdirAll(dir, 0o777&^r.Umask()) // making the file fails then
		}
	}
	perm := mode & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if r.UID() != 0 {
		perm = perm.Perm()
	}
	switch {
	case mode.IsDir():
		if err != nil {
			err = r.FS().Mkdir(full, 0o700)
		}
	case mode&fs.ModeSymlink != 0:
		if h.size > maxCpioName {
			return errors.New("malformed header")
		}
		target, terr := r.take(body.br, h.size)
		if terr != nil {
			return terr
		}
		body.n = 0
		if err = r.FS().Symlink(strings.TrimRight(string(target), "\x00"), full); err == nil {
			r.told(name)
			return nil
		}
	case mode&fs.ModeNamedPipe != 0:
		err = r.FS().Mkfifo(full, perm)
	case mode.IsRegular():
		err = r.regular(body, h, full)
	default:
		err = syscall.EPERM
	}
	if err != nil {
		if r.Stopped(err) || errors.Is(err, errCpio) {
			return err
		}
		r.fail("%s: Cannot open: %s", name, tool.ErrText(err))
		return nil
	}
	if r.UID() == 0 {
		_ = r.FS().Chown(full, uint32(h.uid), uint32(h.gid)) // as far as it is allowed
	}
	_ = r.FS().Chmod(full, perm) // its own
	if r.times {
		_ = r.FS().SetTimes(full, vfs.Times{Modified: time.Unix(h.mtime, 0)}) // its own
	}
	r.told(name)
	return nil
}

func (r *cpioRun) told(name string) {
	if r.verbose {
		fmt.Fprintln(r.Err, name)
	}
}

// regular makes a file with contents, or another name for one.
func (r *cpioRun) regular(body *contents, h cpioHeader, full string) error {
	if h.links > 1 {
		if first, ok := r.links[h.ino]; ok && h.size == 0 {
			return r.FS().Link(first, full)
		}
		if err := r.Pay(int64(len(full)) + 64); err != nil {
			return err
		}
		defer func() { r.links[h.ino] = full }()
	}
	out, err := r.FS().OpenFile(full, vfs.WriteOnly|vfs.CreateNew|vfs.Exclusive, 0o600)
	if err != nil {
		return err
	}
	_, err = copyAll(r.Call, out, body)
	_ = out.Close() // written
	return err
}

// pass is cpio -p: it copies the named files into a directory.
func (r *cpioRun) pass(dir string, null bool) int {
	if i, err := r.FS().Stat(r.Abs(dir)); err != nil || !i.Mode.IsDir() {
		if err == nil {
			err = syscall.ENOTDIR
		}
		return r.Errorf(3, "cannot open %s: %s", dir, tool.ErrText(err))
	}
	err := r.names(null, func(name string, i vfs.Info) error {
		h := cpioHeader{mode: int64(unixMode(i.Mode)), uid: int64(i.UID), gid: int64(i.GID), mtime: i.Modified.Unix(), links: 1, name: dir + "/" + strings.TrimLeft(name, "/")}
		var in io.Reader = strings.NewReader("")
		switch {
		case i.Mode&fs.ModeSymlink != 0:
			in, h.size = strings.NewReader(i.Target), int64(len(i.Target))
		case i.Mode.IsRegular() && r.link:
			_ = r.FS().MkdirAll(path.Dir(r.Abs(h.name)), 0o777&^r.Umask()) // the link fails then
			if err := r.FS().Link(r.Abs(name), r.Abs(h.name)); err != nil {
				r.fail("cannot link %s to %s: %s", name, h.name, tool.ErrText(err))
			}
			return nil
		case i.Mode.IsRegular():
			f, err := r.Open(name, vfs.ReadOnly, 0)
			if err != nil {
				r.fail("%s: Cannot open: %s", name, tool.ErrText(err))
				return nil
			}
			defer f.Close()
			in, h.size = f, i.Size
		}
		r.outside = true
		return r.make(&contents{r, bufio.NewReader(in), h.size}, h)
	})
	if err != nil {
		return 2
	}
	return 0
}
