package search

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

const (
	sedPosix = 0x80 + iota
	sedDebug
	sedSandbox
	sedHelp
	sedVersion
	sedFollow
)

const sedUsage = `Usage: sed [OPTION]... SCRIPT [FILE]...
   or: sed [OPTION]... -e SCRIPT|-f SCRIPTFILE... [FILE]...
Reads lines from each FILE, or from standard input, runs the script on each, and
prints what it makes of them.

What to run:
  -e, --expression=SCRIPT   run SCRIPT; with several -e and -f, one after another
  -f, --file=SCRIPTFILE     run the script that a file holds
  -E, -r, --regexp-extended patterns are extended regular expressions, as egrep's

What to read and write:
  -i[SUFFIX], --in-place[=SUFFIX]
                            write back to each FILE, and keep the old one with
                            SUFFIX at the end of its name, if there is one
      --follow-symlinks     with -i: change the file that a link leads to
  -n, --quiet, --silent     print nothing unless the script says so
  -s, --separate            line numbers and $ are those of each FILE
  -u, --unbuffered          read and write line by line
  -z, --null-data           lines end in a zero byte
  -l N, --line-length=N     the l command breaks lines after N columns

What not to do:
      --posix               no extension that POSIX does not have
      --sandbox             refuse the commands e, r and w

      --debug               not supported here
      --help, --version     print this text, or the version
`

// sedOut is an output file.
type sedOut struct {
	w       *bufio.Writer
	f       tool.File // nil for the program's standard output
	missing bool      // the newline of the last line
}

// sed is one run of sed.
type sed struct {
	*tool.Call
	cmds     []*sedCmd
	quiet    bool
	separate bool
	inPlace  bool
	suffix   string
	follow   bool
	unbuf    bool
	posix    bool
	strict   bool // the environment asks for POSIX behaviour
	end      byte
	wrap     int
	out      *sedOut // where the pattern space goes
	stdout   *sedOut
	files    map[string]*sedOut
	readers  map[string]*bufio.Reader
	closers  []tool.File
	input    sedInput
	status   int
	sedState
}

func sedMain(c *tool.Call) int {
	f, ok := c.Flags("bsnrzuEe:f:l:i::V:hs", "expression=e", "file=f", "in-place=i", "line-length=l", "null-data=z", "zero-terminated=z", "quiet=n", "silent=n",
		"regexp-extended=E", "separate=s", "unbuffered=u", "binary=b", long("posix", sedPosix, ""), long("debug", sedDebug, ""), long("sandbox", sedSandbox, ""),
		long("help", sedHelp, ""), long("version", sedVersion, ""), long("follow-symlinks", sedFollow, ""))
	if !ok {
		return 1
	}
	switch {
	case f.Has(sedHelp):
		fmt.Fprint(c.Out, sedUsage)
		return 0
	case f.Has(sedVersion):
		fmt.Fprintln(c.Out, "sed (GNU sed compatible, simulated) 4.9")
		return 0
	case f.Has(sedDebug):
		return c.Errorf(1, "--debug is not supported")
	}
	s := &sed{Call: c, quiet: f.Has('n'), separate: f.Has('s') || f.Has('i'), inPlace: f.Has('i'), suffix: f.Value('i', ""), follow: f.Has(sedFollow),
		unbuf: f.Has('u'), posix: f.Has(sedPosix), end: '\n', wrap: 70, files: map[string]*sedOut{}, readers: map[string]*bufio.Reader{}}
	if f.Has('z') {
		s.end = 0
	}
	if v := f.Value('l', ""); v != "" {
		n := 0
		if _, err := fmt.Sscanf(v, "%d", &n); err != nil || n < 0 {
			return c.Errorf(1, "invalid line length: %s", v)
		}
		if s.wrap = n; n == 1 {
			s.wrap = 0
		}
	} else if n, err := strconv.Atoi(c.Getenv("COLS")); err == nil && n > 1 {
		s.wrap = n - 1
	}
	s.strict = s.posix || c.Getenv("POSIXLY_CORRECT") != ""
	s.stdout = &sedOut{w: bufio.NewWriterSize(c.Out, 64<<10)}
	s.out = s.stdout
	args, err := s.script(f)
	if err != nil {
		s.flush()
		if c.Stopped(err) {
			return 1
		}
		var fatal *sedFatal
		if errors.As(err, &fatal) {
			return c.Errorf(4, "%s", fatal)
		}
		return c.Errorf(1, "%s", err)
	}
	if len(args) == 0 {
		if s.inPlace {
			return c.Errorf(4, "no input files")
		}
		args = []string{"-"}
	}
	s.input.names = args
	status := s.run()
	if !s.closeAll() && status == 0 {
		status = 4
	}
	return status
}

// script reads the script from the options.
func (s *sed) script(f tool.Flags) (args []string, err error) {
	args = f.Args
	p := &sedParser{posix: s.posix, strict: s.strict, bytes: bytesLocale(s.Call), ext: f.Has('E') || f.Has('r'), open: s.open, budget: s.Step, memory: s.Pay, sandbox: f.Has(sedSandbox)}
	var text strings.Builder
	add := func(c sedChunk, t string) {
		if len(p.chunks) > 0 {
			text.WriteByte('\n')
		}
		c.start = text.Len()
		p.chunks = append(p.chunks, c)
		text.WriteString(t)
	}
	n := 0
	for _, o := range f.All {
		switch o.Letter {
		case 'e':
			n++
			add(sedChunk{num: n}, o.Value)
		case 'f':
			in, err := s.OpenIn(o.Value)
			if err != nil {
				return nil, &sedFatal{fmt.Errorf("couldn't open file %s: %s", o.Value, tool.ErrText(err))}
			}
			data, err := s.ReadAll(in)
			_ = in.Close() // it was read
			if err != nil {
				return nil, err
			}
			text := string(data)
			if !strings.HasSuffix(text, "\r\n") { // \r\n ends a command, \r alone does not
				text = strings.TrimSuffix(text, "\n")
			}
			add(sedChunk{name: o.Value}, text)
		}
	}
	if len(p.chunks) == 0 {
		if len(args) == 0 {
			fmt.Fprint(s.Err, sedUsage)
			return nil, tool.ErrStop
		}
		add(sedChunk{num: 1}, args[0])
		args = args[1:]
	}
	p.s = text.String()
	if len(p.s) > 1<<20 {
		return nil, errors.New("script too long")
	}
	if strings.HasPrefix(p.s, "#n") {
		s.quiet = true
	}
	if err := p.parse(); err != nil {
		return nil, err
	}
	s.cmds = p.cmds
	return args, nil
}

// open opens a file for writing. It opens each file once.
func (s *sed) open(name string) (*sedOut, error) {
	if name == "/dev/stdout" {
		return s.stdout, nil
	}
	if o := s.files[name]; o != nil {
		return o, nil
	}
	if name == "/dev/stderr" {
		o := &sedOut{w: bufio.NewWriter(s.Err)}
		s.files[name] = o
		return o, nil
	}
	f, err := s.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return nil, fmt.Errorf("couldn't open file %s: %s", name, tool.ErrText(err))
	}
	o := &sedOut{w: bufio.NewWriterSize(f, 4096), f: f}
	s.files[name] = o
	return o, nil
}

// flush writes the buffered output.
func (s *sed) flush() bool { return s.stdout.w.Flush() == nil }

func (s *sed) closeAll() bool {
	ok := true
	for name, o := range s.files {
		if err := o.w.Flush(); err != nil && !s.Stopped(err) {
			s.Errorf(4, "couldn't write to %s: %s", name, tool.ErrText(err))
			ok = false
		}
		if o.f != nil {
			_ = o.f.Close() // flushed
		}
	}
	for _, f := range s.closers {
		_ = f.Close() // it was read
	}
	if err := s.stdout.w.Flush(); err != nil {
		if !s.Stopped(err) {
			s.Errorf(4, "couldn't flush stdout: %s", tool.ErrText(err))
		}
		ok = false
	}
	return ok
}

// beginFile opens the output for a file that is edited in place.
func (s *sed) beginFile(name string) error {
	info, err := s.FS().Stat(s.Abs(name))
	if err != nil {
		return err
	}
	if !info.Mode.IsRegular() {
		return fmt.Errorf("couldn't edit %s: not a regular file", name)
	}
	target := name
	var r [6]byte
	s.Random(r[:])
	for i := range r {
		r[i] = "abcdefghijklmnopqrstuvwxyzABCDEF"[r[i]&31]
	}
	tmp := path.Join(path.Dir(s.Abs(target)), "sed"+string(r[:]))
	f, err := s.Open(tmp, vfs.WriteOnly|vfs.CreateNew|vfs.Exclusive, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't open temporary file %s: %s", tmp, tool.ErrText(err))
	}
	s.input.target, s.input.tmp, s.input.mode = target, tmp, info.Mode
	s.out = &sedOut{w: bufio.NewWriterSize(f, 64<<10), f: f}
	return nil
}

// endFile replaces the file with the output.
func (s *sed) endFile() error {
	if s.input.tmp == "" {
		return nil
	}
	in := &s.input
	err := s.out.w.Flush()
	_ = s.out.f.Close() // flushed
	s.out = s.stdout
	tmp := in.tmp
	in.tmp = ""
	if err != nil {
		_ = s.FS().Remove(tmp)
		return err
	}
	target := s.Abs(in.target)
	if info, err := s.FS().Stat(target); err == nil {
		_ = s.FS().Chown(tmp, info.UID, info.GID) // as far as one may
	}
	_ = s.FS().Chmod(tmp, in.mode.Perm()) // one's own new file
	if s.suffix != "" && s.suffix != "*" {
		backup := in.target + s.suffix
		if strings.Contains(s.suffix, "*") {
			backup = strings.ReplaceAll(s.suffix, "*", in.target)
		}
		if err := s.FS().Rename(target, s.Abs(backup)); err != nil {
			_ = s.FS().Remove(tmp)
			return fmt.Errorf("cannot rename %s: %s", in.target, tool.ErrText(err))
		}
	}
	return s.FS().Rename(tmp, target)
}

// bytesLocale reports whether characters are single bytes. This is so in the C locale, by name.
func bytesLocale(c *tool.Call) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := c.Getenv(name); v != "" {
			return v == "C" || v == "POSIX"
		}
	}
	return false
}

// resolve follows the links of a name (--follow-symlinks). A link's target is relative to the
// link's directory.
func (s *sed) resolve(name string) (string, error) {
	for range 40 {
		info, err := s.FS().Lstat(s.Abs(name))
		if err != nil {
			return "", fmt.Errorf("couldn't readlink %s: %s", name, tool.ErrText(err))
		}
		if info.Mode&fs.ModeSymlink == 0 {
			return name, nil
		}
		to, err := s.FS().Readlink(s.Abs(name))
		if err != nil {
			return "", fmt.Errorf("couldn't readlink %s: %s", name, tool.ErrText(err))
		}
		if dir, _ := path.Split(name); !path.IsAbs(to) {
			to = dir + to
		}
		name = to
	}
	return "", fmt.Errorf("couldn't follow symlink %s: Too many levels of symbolic links", name)
}
