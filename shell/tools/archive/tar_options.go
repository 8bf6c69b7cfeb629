package archive

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

// operand is a name, with the directory that -C had set before it.
type operand struct{ dir, name string }

// tarRun is one run of tar.
type tarRun struct {
	*tool.Call
	op                                                                         byte
	file                                                                       string
	codec                                                                      string
	auto                                                                       bool
	verbose                                                                    int
	dir                                                                        string // -C of extraction
	operands                                                                   []operand
	absolute, deref, toStdout, keep, keepSilent, keepNewer, overwrite, noTime  bool
	keepPerm, noPerm, noOwner, sameOwner, numeric, noRecurse, totals, removeIt bool
	wildcards, null, fullTime, unlinkFirst, oneTop, ignoreFailed               bool
	blockNumber, anchored                                                      bool
	strip                                                                      int
	transforms                                                                 []transform
	exclude                                                                    []string
	excludeVCS                                                                 bool
	owner, group                                                               string
	mode                                                                       string
	mtime                                                                      time.Time
	format                                                                     string
	status                                                                     int
	out                                                                        *bufio.Writer
	said                                                                       map[string]bool
	width                                                                      int
	filesFrom                                                                  []string
	newer                                                                      time.Time
}

// shorts are tar's option letters. ':' marks letters with an argument.
const shorts = "cxtrudAf:zjJavC:pPhOT:X:kmvwBbiI:L:N:K:SUWZslnoR"

var longs = map[string]string{"create": "c", "extract": "x", "get": "x", "list": "t", "append": "r", "update": "u", "diff": "d", "compare": "d",
	"catenate": "A", "concatenate": "A", "file": "f:", "gzip": "z", "gunzip": "z", "ungzip": "z", "bzip2": "j", "xz": "J", "auto-compress": "a", "verbose": "v", "directory": "C:",
	"preserve-permissions": "p", "same-permissions": "p", "absolute-names": "P", "dereference": "h", "to-stdout": "O", "files-from": "T:",
	"exclude-from": "X:", "keep-old-files": "k", "touch": "m", "use-compress-program": "I:", "newer": "N:", "after-date": "N:", "sparse": "S",
	"unlink-first": "U", "no-same-owner": "o", "block-number": "R", "one-file-system": "l", "interactive": "w", "confirmation": "w", "ignore-zeros": "i",
	"zstd": "zstd", "lzma": "lzma", "lz4": "lz4", "exclude": "exclude:", "exclude-vcs": "vcs", "exclude-backups": "backups", "exclude-caches": "nop", "strip-components": "strip:", "strip-path": "strip:",
	"transform": "xform:", "xform": "xform:", "overwrite": "overwrite", "overwrite-dir": "nop", "no-overwrite-dir": "nop", "keep-newer-files": "newer", "skip-old-files": "skip",
	"owner": "owner:", "group": "group:", "mode": "mode:", "mtime": "mtime:", "numeric-owner": "numeric", "sort": "sort:", "no-recursion": "norec", "recursion": "rec",
	"wildcards": "wild", "no-wildcards": "nowild", "totals": "totals", "remove-files": "remove", "null": "null", "no-null": "nop", "format": "format:", "posix": "pax", "old-archive": "nop", "full-time": "fulltime",
	"delete": "delete", "same-owner": "sameowner", "preserve-order": "nop", "same-order": "nop", "no-same-permissions": "noperm", "show-transformed-names": "shown", "show-stored-names": "nop",
	"warning": "nop:", "checkpoint": "nop?", "checkpoint-action": "nop:", "no-xattrs": "nop", "xattrs": "nop", "acls": "nop", "no-acls": "nop", "selinux": "nop", "no-selinux": "nop",
	"verify": "nop", "ignore-failed-read": "ignorefail", "record-size": "nop:", "blocking-factor": "nop:", "force-local": "nop", "quoting-style": "nop:", "hard-dereference": "nop",
	"no-auto-compress": "noauto", "one-top-level": "onetop?", "no-ignore-command-error": "nop", "delay-directory-restore": "nop", "no-delay-directory-restore": "nop",
	"exclude-ignore": "exclude:", "exclude-tag": "nop:", "anchored": "anchored", "no-anchored": "nop", "ignore-case": "nop", "no-wildcards-match-slash": "nop", "wildcards-match-slash": "nop",
	"occurrence": "occ?", "clamp-mtime": "nop", "atime-preserve": "nop?", "pax-option": "nop:", "no-unquote": "nop", "unquote": "nop", "newer-mtime": "N:", "add-file": "add:", "label": "nop:", "test-label": "nop", "recursive-unlink": "nop", "utc": "nop", "level": "nop:", "listed-incremental": "nop:", "to-command": "nop:"}

// fatal writes a message, and then GNU's line about an error that ends tar.
func (t *tarRun) fatal(format string, args ...any) int {
	t.Errorf(2, format, args...)
	t.Errorf(2, "Error is not recoverable: exiting now")
	return 2
}

// fail reports an error with one member.
func (t *tarRun) fail(format string, args ...any) {
	t.status = 2
	_ = t.out.Flush()
	t.Errorf(2, format, args...)
}

// wrong reports wrong usage.
func (t *tarRun) wrong(format string, args ...any) int {
	t.Errorf(2, format, args...)
	fmt.Fprintf(t.Err, "Try '%s --help' or '%s --usage' for more information.\n", t.Base(), t.Base())
	if strings.Contains(format, "option") && !strings.Contains(format, "You m") {
		return 64
	}
	return 2
}

// expand converts options of the old style, without a dash, to the new style.
func (t *tarRun) expand(args []string) ([]string, bool) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || args[0] == "" {
		return args, true
	}
	letters, rest := args[0], args[1:]
	var out []string
	for i := range len(letters) {
		out = append(out, "-"+letters[i:i+1])
		if at := strings.IndexByte(shorts, letters[i]); letters[i] != ':' && at >= 0 && at+1 < len(shorts) && shorts[at+1] == ':' || letters[i] == 'b' {
			if len(rest) == 0 {
				t.wrong("Old option '%c' requires an argument.", letters[i])
				return nil, false
			}
			out = append(out, rest[0])
			rest = rest[1:]
		}
	}
	return append(out, rest...), true
}

// parse reads the arguments. It does not use getopt, because the order of -C and names matters.
func (t *tarRun) parse(args []string) int {
	args, ok := t.expand(args)
	if !ok {
		return 2
	}
	dir := ""
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		var opt, value string
		switch {
		case a == "--":
			for _, n := range args {
				t.operands = append(t.operands, operand{dir, n})
			}
			args = nil
			continue
		case strings.HasPrefix(a, "--"):
			name, v, has := strings.Cut(a[2:], "=")
			spec, code := t.longOption(a, name)
			if code != 0 {
				return code
			}
			opt, value = strings.TrimRight(spec, ":?"), v
			if strings.HasSuffix(spec, ":") && !has {
				if len(args) == 0 {
					return t.wrong("option '--%s' requires an argument", name)
				}
				value, args = args[0], args[1:]
			}
			if code := t.option(opt, value, &dir); code != 0 {
				return code
			}
		case len(a) > 1 && a[0] == '-':
			for i := 1; i < len(a); i++ {
				l := a[i]
				at := strings.IndexByte(shorts, l)
				if at < 0 || l == ':' {
					return t.wrong("invalid option -- '%c'", l)
				}
				value := ""
				takes := at+1 < len(shorts) && shorts[at+1] == ':' || l == 'b'
				if takes {
					if value = a[i+1:]; value == "" {
						if len(args) == 0 {
							return t.wrong("option requires an argument -- '%c'", l)
						}
						value, args = args[0], args[1:]
					}
					i = len(a)
				}
				if code := t.option(string(l), value, &dir); code != 0 {
					return code
				}
			}
		default:
			t.operands = append(t.operands, operand{dir, a})
		}
	}
	t.dir = dir
	if t.op == 0 {
		return t.wrong("You must specify one of the '-Acdtrux', '--delete' or '--test-label' options")
	}
	for _, name := range t.filesFrom {
		if code := t.readNames(name, dir); code != 0 {
			return code
		}
	}
	return 0
}

// longOption finds a long option by its name or the beginning of its name. When code is not 0, it
// has written a message, and tar ends.
func (t *tarRun) longOption(arg, name string) (spec string, code int) {
	if spec, found := longs[name]; found {
		return spec, 0
	}
	var names []string
	for n := range longs {
		if strings.HasPrefix(n, name) && !slices.ContainsFunc(names, func(o string) bool { return longs[o] == longs[n] }) {
			names = append(names, n)
		}
	}
	switch len(names) {
	case 0:
		return "", t.wrong("unrecognized option '%s'", arg)
	case 1:
		return longs[names[0]], 0
	}
	return "", t.wrong("option '--%s' is ambiguous", name)
}

// join puts a directory before a name.
func join(dir, name string) string {
	if dir == "" || strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// readNames reads the file of -T.
func (t *tarRun) readNames(name, dir string) int {
	in, err := t.OpenIn(name)
	if err != nil {
		return t.fatal("%s: Cannot open: %s", name, tool.ErrText(err))
	}
	defer in.Close()
	end := byte('\n')
	if t.null {
		end = 0
	}
	err = t.Lines(in, end, func(line []byte, _ bool) error {
		if err := t.Pay(int64(len(line) + 64)); err != nil {
			return err
		}
		if len(line) > 0 {
			t.operands = append(t.operands, operand{dir, string(line)})
		}
		return nil
	})
	if err != nil && !t.Stopped(err) {
		return t.fatal("%s: Cannot read: %s", name, tool.ErrText(err))
	}
	if len(t.operands) == 0 && t.op != 'c' {
		t.operands = append(t.operands, operand{"", "\x00"}) // no name is not all names
	}
	return 0
}

// option applies one option.
func (t *tarRun) option(opt, value string, dir *string) int {
	setOp := func(op byte) int {
		if t.op != 0 && t.op != op {
			return t.wrong("You may not specify more than one '-Acdtrux', '--delete' or  '--test-label' option")
		}
		t.op = op
		return 0
	}
	setCodec := func(codec string) int {
		if t.codec != "" && t.codec != codec {
			return t.wrong("Conflicting compression options")
		}
		t.codec = codec
		return 0
	}
	switch opt {
	case "c", "x", "t", "r", "u", "d", "A":
		return setOp(opt[0])
	case "delete":
		return setOp('D')
	case "f":
		t.file = value
	case "z":
		return setCodec("gzip")
	case "j":
		return setCodec("bzip2")
	case "J":
		return setCodec("xz")
	case "zstd", "lzma", "lz4":
		return setCodec(opt)
	case "I":
		prog := strings.Fields(value)
		names := map[string]string{"gzip": "gzip", "pigz": "gzip", "bzip2": "bzip2", "pbzip2": "bzip2", "xz": "xz", "pixz": "xz", "zstd": "zstd", "pzstd": "zstd", "zstdmt": "zstd", "lz4": "lz4", "lzma": "lzma"}
		if len(prog) == 0 || names[prog[0]] == "" {
			return t.fatal("%s: this machine's tar compresses with gzip, bzip2, xz, zstd, lz4 and lzma only", value)
		}
		return setCodec(names[prog[0]])
	case "a":
		t.auto = true
	case "noauto":
		t.auto = false
	case "v":
		t.verbose++
	case "C":
		*dir = join(*dir, value)
	case "p":
		t.keepPerm = true
	case "noperm":
		t.noPerm = true
	case "P":
		t.absolute = true
	case "h":
		t.deref = true
	case "O":
		t.toStdout = true
	case "T":
		t.filesFrom = append(t.filesFrom, value)
	case "X":
		in, err := t.OpenIn(value)
		if err != nil {
			return t.fatal("%s: Cannot open: %s", value, tool.ErrText(err))
		}
		_ = t.Lines(in, '\n', func(line []byte, _ bool) error { // what was read counts
			if len(line) > 0 {
				t.exclude = append(t.exclude, string(line))
			}
			return nil
		})
		_ = in.Close() // it was read
	case "k":
		t.keep = true
	case "skip":
		t.keepSilent = true
	case "newer":
		t.keepNewer = true
	case "overwrite":
		t.overwrite = true
	case "m":
		t.noTime = true
	case "o":
		if t.op == 'c' {
			t.format = "v7"
		} else {
			t.noOwner = true
		}
	case "sameowner":
		t.sameOwner = true
	case "U":
		t.unlinkFirst = true
	case "exclude":
		t.exclude = append(t.exclude, value)
	case "vcs":
		t.excludeVCS = true
	case "backups":
		t.exclude = append(t.exclude, ".#*", "*~", "#*#")
	case "strip":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return t.wrong("Invalid number of elements: %s", value)
		}
		t.strip = n
	case "xform":
		trs, err := parseTransform(value)
		if err != nil {
			return t.fatal("%v", err)
		}
		t.transforms = append(t.transforms, trs...)
	case "owner":
		t.owner = value
	case "group":
		t.group = value
	case "mode":
		t.mode = value
	case "mtime":
		when, ok := t.date(value)
		if !ok {
			return t.fatal("Substituting -9223372036854775808 for unknown date format '%s'", value)
		}
		t.mtime = when
	case "N":
		when, ok := t.date(value)
		if !ok {
			return t.fatal("unknown date format '%s'", value)
		}
		t.newer = when
	case "numeric":
		t.numeric = true
	case "sort":
		if value != "name" && value != "none" && value != "inode" {
			return t.wrong("invalid argument '%s' for '--sort'", value)
		}
	case "norec":
		t.noRecurse = true
	case "rec":
		t.noRecurse = false
	case "wild":
		t.wildcards = true
	case "nowild":
		t.wildcards = false
	case "totals":
		t.totals = true
	case "remove":
		t.removeIt = true
	case "null":
		t.null = true
	case "format":
		t.format = value
	case "pax":
		t.format = "pax"
	case "fulltime":
		t.fullTime = true
	case "ignorefail":
		t.ignoreFailed = true
	case "onetop":
		t.oneTop = true
	case "anchored":
		t.anchored = true
	case "R":
		t.blockNumber = true
	case "add":
		t.operands = append(t.operands, operand{*dir, value})
	case "w":
		return t.fatal("this machine's tar does not ask for confirmation")
	case "K", "L", "occ", "shown", "nop", "l", "B", "b", "i", "S", "W", "s", "n", "Z":
		if opt == "Z" {
			return t.fatal("compress is not known here")
		}
	}
	return 0
}

// date reads a date for --mtime: ISO, @seconds, or the name of a file whose time is used.
func (t *tarRun) date(s string) (time.Time, bool) {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		i, err := t.FS().Stat(t.Abs(s))
		return i.Modified, err == nil
	}
	if n, err := strconv.ParseInt(strings.TrimPrefix(s, "@"), 10, 64); err == nil && strings.HasPrefix(s, "@") {
		return time.Unix(n, 0).UTC(), true
	}
	loc := t.Now().Location()
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05 MST", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02 15:04Z", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", "2006-01-02 MST", "Jan 2 2006", "2 Jan 2006"} {
		if when, err := time.ParseInLocation(layout, s, loc); err == nil {
			return when, true
		}
	}
	if s == "now" {
		return t.Now(), true
	}
	return time.Time{}, false
}

// tarMain is tar.
func tarMain(c *tool.Call) int {
	t := &tarRun{Call: c, file: "", out: c.Buffered(), said: map[string]bool{}, width: 19}
	if code := t.parse(slices.Clone(c.Args)); code != 0 {
		return code
	}
	if t.file == "" {
		if t.file = c.Getenv("TAPE"); t.file == "" {
			t.file = "-"
		}
	}
	code := 0
	switch t.op {
	case 'c':
		code = t.create()
	case 'r', 'u', 'A':
		code = t.append()
	case 'D':
		code = t.remove()
	default:
		code = t.read()
	}
	if ferr := t.out.Flush(); ferr != nil {
		return 2
	}
	if code == 0 && t.status != 0 {
		if t.status == 2 {
			t.Errorf(2, "Exiting with failure status due to previous errors")
		}
		code = t.status
	}
	return code
}

// list is where -v writes.
func (t *tarRun) list() io.Writer {
	if t.file == "-" && t.op != 't' && t.op != 'x' || t.toStdout {
		return t.Err
	}
	return t.out
}
