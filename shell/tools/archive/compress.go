package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// suffixes are the file name suffixes of each format, the usual one first, with their replacements
// after decompression.
var suffixes = map[string][][2]string{
	"gzip":  {{".gz", ""}, {".tgz", ".tar"}, {".taz", ".tar"}, {".z", ""}, {"-gz", ""}, {"-z", ""}, {"_z", ""}, {".Z", ""}},
	"bzip2": {{".bz2", ""}, {".bz", ""}, {".tbz2", ".tar"}, {".tbz", ".tar"}},
	"xz":    {{".xz", ""}, {".txz", ".tar"}, {".lzma", ""}, {".tlz", ".tar"}},
	"zstd":  {{".zst", ""}, {".tzst", ".tar"}},
	"lz4":   {{".lz4", ""}},
}

// squeezer is one run of gzip or a similar program.
type squeezer struct {
	*tool.Call
	codec                                                         string
	decompress, stdout, keep, force, list, quiet, verbose, noName bool
	test, recurse                                                 bool
	suffix, output                                                string
	level                                                         int
	status                                                        int
	header                                                        bool
	sumIn, sumOut                                                 int64
	files                                                         int
}

// compressor returns the program of a format. The call's name tells which variant was called.
func compressor(codec string) tool.Command {
	return func(c *tool.Call) int {
		s := &squeezer{Call: c, codec: codec, suffix: suffixes[codec][0][0]}
		base := c.Base()
		s.decompress = strings.HasPrefix(base, "un") || strings.HasPrefix(base, "gun") || strings.HasPrefix(base, "bun") || strings.HasSuffix(base, "cat")
		s.stdout = strings.HasSuffix(base, "cat")
		s.keep = codec == "zstd" || codec == "lz4"
		if strings.HasSuffix(base, "lzma") {
			s.codec, s.suffix = "lzma", ".lzma"
			suffixOK := suffixes["xz"]
			_ = suffixOK
		}
		return s.main()
	}
}

func (s *squeezer) main() int {
	if s.codec == "zstd" {
		s.zstdOptions()
	}
	f, ok := s.Flags("acdfhklLnNqrS:tvV123456789zmT:eo:M:C:F:0bsB:p:iQ",
		"stdout=c", "to-stdout=c", "decompress=d", "uncompress=d", "force=f", "keep=k", "list=l", "no-name=n", "name=N", "quiet=q", "silent=q", "recursive=r",
		"suffix=S", "test=t", "verbose=v", "fast=1", "best=9", "compress=z", "threads=T", "extreme=e", "output=o", "rsyncable=\x81", "memlimit=M", "check=C",
		"format=F", "small=s", "synchronous=\x82", "ascii=a", "repetitive-fast=\x83", "repetitive-best=\x84", "no-sparse=\x85", "block-size=\x86:")
	if !ok {
		return 1
	}
	for _, o := range f.All {
		switch l := o.Letter; {
		case l >= '1' && l <= '9':
			s.level = int(l - '0')
		case l == 'd':
			s.decompress = true
		case l == 'z':
			s.decompress = false
		case l == 'c':
			s.stdout = true
		case l == 'k':
			s.keep = true
		case l == 'm' && s.codec == "lz4":
		case l == 'f':
			s.force = true
		case l == 'l':
			s.list = true
		case l == 'q':
			s.quiet = true
		case l == 'v':
			s.verbose = true
		case l == 'n':
			s.noName = true
		case l == 't':
			s.test, s.decompress = true, true
		case l == 'r':
			s.recurse = true
		case l == 'o':
			s.output = o.Value
		case l == 'F' && (o.Value == "lzma" || o.Value == "alone"):
			s.codec, s.suffix = "lzma", ".lzma"
		case l == 'S':
			if s.suffix = o.Value; s.suffix == "" || strings.Contains(s.suffix, "/") {
				return s.Errorf(1, "invalid suffix '%s'", o.Value)
			}
			if !strings.HasPrefix(s.suffix, ".") && s.codec == "gzip" {
				s.suffix = "." + s.suffix
			}
		}
	}
	args := f.Args
	if s.codec == "lz4" && len(args) == 2 && s.output == "" && !s.stdout && !s.test {
		s.output, args = args[1], args[:1]
		if s.output == "-" {
			s.output, s.stdout = "", true
		}
	}
	if len(args) == 0 {
		args = []string{"-"}
	}
	for i := 0; i < len(args); i++ {
		if !s.Step(16) {
			return 1
		}
		more := s.operand(args[i])
		args = append(args[:i+1], append(more, args[i+1:]...)...)
	}
	if s.list && s.files > 1 && s.codec == "gzip" {
		s.listLine(s.sumIn, s.sumOut, "(totals)")
	}
	return s.status
}

// zstdOptions removes from the arguments the options that only zstd has: -19, --ultra and the like.
func (s *squeezer) zstdOptions() {
	var rest []string
	for _, a := range s.Args {
		switch {
		case len(a) == 3 && a[0] == '-' && a[1] >= '1' && a[1] <= '2' && a[2] >= '0' && a[2] <= '9':
			s.level = int(a[1]-'0')*10 + int(a[2]-'0')
		case a == "--ultra", a == "--long", strings.HasPrefix(a, "--long="), strings.HasPrefix(a, "--fast"), a == "--no-progress", a == "--progress", a == "--check", a == "--no-check":
		case a == "--rm":
			s.keep = false
		default:
			rest = append(rest, a)
		}
	}
	s.Args = rest
}

// warn writes a message and makes the status 2.
func (s *squeezer) warn(format string, args ...any) {
	if !s.quiet {
		s.Errorf(2, format, args...)
	}
	if s.status == 0 {
		if s.status = 2; s.codec == "bzip2" || s.codec == "zstd" || s.codec == "lz4" {
			s.status = 1
		}
	}
}

func (s *squeezer) fail(format string, args ...any) { s.status = s.Errorf(1, format, args...) }

// operand handles one file. For a directory it returns the names in it.
func (s *squeezer) operand(name string) []string {
	if name == "-" {
		s.stream()
		return nil
	}
	i, err := s.FS().Lstat(s.Abs(name))
	if err == nil && i.Mode&fs.ModeSymlink != 0 && (s.force || s.stdout || s.test || s.list || s.codec == "zstd") {
		i, err = s.FS().Stat(s.Abs(name))
	}
	if errors.Is(err, syscall.ENOENT) && s.decompress {
		for _, suf := range suffixes[strings.Replace(s.codec, "lzma", "xz", 1)] {
			if j, jerr := s.FS().Stat(s.Abs(name + suf[0])); jerr == nil && s.codec == "gzip" {
				name, i, err = name+suf[0], j, nil
				break
			}
		}
	}
	switch {
	case err != nil && s.codec == "zstd":
		s.fail("can't stat %s : %s -- ignored", name, tool.ErrText(err))
		return nil
	case err != nil && s.codec == "bzip2":
		s.fail("Can't open input file %s: %s.", name, tool.ErrText(err))
		return nil
	case err != nil:
		s.fail("%s: %s", name, tool.ErrText(err))
		return nil
	case i.Mode.IsDir() && s.recurse:
		entries, derr := s.FS().ReadDir(s.Abs(name))
		if derr != nil {
			s.fail("%s: %s", name, tool.ErrText(derr))
		}
		var more []string
		for _, e := range entries {
			if e.Mode.IsRegular() || e.Mode.IsDir() {
				more = append(more, strings.TrimSuffix(name, "/")+"/"+e.Name)
			}
		}
		return more
	case i.Mode.IsDir() && (s.codec == "xz" || s.codec == "lzma"):
		s.warn("%s: Is a directory, skipping", name)
		return nil
	case i.Mode.IsDir():
		s.warn("%s is a directory -- ignored", name)
		return nil
	case i.Mode&fs.ModeSymlink != 0:
		s.warn("%s: Too many levels of symbolic links", name)
		return nil
	}
	s.file(name, i)
	return nil
}

// target returns the name of the output file, or "" when there is none.
func (s *squeezer) target(name string) string {
	table := suffixes[strings.Replace(s.codec, "lzma", "xz", 1)]
	if !s.decompress {
		for _, suf := range append([][2]string{{s.suffix, ""}}, table...) {
			if strings.HasSuffix(name, suf[0]) && !s.force && s.codec != "zstd" && s.codec != "lz4" {
				switch s.codec {
				case "gzip":
					s.Errorf(0, "%s already has %s suffix -- unchanged", name, suf[0])
				case "bzip2":
					s.fail("Input file %s already has %s suffix.", name, suf[0])
				default:
					s.warn("%s: File already has `%s' suffix, skipping", name, suf[0])
				}
				return ""
			}
		}
		return name + s.suffix
	}
	for _, suf := range append([][2]string{{s.suffix, ""}}, table...) {
		if stem, ok := strings.CutSuffix(name, suf[0]); ok && stem != "" && !strings.HasSuffix(stem, "/") {
			return stem + suf[1]
		}
	}
	switch s.codec {
	case "gzip":
		s.warn("%s: unknown suffix -- ignored", name)
	case "bzip2":
		s.Errorf(0, "Can't guess original name for %s -- using %s.out", name, name)
		return name + ".out"
	case "zstd":
		s.fail("%s: unknown suffix (.zst expected). Can't derive the output file name. Specify it with -o dstFileName. Ignoring.", name)
	default:
		s.warn("%s: Filename has an unknown suffix, skipping", name)
	}
	return ""
}

// stream reads standard input and writes standard output.
func (s *squeezer) stream() {
	if s.list {
		s.fail("listing of standard input is not possible here")
		return
	}
	out := s.Out
	if s.test {
		out = io.Discard
	}
	if s.output != "" {
		f, err := s.Open(s.output, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			s.fail("%s: %s", s.output, tool.ErrText(err))
			return
		}
		defer f.Close()
		out = f
	}
	s.result("stdin", s.run(s.In, out, "", nil))
}

// result reports the result for one file.
func (s *squeezer) result(name string, err error) bool {
	if err == nil {
		return true
	}
	if s.Stopped(err) {
		s.status = 1
		return false
	}
	var w writeError
	text := err.Error()
	switch {
	case errors.As(err, &w):
		s.fail("%s: %s", name, tool.ErrText(w.error))
		return false
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		text = "unexpected end of file"
	case errors.Is(err, errFormat), errors.Is(err, gzip.ErrHeader):
		text = "not in " + s.codec + " format"
		if s.codec == "xz" || s.codec == "lzma" {
			text = "File format not recognized"
		}
	case errors.Is(err, gzip.ErrChecksum):
		text = "invalid compressed data--crc error"
	case s.codec == "gzip":
		text = "invalid compressed data--format violated"
	}
	switch s.codec {
	case "gzip":
		fmt.Fprintf(s.Err, "\n%s: %s: %s\n", s.Base(), name, text)
		s.status = 1
	case "bzip2":
		s.fail("%s: %s", name, text)
		s.status = 2
	default:
		s.fail("%s: %s", name, text)
	}
	return false
}

// file works on a named file.
func (s *squeezer) file(name string, i vfs.Info) {
	in, err := s.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		s.fail("%s: %s", name, tool.ErrText(err))
		return
	}
	defer in.Close()
	switch {
	case s.list:
		s.listFile(name, in, i)
		return
	case s.test:
		ok := s.result(name, s.run(in, io.Discard, "", nil))
		if s.verbose && ok {
			fmt.Fprintf(s.Err, "%s:\t OK\n", name)
		}
		return
	case s.stdout:
		s.result(name, s.run(in, s.Out, name, &i))
		return
	}
	target := s.output
	if target == "" {
		if target = s.target(name); target == "" {
			return
		}
	}
	if _, err := s.FS().Lstat(s.Abs(target)); err == nil {
		if !s.force {
			switch s.codec {
			case "gzip":
				s.Errorf(2, "%s already exists;\tnot overwritten", target)
				s.status = max(s.status, 2)
			case "bzip2":
				s.fail("Output file %s already exists.", target)
			case "zstd":
				s.fail("%s already exists; not overwritten  ", target)
			default:
				s.fail("%s: File exists", target)
			}
			return
		}
		if err := s.FS().Remove(s.Abs(target)); err != nil {
			s.fail("%s: %s", target, tool.ErrText(err))
			return
		}
	}
	out, err := s.Open(target, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		s.fail("%s: %s", target, tool.ErrText(err))
		return
	}
	err = s.run(in, out, name, &i)
	_ = out.Close() // written
	if !s.result(name, err) {
		_ = s.FS().Remove(s.Abs(target)) // do not leave a partial file
		return
	}
	full := s.Abs(target)
	_ = s.FS().Chmod(full, i.Mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)) // its own
	_ = s.FS().SetTimes(full, vfs.Times{Accessed: i.Accessed, Modified: i.Modified})       // its own
	if s.verbose {
		o, _ := s.FS().Stat(full) // it was just written
		big, small := i.Size, o.Size
		if s.decompress {
			big, small = small, big
		}
		did := "replaced with"
		if s.keep {
			did = "created"
		}
		fmt.Fprintf(s.Err, "%s:\t%s -- %s %s\n", name, ratio(big, small), did, target)
	}
	if !s.keep && s.output == "" {
		if err := s.FS().Remove(s.Abs(name)); err != nil {
			s.fail("%s: %s", name, tool.ErrText(err))
		}
	}
}

// ratio returns the saved part, as gzip prints it.
func ratio(big, small int64) string {
	if big == 0 {
		return "  0.0%"
	}
	return fmt.Sprintf("%5.1f%%", float64(big-small+18)*100/float64(big))
}

// run compresses or decompresses one stream.
func (s *squeezer) run(in io.Reader, out io.Writer, name string, i *vfs.Info) error {
	if !s.decompress {
		w, err := encoder(s.Call, s.codec, s.level, out)
		if err != nil {
			return err
		}
		if g, ok := w.(*gzip.Writer); ok && !s.noName && name != "" && i != nil {
			g.Name, g.ModTime = latin1(name[strings.LastIndexByte(name, '/')+1:]), i.Modified
		}
		if _, err := copyAll(s.Call, w, in); err != nil {
			return err
		}
		return w.Close()
	}
	br := bufio.NewReaderSize(in, 64<<10)
	found := sniff(br)
	switch {
	case found == "" || found != s.codec && !(s.codec == "xz" && found == "lzma"):
		if s.force && s.stdout {
			_, err := copyAll(s.Call, out, br)
			return err
		}
		if _, err := br.Peek(1); err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return errFormat
	}
	r, err := decoder(s.Call, found, br)
	if err != nil {
		return err
	}
	_, err = copyAll(s.Call, out, r)
	return err
}

// latin1 returns a name in the form that gzip's header can hold.
func latin1(s string) string {
	for _, r := range s {
		if r == 0 || r > 0xff {
			return ""
		}
	}
	return s
}

// listFile is gzip -l for one file.
func (s *squeezer) listFile(name string, in io.Reader, i vfs.Info) {
	br := bufio.NewReaderSize(in, 64<<10)
	if sniff(br) != s.codec {
		s.result(name, errFormat)
		return
	}
	r, err := decoder(s.Call, s.codec, br)
	var size int64
	if err == nil {
		size, err = copyAll(s.Call, io.Discard, r)
	}
	if !s.result(name, err) {
		return
	}
	s.files++
	s.sumIn += i.Size
	s.sumOut += size
	target := name
	for _, suf := range suffixes[s.codec] {
		if stem, ok := strings.CutSuffix(name, suf[0]); ok {
			target = stem + suf[1]
			break
		}
	}
	s.listLine(i.Size, size, target)
}

func (s *squeezer) listLine(small, big int64, name string) {
	if !s.header && !s.quiet {
		s.header = true
		fmt.Fprintln(s.Out, "         compressed        uncompressed  ratio uncompressed_name")
	}
	saved := 0.0
	if big > 0 {
		saved = float64(big-(small-18-int64(len(name))-1)) * 100 / float64(big)
	}
	fmt.Fprintf(s.Out, "%19d %19d %5.1f%% %s\n", small, big, saved, name)
}

// opened returns a named input, decompressed if it is compressed.
func opened(c *tool.Call, name string) (io.Reader, io.Closer, error) {
	in, err := c.OpenIn(name)
	if err != nil {
		return nil, nil, err
	}
	br := bufio.NewReaderSize(in, 64<<10)
	r, err := decoder(c, sniff(br), br)
	if err != nil {
		_ = in.Close()
		return nil, nil, err
	}
	return r, in, nil
}

// zgrep is grep in compressed files.
func zgrep(c *tool.Call) int {
	prog := "grep"
	if c.Base() == "zegrep" {
		prog = "egrep"
	} else if c.Base() == "zfgrep" {
		prog = "fgrep"
	}
	var opts, files []string
	pattern, names, quietNames := false, false, false
	for i := 0; i < len(c.Args); i++ {
		a := c.Args[i]
		switch {
		case a == "--":
			files = append(files, c.Args[i+1:]...)
			i = len(c.Args)
		case a == "-e" || a == "-f" || a == "-m" || a == "-A" || a == "-B" || a == "-C":
			opts = append(opts, a)
			if i++; i < len(c.Args) {
				opts = append(opts, c.Args[i])
			}
			pattern = pattern || a == "-e" || a == "-f"
		case len(a) > 1 && a[0] == '-':
			opts = append(opts, a)
			pattern = pattern || strings.HasPrefix(a, "-e") || strings.HasPrefix(a, "--regexp")
			if !strings.HasPrefix(a, "--") {
				names = names || strings.Contains(a, "H")
				quietNames = quietNames || strings.Contains(a, "h")
			}
		default:
			files = append(files, a)
		}
	}
	if !pattern {
		if len(files) == 0 {
			return c.Errorf(2, "missing pattern; try '%s --help' for help", c.Base())
		}
		opts = append(opts, "-e", files[0])
		files = files[1:]
	}
	if len(files) == 0 {
		files = []string{"-"}
	}
	status := 1
	for _, name := range files {
		r, closer, err := opened(c, name)
		if err != nil {
			c.Errorf(2, "%s: %s", name, tool.ErrText(err))
			status = 2
			continue
		}
		args := append([]string{prog}, opts...)
		if (len(files) > 1 || names) && !quietNames {
			args = append(args, "-H", "--label="+name)
		} else if hasLabel(opts) {
			args = append(args, "--label="+name)
		}
		s := c.Run(tool.Child{Args: append(args, "-"), In: r})
		_ = closer.Close() // it was read
		if s == 0 && status == 1 {
			status = 0
		} else if s > 1 {
			status = s
		}
	}
	return status
}

func hasLabel(opts []string) bool {
	for _, o := range opts {
		if !strings.HasPrefix(o, "--") && strings.ContainsAny(o, "lL") {
			return true
		}
	}
	return false
}

// zdiff compares compressed files. It writes their contents to temporary files.
func zdiff(c *tool.Call) int {
	var opts, files []string
	for _, a := range c.Args {
		if len(a) > 1 && a[0] == '-' {
			opts = append(opts, a)
		} else {
			files = append(files, a)
		}
	}
	if len(files) == 1 && strings.HasSuffix(files[0], ".gz") {
		files = append(files, strings.TrimSuffix(files[0], ".gz"))
	}
	if len(files) != 2 {
		return c.Errorf(2, "two files are needed")
	}
	prog := "diff"
	if c.Base() == "zcmp" {
		prog = "cmp"
	}
	args := append([]string{prog}, opts...)
	if c.FS().Mkdir("/tmp", 0o777) == nil {
		_ = c.FS().Chmod("/tmp", 0o777|fs.ModeSticky) // it was missing
	}
	for _, name := range files {
		r, closer, err := opened(c, name)
		if err != nil {
			return c.Errorf(2, "%s: %s", name, tool.ErrText(err))
		}
		b := make([]byte, 8)
		c.Random(b)
		tmp := fmt.Sprintf("/tmp/zdiff.%x", b)
		out, err := c.Open(tmp, vfs.WriteOnly|vfs.CreateNew|vfs.Exclusive, 0o600)
		if err == nil {
			_, err = copyAll(c, out, r)
			_ = out.Close() // written
			defer func() { _ = c.FS().Remove(tmp) }()
		}
		_ = closer.Close() // it was read
		if err != nil {
			return c.Errorf(2, "%s: %s", name, tool.ErrText(err))
		}
		args = append(args, tmp)
	}
	return c.Run(tool.Child{Args: args})
}

// zless prints compressed files. It has no pager.
func zless(c *tool.Call) int {
	names := c.Args
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, name := range names {
		r, closer, err := opened(c, name)
		if err != nil {
			return c.Errorf(1, "%s: %s", name, tool.ErrText(err))
		}
		_, err = copyAll(c, c.Out, r)
		_ = closer.Close() // it was read
		if err != nil {
			return 1
		}
	}
	return 0
}
