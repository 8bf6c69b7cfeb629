package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// recordSize is the unit to which archives are padded.
const recordSize = 20 * 512

// counted counts the written bytes.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// codecOf returns the compression for an archive's name.
func codecOf(name string) string {
	for suffix, codec := range map[string]string{".gz": "gzip", ".tgz": "gzip", ".taz": "gzip", ".bz2": "bzip2", ".tbz": "bzip2", ".tbz2": "bzip2", ".tz2": "bzip2", ".xz": "xz", ".txz": "xz",
		".zst": "zstd", ".tzst": "zstd", ".lzma": "lzma", ".tlz": "lzma"} {
		if strings.HasSuffix(name, suffix) {
			return codec
		}
	}
	return ""
}

// packer writes members.
type packer struct {
	*tarRun
	tw    *tar.Writer
	links map[uint64]string // the first name of each file with several names
	ino   uint64            // the archive's own
	known map[string]time.Time
	gone  []string
}

// create makes an archive.
func (t *tarRun) create() int {
	if len(t.operands) == 0 && len(t.filesFrom) == 0 {
		return t.wrong("Cowardly refusing to create an empty archive")
	}
	var out io.Writer = t.Out
	p := &packer{tarRun: t, links: map[uint64]string{}}
	if t.file != "-" {
		f, err := t.Open(t.file, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return t.fatal("%s: Cannot open: %s", t.file, tool.ErrText(err))
		}
		defer f.Close()
		if i, err := f.Stat(); err == nil {
			p.ino = i.Ino
		}
		out = f
	}
	codec := t.codec
	if t.auto && codec == "" {
		codec = codecOf(t.file)
	}
	var squeeze io.WriteCloser
	if codec != "" {
		var err error
		if squeeze, err = encoder(t.Call, codec, 0, out); err != nil {
			return t.fatal("%v", err)
		}
		out = squeeze
	}
	count := &counted{w: out}
	p.tw = tar.NewWriter(count)
	if err := p.members(); err != nil {
		return t.writeFailed(err)
	}
	err := p.finish(count, 0)
	if err == nil && squeeze != nil {
		err = squeeze.Close()
	}
	if err != nil {
		return t.writeFailed(err)
	}
	return 0
}

func (t *tarRun) writeFailed(err error) int {
	if t.Stopped(err) {
		return 2
	}
	return t.fatal("%s: Cannot write: %s", t.file, tool.ErrText(err))
}

// finish ends the archive and pads its last record.
func (p *packer) finish(count *counted, before int64) error {
	if err := p.tw.Close(); err != nil {
		return err
	}
	if rest := (count.n + before) % recordSize; rest != 0 {
		if _, err := count.Write(make([]byte, recordSize-rest)); err != nil {
			return err
		}
	}
	if p.totals {
		fmt.Fprintf(p.Err, "Total bytes written: %d (%s, ?/s)\n", count.n, iec(count.n))
	}
	for i := len(p.gone) - 1; i >= 0; i-- {
		if err := p.FS().Remove(p.Abs(p.gone[i])); err != nil {
			p.fail("%s: Cannot unlink: %s", p.gone[i], tool.ErrText(err))
		}
	}
	return nil
}

func iec(n int64) string {
	x, units := float64(n), "KMGT"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + "B"
	}
	i := -1
	for x >= 1024 && i < len(units)-1 {
		x /= 1024
		i++
	}
	return fmt.Sprintf("%.0f%ciB", x, units[i])
}

// pending is a file that has not been packed yet.
type pending struct {
	path, name string // on the disk, in the archive
	given      bool
}

// members packs all operands, without recursion.
func (p *packer) members() error {
	for _, o := range p.operands {
		name := o.name
		if name == "" || name == "\x00" {
			continue
		}
		stack := []pending{{path: join(o.dir, name), name: name, given: true}}
		for len(stack) > 0 {
			if !p.Step(8) {
				return tool.ErrStop
			}
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			below, err := p.member(at)
			if err != nil {
				return err
			}
			for i := len(below) - 1; i >= 0; i-- {
				stack = append(stack, below[i])
			}
		}
	}
	return nil
}

// member packs one file. For a directory it returns the files in it.
func (p *packer) member(at pending) ([]pending, error) {
	if p.excluded(at.name) {
		return nil, nil
	}
	full := p.Abs(strings.TrimRight(at.path, "/"))
	if strings.Trim(at.path, "/") == "" {
		full = "/"
	}
	i, err := p.FS().Lstat(full)
	if err == nil && p.deref && i.Mode&fs.ModeSymlink != 0 {
		i, err = p.FS().Stat(full)
	}
	if err != nil {
		p.fail("%s: Cannot stat: %s", at.name, tool.ErrText(err))
		return nil, nil
	}
	if i.Ino == p.ino && p.ino != 0 && i.Mode.IsRegular() {
		_ = p.out.Flush()
		p.Errorf(0, "%s: file is the archive; not dumped", at.name)
		return nil, nil
	}
	dir := i.Mode.IsDir()
	var below []pending
	if dir && !p.noRecurse {
		entries, derr := p.FS().ReadDir(full)
		if derr != nil {
			p.fail("%s: Cannot open: %s", at.name, tool.ErrText(derr))
		}
		if err := p.Pay(int64(len(entries)) * 128); err != nil {
			return nil, err
		}
		for _, e := range entries {
			below = append(below, pending{path: strings.TrimRight(at.path, "/") + "/" + e.Name, name: strings.TrimRight(at.name, "/") + "/" + e.Name})
		}
	}
	if !p.newer.IsZero() && !dir && !i.Modified.After(p.newer) {
		return nil, nil
	}
	name := p.stripped(at.name, "member names")
	if dir && !strings.HasSuffix(name, "/") {
		name += "/"
	}
	name, ok := p.renamed(name, 0)
	if !ok {
		return below, nil
	}
	if when, found := p.known[strings.TrimRight(name, "/")]; found && !i.Modified.Truncate(time.Second).After(when) {
		return below, nil
	}
	h := p.header(i, name)
	if h == nil {
		p.fail("%s: socket ignored", at.name)
		p.status = 0
		return nil, nil
	}
	var in tool.File
	if h.Typeflag == tar.TypeReg && h.Size > 0 {
		if in, err = p.Open(at.path, vfs.ReadOnly, 0); err != nil {
			p.fail("%s: Cannot open: %s", at.name, tool.ErrText(err))
			return nil, nil
		}
		defer in.Close()
	}
	if p.verbose > 0 {
		p.say(h, h.Name, p.verbose > 1)
	}
	if err := p.put(h, in); err != nil {
		return nil, err
	}
	if p.removeIt {
		p.gone = append(p.gone, at.path)
	}
	return below, nil
}

// put writes one header and its contents. If the file has become shorter, zeros fill the rest.
func (p *packer) put(h *tar.Header, in io.Reader) error {
	if err := p.tw.WriteHeader(h); err != nil {
		if errors.Is(err, tar.ErrHeader) || strings.Contains(err.Error(), "cannot encode header") {
			p.fail("%s: %v", h.Name, err)
			return nil
		}
		return err
	}
	if in == nil {
		return nil
	}
	n, err := copyAll(p.Call, p.tw, io.LimitReader(in, h.Size))
	if err != nil {
		return err
	}
	if n < h.Size {
		p.fail("%s: File shrank by %d bytes; padding with zeros", h.Name, h.Size-n)
		_, err = copyAll(p.Call, p.tw, io.LimitReader(zeros{}, h.Size-n))
	}
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// header describes a file. It returns nil for a file that can't be packed.
func (p *packer) header(i vfs.Info, name string) *tar.Header {
	m := p.Machine()
	h := &tar.Header{Name: name, Mode: int64(i.Mode.Perm()), Uid: int(i.UID), Gid: int(i.GID), Uname: m.UserName(i.UID), Gname: m.GroupName(i.GID), ModTime: i.Modified.Truncate(time.Second), Format: tar.FormatGNU}
	for bit, n := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if i.Mode&bit != 0 {
			h.Mode |= n
		}
	}
	switch p.format {
	case "pax", "posix":
		h.Format, h.ModTime = tar.FormatPAX, i.Modified
	case "ustar", "v7":
		h.Format = tar.FormatUSTAR
	}
	switch {
	case i.Mode.IsDir():
		h.Typeflag = tar.TypeDir
	case i.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, i.Target
		if s, ok := p.renamed(i.Target, tar.TypeSymlink); ok {
			h.Linkname = s
		}
	case i.Mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
	case i.Mode&fs.ModeDevice != 0:
		h.Typeflag = tar.TypeChar
	case i.Mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, i.Size
		if i.Links > 1 {
			if first, ok := p.links[i.Ino]; ok {
				h.Typeflag, h.Size, h.Linkname = tar.TypeLink, 0, first
			} else {
				p.links[i.Ino] = name
			}
		}
	default:
		return nil
	}
	p.override(h)
	return h
}

// override applies --owner, --group, --mode and --mtime.
func (p *packer) override(h *tar.Header) {
	if p.owner != "" {
		name, id, has := strings.Cut(p.owner, ":")
		if n, err := strconv.Atoi(name); err == nil {
			h.Uid, h.Uname = n, ""
			if a := p.Machine().UserName(uint32(n)); a != name {
				h.Uname = a
			}
		} else {
			h.Uname = name
			if a, ok := p.Machine().User(name); ok {
				h.Uid = int(a.UID)
			}
		}
		if n, err := strconv.Atoi(id); has && err == nil {
			h.Uid = n
		}
	}
	if p.group != "" {
		name, id, has := strings.Cut(p.group, ":")
		if n, err := strconv.Atoi(name); err == nil {
			h.Gid, h.Gname = n, ""
			if a := p.Machine().GroupName(uint32(n)); a != name {
				h.Gname = a
			}
		} else {
			h.Gname = name
			if a, ok := p.Machine().User(name); ok {
				h.Gid = int(a.GID)
			}
		}
		if n, err := strconv.Atoi(id); has && err == nil {
			h.Gid = n
		}
	}
	if p.numeric {
		h.Uname, h.Gname = "", ""
	}
	if p.mode != "" && h.Typeflag != tar.TypeSymlink {
		h.Mode = changeMode(p.mode, h.Mode, h.Typeflag == tar.TypeDir)
	}
	if !p.mtime.IsZero() {
		h.ModTime = p.mtime.Truncate(time.Second)
	}
}

// changeMode applies an octal or a simple symbolic mode.
func changeMode(spec string, old int64, dir bool) int64 {
	if n, err := strconv.ParseInt(spec, 8, 32); err == nil {
		return n & 0o7777
	}
	for clause := range strings.SplitSeq(spec, ",") {
		at := strings.IndexAny(clause, "+-=")
		if at < 0 {
			continue
		}
		var mask, bits int64
		for _, w := range clause[:at] {
			mask |= map[rune]int64{'u': 0o700, 'g': 0o070, 'o': 0o007, 'a': 0o777}[w]
		}
		if mask == 0 {
			mask = 0o777
		}
		for _, l := range clause[at+1:] {
			bits |= map[rune]int64{'r': 0o444, 'w': 0o222, 'x': 0o111}[l]
			if l == 'X' && (dir || old&0o111 != 0) {
				bits |= 0o111
			}
		}
		switch clause[at] {
		case '+':
			old |= bits & mask
		case '-':
			old &^= bits & mask
		case '=':
			old = old&^mask | bits&mask
		}
	}
	return old
}

// append adds to an archive that is not compressed.
func (t *tarRun) append() int {
	if t.codec != "" || t.file == "-" {
		return t.fatal("Cannot update compressed archives")
	}
	f, err := t.Open(t.file, vfs.ReadWrite|vfs.CreateNew, 0o666)
	if err != nil {
		return t.fatal("%s: Cannot open: %s", t.file, tool.ErrText(err))
	}
	defer f.Close()
	p := &packer{tarRun: t, links: map[uint64]string{}}
	if i, err := f.Stat(); err == nil {
		p.ino = i.Ino
	}
	if t.op == 'u' {
		p.known = map[string]time.Time{}
	}
	in := &position{r: paidReader{t.Call, f}}
	end := int64(0)
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			if t.Stopped(err) {
				return 2
			}
			t.Errorf(2, "This does not look like a tar archive")
			return t.fatal("Exiting with failure status due to previous errors")
		}
		if p.known != nil {
			if err := t.Pay(int64(len(h.Name) + 64)); err != nil {
				return 2
			}
			p.known[strings.TrimRight(h.Name, "/")] = h.ModTime
		}
		if _, err := copyAll(t.Call, io.Discard, tr); err != nil {
			return t.fatal("%s: %v", t.file, err)
		}
		end = (in.n + 511) / 512 * 512
	}
	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return t.writeFailed(err)
	}
	if err := f.Truncate(end); err != nil {
		return t.writeFailed(err)
	}
	count := &counted{w: f}
	p.tw = tar.NewWriter(count)
	if t.op == 'A' {
		err = p.concatenate()
	} else {
		err = p.members()
	}
	if err == nil {
		err = p.finish(count, end)
	}
	if err != nil {
		return t.writeFailed(err)
	}
	return 0
}

// concatenate adds the members of other archives.
func (p *packer) concatenate() error {
	for _, o := range p.operands {
		in, closer, err := opened(p.Call, join(o.dir, o.name))
		if err != nil {
			p.fail("%s: Cannot open: %s", o.name, tool.ErrText(err))
			continue
		}
		err = p.copyMembers(tar.NewReader(in), func(*tar.Header) bool { return true })
		_ = closer.Close() // it was read
		if err != nil {
			return err
		}
	}
	return nil
}

// copyMembers copies the wanted members.
func (p *packer) copyMembers(tr *tar.Reader, wanted func(*tar.Header) bool) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !wanted(h) {
			continue
		}
		h.Format = tar.FormatUnknown
		if err := p.put(h, tr); err != nil {
			return err
		}
	}
}

// position counts the bytes that were read.
type position struct {
	r io.Reader
	n int64
}

func (p *position) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, err
}

// remove is --delete: it writes the archive without some members.
func (t *tarRun) remove() int {
	in, err := t.OpenIn(t.file)
	if err != nil {
		return t.fatal("%s: Cannot open: %s", t.file, tool.ErrText(err))
	}
	data, err := t.ReadAll(in)
	_ = in.Close() // it was read
	if err != nil {
		return t.fatal("%s: %s", t.file, tool.ErrText(err))
	}
	var kept bytes.Buffer
	count := &counted{w: &kept}
	p := &packer{tarRun: t, tw: tar.NewWriter(count)}
	s := newSelection(t)
	if err := p.copyMembers(tar.NewReader(bytes.NewReader(data)), func(h *tar.Header) bool { return !s.wants(h.Name) }); err != nil {
		return t.fatal("%s: %v", t.file, err)
	}
	if err := p.finish(count, 0); err != nil {
		return t.writeFailed(err)
	}
	s.missing()
	out, err := t.Open(t.file, vfs.WriteOnly|vfs.Truncate, 0)
	if err != nil {
		return t.writeFailed(err)
	}
	defer out.Close()
	if _, err := copyAll(t.Call, out, &kept); err != nil {
		return t.writeFailed(err)
	}
	return 0
}
