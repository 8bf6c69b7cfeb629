package files

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// syncer is one run of rsync between two places of this machine. It copies whole files, because
// finding their changed parts would save nothing.
type syncer struct {
	*tool.Call
	out                                          *bufio.Writer
	recurse, links, perms, times, owner, group   bool
	follow, dry, verbose, itemize, update, byCRC bool
	sizeOnly, ignoreTimes, existing, ignoreOld   bool
	remove, removeExcluded, move, dirs           bool
	rules                                        []syncRule
	total, sent                                  int64
	created                                      bool // this run has made the destination
	status                                       int
}

// syncRule is one --include or --exclude.
type syncRule struct {
	pattern  string
	include  bool
	anchored bool
	dirOnly  bool
}

// syncFrame is a directory to process.
type syncFrame struct {
	src, dst, rel string
	info          vfs.Info
}

func rsync(c *tool.Call) int {
	f, ok := c.Flags("avrnuciltpgodDLzhqWxHPEAXSCI\x80\x81:\x82:\x83\x84\x85\x86\x87\x88\x89:\x8a\x8b\x8c:\x8d\x8ee:f:", "archive=a", "verbose=v", "recursive=r", "dry-run=n", "update=u", "checksum=c",
		"itemize-changes=i", "links=l", "times=t", "perms=p", "group=g", "owner=o", "dirs=d", "copy-links=L", "compress=z", "human-readable=h", "quiet=q", "whole-file=W",
		"one-file-system=x", "hard-links=H", "progress=\x8d", "partial=\x8d", "inplace=\x8d", "numeric-ids=\x8d", "no-inc-recursive=\x8d", "info=\x8c:", "executability=E", "acls=A", "xattrs=X", "sparse=S", "delete=\x80", "del=\x80",
		"delete-during=\x80", "delete-before=\x80", "delete-after=\x80", "exclude=\x81", "include=\x82", "delete-excluded=\x83", "existing=\x84", "ignore-existing=\x85", "size-only=\x86",
		"ignore-times=I", "remove-source-files=\x88", "exclude-from=\x89", "stats=\x8d", "no-perms=\x8a", "no-p=\x8a", "no-times=\x8b", "no-t=\x8b", "mkpath=\x8e", "rsh=e", "filter=f", "cvs-exclude=C", "force=\x8d")
	if !ok {
		return 1
	}
	s := &syncer{Call: c, out: c.Buffered()}
	for _, o := range f.All {
		switch o.Letter {
		case 'a':
			s.recurse, s.links, s.perms, s.times, s.owner, s.group = true, true, true, true, true, true
		case '\x8a':
			s.perms = false
		case '\x8b':
			s.times = false
		case '\x81', '\x82':
			s.rule(o.Value, o.Letter == '\x82')
		case 'f':
			kind, pattern, found := strings.Cut(o.Value, " ")
			if !found || kind != "-" && kind != "+" {
				return c.Errorf(1, "filter rules other than \"- PATTERN\" and \"+ PATTERN\" are not known here: `%s'", o.Value)
			}
			s.rule(pattern, kind == "+")
		case '\x89':
			if code := s.rulesFrom(o.Value); code != 0 {
				return code
			}
		}
	}
	has := func(to *bool, letter byte) { *to = *to || f.Has(letter) }
	for letter, to := range map[byte]*bool{'r': &s.recurse, 'l': &s.links, 'p': &s.perms, 't': &s.times, 'o': &s.owner, 'g': &s.group, 'L': &s.follow, 'n': &s.dry, 'v': &s.verbose, 'P': &s.verbose,
		'i': &s.itemize, 'u': &s.update, 'c': &s.byCRC, '\x86': &s.sizeOnly, 'I': &s.ignoreTimes, '\x84': &s.existing, '\x85': &s.ignoreOld, '\x80': &s.remove, '\x83': &s.removeExcluded, '\x88': &s.move, 'd': &s.dirs} {
		has(to, letter)
	}
	s.remove = s.remove || s.removeExcluded
	s.verbose = s.verbose && !f.Has('q')
	switch {
	case len(f.Args) == 0:
		return usage(c, 1, "missing operand")
	case s.remove && !s.recurse && !s.dirs:
		return c.Errorf(1, "--delete does not work without --recursive (-r) or --dirs (-d).")
	}
	for _, a := range f.Args {
		host, _, found := strings.Cut(a, ":")
		if found && !strings.Contains(host, "/") {
			return c.Errorf(1, "%s: the simulated machine reaches no other by rsync; curl and wget go through the sandbox's policy, and carrel cp brings files in and out", a)
		}
	}
	if len(f.Args) == 1 {
		f.Args = append(f.Args, "")
		s.dry, s.verbose = true, true
	}
	s.run(f.Args[:len(f.Args)-1], f.Args[len(f.Args)-1], f.Has('\x8e'))
	return c.Flush(s.out, s.status)
}

// rule adds an include or exclude rule.
func (s *syncer) rule(p string, include bool) {
	r := syncRule{include: include}
	r.pattern = strings.TrimSuffix(p, "/")
	r.dirOnly = r.pattern != p
	if t := strings.TrimPrefix(r.pattern, "/"); t != r.pattern {
		r.pattern, r.anchored = t, true
	}
	s.rules = append(s.rules, r)
}

// rulesFrom reads a file of patterns.
func (s *syncer) rulesFrom(name string) int {
	in, err := s.OpenIn(name)
	if err != nil {
		return s.Errorf(11, "failed to open exclude file %s: %s", name, errText(err))
	}
	defer in.Close()
	err = s.Lines(in, '\n', func(l []byte, _ bool) error {
		text := string(l)
		if text == "" || text[0] == '#' || text[0] == ';' {
			return nil
		}
		include := strings.HasPrefix(text, "+ ")
		s.rule(strings.TrimPrefix(strings.TrimPrefix(text, "+ "), "- "), include)
		return s.Pay(int64(len(l)) + 64)
	})
	if err != nil {
		return 11
	}
	return 0
}

// excluded reports whether the rules exclude a name. rel is its path in the transfer.
func (s *syncer) excluded(rel string, dir bool) bool {
	for _, r := range s.rules {
		if (!r.dirOnly || dir) && r.matches(rel) {
			return !r.include
		}
	}
	return false
}

func (r syncRule) matches(rel string) bool {
	p, flags := r.pattern, globPath
	if tree, ok := strings.CutSuffix(p, "/***"); ok {
		sub := r
		sub.pattern = tree
		if sub.matches(rel) {
			return true
		}
		p = tree + "/**"
	}
	if strings.Contains(p, "**") {
		flags = 0
	}
	if r.anchored {
		return globMatch(p, rel, flags)
	}
	if !strings.Contains(p, "/") && flags != 0 {
		return globMatch(p, path.Base(rel), flags)
	}
	for {
		if globMatch(p, rel, flags) {
			return true
		}
		_, rest, more := strings.Cut(rel, "/")
		if !more {
			return false
		}
		rel = rest
	}
}

// fail reports a failed operation.
func (s *syncer) fail(what, name string, err error) {
	if s.Stopped(err) {
		return
	}
	_ = s.out.Flush() // the flush at the end reports
	fmt.Fprintf(s.Err, "rsync: [sender] %s %q failed: %s (%d)\n", what, s.Abs(name), errText(err), errNumber(err))
	s.status = 23
}

// errNumber returns the kernel's number for an error.
func errNumber(err error) int {
	for _, no := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EEXIST, syscall.ENOTDIR, syscall.EISDIR, syscall.ENOSPC, syscall.ENOTEMPTY, syscall.EROFS} {
		if errText(err) == errText(no) {
			return int(no)
		}
	}
	return int(syscall.EIO)
}

// run copies the sources to a destination.
func (s *syncer) run(sources []string, dest string, parents bool) {
	var found []vfs.Info
	sources = slices.DeleteFunc(slices.Clone(sources), func(src string) bool {
		i, err := s.stat(src, strings.HasSuffix(src, "/"))
		if err != nil {
			s.fail("link_stat", src, err)
			return true
		}
		found = append(found, i)
		return false
	})
	if s.verbose && s.recurse {
		fmt.Fprintln(s.out, "sending incremental file list")
	}
	if !s.recurse && !s.dirs {
		keep := found[:0]
		sources = slices.DeleteFunc(sources, func(src string) bool {
			i, err := s.stat(src, strings.HasSuffix(src, "/"))
			if err == nil && i.Mode.IsDir() {
				fmt.Fprintf(s.out, "skipping directory %s\n", cmpOr(lastName(src), "."))
				return true
			}
			keep = append(keep, i)
			return false
		})
		found = keep
	}
	into := len(sources) > 1 || strings.HasSuffix(dest, "/") || isDir(s.Call, dest) || len(found) == 1 && found[0].Mode.IsDir()
	if len(sources) > 0 && into && !isDir(s.Call, dest) && dest != "" {
		if !s.dry {
			err := s.FS().Mkdir(s.Abs(strings.TrimRight(dest, "/")), 0o777&^s.Umask())
			if parents && notExist(err) {
				err = s.FS().MkdirAll(s.Abs(dest), 0o777&^s.Umask())
			}
			if err != nil {
				_ = s.out.Flush() // the flush at the end reports
				fmt.Fprintf(s.Err, "rsync: [Receiver] mkdir %q failed: %s (%d)\nrsync error: error in file IO (code 11)\n", s.Abs(strings.TrimRight(dest, "/")), errText(err), errNumber(err))
				s.status = 11
				return
			}
			s.created = true
		}
		if s.verbose || s.itemize {
			fmt.Fprintf(s.out, "created directory %s\n", strings.TrimRight(dest, "/"))
		}
	}
	for i, src := range sources {
		info := found[i]
		to, rel := dest, lastName(src)
		if into {
			to = under(dest, rel)
		}
		if strings.HasSuffix(src, "/") && info.Mode.IsDir() || rel == "." || rel == ".." {
			to, rel = dest, ""
		}
		if rel != "" && s.excluded(rel, info.Mode.IsDir()) {
			continue
		}
		if info.Mode.IsDir() {
			s.tree(syncFrame{src, to, rel, info})
		} else {
			s.file(src, to, rel, info)
		}
		if s.Ctx.Err() != nil {
			return
		}
	}
	if s.verbose {
		dry := ""
		if s.dry {
			dry = " (DRY RUN)"
		}
		sent := s.sent + 100
		fmt.Fprintf(s.out, "\nsent %s bytes  received 35 bytes  %s.00 bytes/sec\ntotal size is %s  speedup is %.2f%s\n", commas(sent), commas(2*(sent+35)), commas(s.total), float64(s.total)/float64(sent+35), dry)
	}
	if s.status == 23 {
		_ = s.out.Flush() // the flush at the end reports
		fmt.Fprintln(s.Err, "rsync error: some files/attrs were not transferred (see previous errors) (code 23)")
	}
}

// commas writes a number with commas between thousands.
func commas(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func (s *syncer) stat(name string, follow bool) (vfs.Info, error) {
	if follow || s.follow {
		return statOf(s.Call, name)
	}
	return lstat(s.Call, name)
}

// tree copies a directory: first its files, then its directories one by one.
func (s *syncer) tree(top syncFrame) {
	stack, made := []syncFrame{top}, []syncFrame{}
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		entries, err := s.FS().ReadDir(s.Abs(f.src))
		if err != nil {
			s.fail("opendir", f.src, err)
			continue
		}
		cost := int64(len(entries)) * costEntry
		if s.Pay(cost) != nil || !s.Step(4+len(entries)) {
			return
		}
		keep := map[string]bool{}
		var dirs []syncFrame
		entries = slices.DeleteFunc(entries, func(i vfs.Info) bool {
			rel := joinRel(f.rel, i.Name)
			if s.follow && isLink(i.Mode) {
				if t, err := statOf(s.Call, under(f.src, i.Name)); err == nil {
					t.Name = i.Name
					i = t
				}
			}
			if s.excluded(rel, i.Mode.IsDir()) {
				keep[i.Name] = !s.removeExcluded
				return true
			}
			keep[i.Name] = true
			if i.Mode.IsDir() {
				dirs = append(dirs, syncFrame{under(f.src, i.Name), under(f.dst, i.Name), rel, i})
			}
			return i.Mode.IsDir()
		})
		if s.remove {
			s.prune(f, keep)
		}
		if !s.directory(f) {
			continue
		}
		made = append(made, f)
		for _, i := range entries {
			src := under(f.src, i.Name)
			if s.follow && isLink(i.Mode) {
				t, err := statOf(s.Call, src)
				if err != nil {
					s.fail("stat", src, err)
					continue
				}
				t.Name = i.Name
				i = t
			}
			if s.file(src, under(f.dst, i.Name), joinRel(f.rel, i.Name), i); s.Ctx.Err() != nil {
				return
			}
		}
		if s.recurse {
			slices.Reverse(dirs)
			stack = append(stack, dirs...)
		}
	}
	for _, f := range slices.Backward(made) { // making files in them has changed their times
		if s.times && !s.dry {
			_ = s.FS().SetTimes(s.Abs(f.dst), vfs.Times{Modified: f.info.Modified}) // as far as it is allowed
		}
	}
}

// joinRel joins paths within the transfer.
func joinRel(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// prune removes files that the source does not have.
func (s *syncer) prune(f syncFrame, keep map[string]bool) {
	old, err := s.FS().ReadDir(s.Abs(f.dst))
	if err != nil {
		return // it is not there yet
	}
	for _, i := range slices.Backward(old) {
		rel := joinRel(f.rel, i.Name)
		if keep[i.Name] || !s.removeExcluded && s.excluded(rel, i.Mode.IsDir()) {
			continue
		}
		name := under(f.dst, i.Name)
		walk(s.Call, name, followNone, func(v visit) next {
			if v.err != nil || v.info.Mode.IsDir() && !v.post {
				return goOn
			}
			shown := rel + strings.TrimPrefix(v.path, name)
			if v.info.Mode.IsDir() {
				shown += "/"
			}
			switch {
			case s.itemize:
				fmt.Fprintf(s.out, "*deleting   %s\n", shown)
			case s.verbose:
				fmt.Fprintf(s.out, "deleting %s\n", shown)
			}
			if !s.dry {
				if err := s.FS().Remove(s.Abs(v.path)); err != nil {
					s.fail("delete_file: unlink", v.path, err)
				}
			}
			return goOn
		})
	}
}

// directory makes a directory or updates its attributes.
func (s *syncer) directory(f syncFrame) bool {
	shown := cmpOr(f.rel, ".") + "/"
	old, err := lstat(s.Call, cmpOr(f.dst, "."))
	if err == nil && !old.Mode.IsDir() && isLink(old.Mode) {
		if t, terr := statOf(s.Call, f.dst); terr == nil && t.Mode.IsDir() {
			old = t
		}
	}
	exists := err == nil && old.Mode.IsDir()
	if !exists && s.existing {
		return false
	}
	if !exists && !s.dry {
		if err == nil {
			err = s.FS().Remove(s.Abs(f.dst))
		}
		if err == nil || notExist(err) {
			err = s.FS().Mkdir(s.Abs(f.dst), f.info.Mode.Perm()&^s.Umask()|0o700)
		}
		if err != nil {
			s.fail("recv_generator: mkdir", f.dst, err)
			return false
		}
	}
	known := exists && (f.rel != "" || !s.created)
	change := s.changes('d', f.info, old, known, false)
	s.tell(".d", "cd", change, known, shown, known && strings.Trim(change, ".") == "")
	if !s.dry {
		s.attributes(f.dst, f.info)
	}
	return true
}

// changes returns the nine letters of -i.
func (s *syncer) changes(kind byte, i, old vfs.Info, exists, sum bool) string {
	b := []byte(".........")
	if !exists {
		return "+++++++++"
	}
	if sum {
		b[0] = 'c'
	}
	if kind == 'f' && i.Size != old.Size {
		b[1] = 's'
	}
	if s.times && !i.Modified.Equal(old.Modified) && (kind != 'd' || i.Modified.Unix() != old.Modified.Unix()) {
		b[2] = 't'
	}
	if s.perms && kind != 'L' && permBits(i.Mode) != permBits(old.Mode) {
		b[3] = 'p'
	}
	if s.owner && s.UID() == 0 && i.UID != old.UID {
		b[4] = 'o'
	}
	if s.group && s.UID() == 0 && i.GID != old.GID {
		b[5] = 'g'
	}
	return string(b)
}

// tell writes a line about a file. quiet means that nothing changed.
func (s *syncer) tell(same, moved, change string, exists bool, shown string, quiet bool) {
	if quiet {
		return
	}
	switch {
	case s.itemize && exists:
		fmt.Fprintf(s.out, "%s%s %s\n", same, change, shown)
	case s.itemize:
		fmt.Fprintf(s.out, "%s%s %s\n", moved, change, shown)
	case s.verbose:
		fmt.Fprintln(s.out, shown)
	}
}

// file updates one file that is not a directory.
func (s *syncer) file(src, dst, rel string, i vfs.Info) {
	if !s.Step(8) {
		return
	}
	s.total += i.Size
	old, err := lstat(s.Call, dst)
	exists := err == nil
	if s.existing && !exists || s.ignoreOld && exists {
		return
	}
	switch {
	case isLink(i.Mode) && s.links:
		s.link(dst, rel, i, old, exists)
		return
	case !i.Mode.IsRegular():
		fmt.Fprintf(s.out, "skipping non-regular file \"%s\"\n", rel)
		return
	case exists && s.update && old.Mode.IsRegular() && old.Modified.After(i.Modified):
		return
	}
	same := exists && old.Mode.IsRegular() && i.Size == old.Size
	sum := false
	if same && !s.sizeOnly {
		switch {
		case s.byCRC:
			same = s.equal(src, dst)
			sum = !same
		case s.ignoreTimes:
			same = false
		default:
			same = i.Modified.Equal(old.Modified)
		}
	}
	change := s.changes('f', i, old, exists && old.Mode.IsRegular(), sum)
	if same {
		if s.itemize && strings.Trim(change, ".") != "" {
			fmt.Fprintf(s.out, ".f%s %s\n", change, rel)
		}
		if !s.dry {
			s.attributes(dst, i)
		}
		s.taken(src)
		return
	}
	if !s.times && change[2] == '.' {
		change = change[:2] + "T" + change[3:]
	}
	s.tell(">f", ">f", change, exists, rel, false)
	if s.dry {
		return
	}
	s.sent += i.Size
	if err := s.copy(src, dst, i, old, exists); err != nil {
		s.fail("send_files: copy", src, err)
		return
	}
	s.taken(src)
}

// taken removes a source file, for --remove-source-files.
func (s *syncer) taken(src string) {
	if s.move && !s.dry {
		if err := s.FS().Remove(s.Abs(src)); err != nil {
			s.fail("sender failed to remove", src, err)
		}
	}
}

// link makes a symbolic link.
func (s *syncer) link(dst, rel string, i, old vfs.Info, exists bool) {
	if exists && isLink(old.Mode) && old.Target == i.Target {
		return
	}
	change := s.changes('L', i, old, exists && isLink(old.Mode), true)
	s.tell("cL", "cL", change, exists, rel+" -> "+i.Target, false)
	if s.dry {
		return
	}
	if exists {
		if err := s.FS().Remove(s.Abs(dst)); err != nil {
			s.fail("symlink", dst, err)
			return
		}
	}
	if err := s.FS().Symlink(i.Target, s.Abs(dst)); err != nil {
		s.fail("symlink", dst, err)
		return
	}
	if s.times {
		_ = s.FS().SetTimes(s.Abs(dst), vfs.Times{Modified: i.Modified, NoFollow: true}) // its own
	}
}

// copy writes the contents to a temporary file in the same directory, and renames it over the old
// file.
func (s *syncer) copy(src, dst string, i, old vfs.Info, exists bool) error {
	in, err := s.Open(src, vfs.ReadOnly, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	full := s.Abs(dst)
	part := path.Dir(full) + "/." + path.Base(full) + ".rsync"
	out, err := s.FS().OpenFile(part, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o600)
	if err != nil {
		return err
	}
	_, err = copyAll(s.Call, out, in)
	_ = out.Close() // written
	mode := i.Mode.Perm() &^ s.Umask()
	if exists && old.Mode.IsRegular() {
		mode = old.Mode
	}
	if err == nil {
		err = s.FS().Chmod(part, mode)
	}
	if err == nil && exists && old.Mode.IsDir() {
		err = s.FS().Remove(full)
	}
	if err == nil {
		err = s.FS().Rename(part, full)
	}
	if err != nil {
		_ = s.FS().Remove(part) // it was made here
		return err
	}
	s.attributes(dst, i)
	return nil
}

// attributes copies the requested attributes of the source.
func (s *syncer) attributes(dst string, i vfs.Info) {
	full := s.Abs(cmpOr(dst, "."))
	if s.UID() == 0 && (s.owner || s.group) {
		if old, err := s.FS().Stat(full); err == nil {
			uid, gid := old.UID, old.GID
			if s.owner {
				uid = i.UID
			}
			if s.group {
				gid = i.GID
			}
			if uid != old.UID || gid != old.GID {
				_ = s.FS().Chown(full, uid, gid) // as far as it is allowed
			}
		}
	}
	if s.perms {
		_ = s.FS().Chmod(full, i.Mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)) // as far as it is allowed
	}
	if s.times {
		_ = s.FS().SetTimes(full, vfs.Times{Modified: i.Modified}) // as far as it is allowed
	}
}

// equal reports whether two files have the same contents.
func (s *syncer) equal(a, b string) bool {
	x, err := s.Open(a, vfs.ReadOnly, 0)
	if err != nil {
		return false
	}
	defer x.Close()
	y, err := s.Open(b, vfs.ReadOnly, 0)
	if err != nil {
		return false
	}
	defer y.Close()
	p, q := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, err := io.ReadFull(x, p)
		m, _ := io.ReadFull(y, q) // a shorter one differs
		if !s.Step(1+n>>8) || !bytes.Equal(p[:n], q[:m]) {
			return false
		}
		if err != nil {
			return true
		}
	}
}
