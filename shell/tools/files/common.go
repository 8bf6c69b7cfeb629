package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// errText returns the kernel's words for an error.
func errText(err error) string { return tool.ErrText(err) }

func notExist(err error) bool { return errors.Is(err, syscall.ENOENT) }

// tryHelp writes the last line of a message about wrong usage.
func tryHelp(c *tool.Call, status int) int {
	fmt.Fprintf(c.Err, "Try '%s --help' for more information.\n", c.Base())
	return status
}

// usage writes a message about wrong usage and returns status.
func usage(c *tool.Call, status int, format string, args ...any) int {
	c.Errorf(status, format, args...)
	return tryHelp(c, status)
}

// missingOperand checks that there are at least n operands.
func missingOperand(c *tool.Call, args []string, n int) bool {
	switch {
	case len(args) >= n:
		return false
	case len(args) == 0 || n == 1:
		usage(c, 1, "missing operand")
	default:
		usage(c, 1, "missing operand after %s", curly(args[len(args)-1]))
	}
	return true
}

// curly quotes a name as GNU's quote() does in a UTF-8 locale.
func curly(s string) string {
	var b strings.Builder
	b.WriteString("‘")
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '’':
			b.WriteString(`\’`)
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
			b.WriteString(escapeC(s[i : i+n]))
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	b.WriteString("’")
	return b.String()
}

// escapeC escapes bytes that can't be printed, as in C: \n or \NNN.
func escapeC(s string) string {
	out := ""
	for i := range len(s) {
		if at := strings.IndexByte("\a\b\t\n\v\f\r", s[i]); at >= 0 {
			out += `\` + "abtnvfr"[at:at+1]
			continue
		}
		out += fmt.Sprintf(`\%03o`, s[i])
	}
	return out
}

// quoted quotes a name for a shell in every case, as most messages of GNU's tools do.
func quoted(s string) string { return shellQuote(s, true) }

// shellQuote quotes a name for a shell. Without always, it quotes only where the shell needs it.
func shellQuote(s string, always bool) string {
	plain, printable := s != "", true
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, !unicode.IsPrint(r):
			plain, printable = false, false
		case r < 0x80 && strings.IndexByte(" !\"$&'()*;<=>?[\\^`|", byte(r)) >= 0:
			plain = false
		case (r == '#' || r == '~') && i == 0, (r == '{' || r == '}') && len(s) == 1:
			plain = false
		}
		i += n
	}
	switch {
	case plain && !always:
		return s
	case printable && strings.Contains(s, "'") && !strings.ContainsAny(s, "\"$`\\!"):
		return `"` + s + `"`
	case printable:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteByte('\'')
	in := false // within $''
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		bad := r == utf8.RuneError && n == 1 || !unicode.IsPrint(r)
		switch {
		case bad && !in:
			b.WriteString(`'$'`)
			in = true
		case !bad && in:
			b.WriteString(`''`)
			in = false
		}
		switch {
		case bad:
			b.WriteString(escapeC(s[i : i+n]))
		case r == '\'':
			b.WriteString(`'\''`)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	b.WriteByte('\'')
	return b.String()
}

// under returns the path of a directory's entry in the form of GNU's tools.
func under(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// lastName returns the last name of a path, without slashes at the end.
func lastName(p string) string {
	t := strings.TrimRight(p, "/")
	if t == "" {
		return p[:min(1, len(p))]
	}
	return t[strings.LastIndexByte(t, '/')+1:]
}

// parentOf returns the directory of a path, as dirname prints it.
func parentOf(p string) string {
	t := strings.TrimRight(p, "/")
	if t == "" {
		if p == "" {
			return "."
		}
		return "/"
	}
	at := strings.LastIndexByte(t, '/')
	if at < 0 {
		return "."
	}
	if t = strings.TrimRight(t[:at], "/"); t == "" {
		return "/"
	}
	return t
}

// trimSlashes removes slashes from the end of a path, but keeps the root.
func trimSlashes(p string) string {
	t := strings.TrimRight(p, "/")
	if t == "" && p != "" {
		return "/"
	}
	return t
}

// lstat and statOf describe a named file. statOf follows a link at the end of the name, lstat does
// not.
func lstat(c *tool.Call, name string) (vfs.Info, error) {
	if name == "" {
		return vfs.Info{}, syscall.ENOENT
	}
	return c.FS().Lstat(c.Abs(name))
}

func statOf(c *tool.Call, name string) (vfs.Info, error) {
	if name == "" {
		return vfs.Info{}, syscall.ENOENT
	}
	return c.FS().Stat(c.Abs(name))
}

// isDir reports whether a path leads to a directory.
func isDir(c *tool.Call, name string) bool {
	i, err := statOf(c, name)
	return err == nil && i.Mode.IsDir()
}

func isLink(m fs.FileMode) bool { return m&fs.ModeSymlink != 0 }

// permBits returns the bits of chmod with their Unix numbers.
func permBits(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		p |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		p |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		p |= 0o1000
	}
	return p
}

// fileMode is the inverse of permBits.
func fileMode(p uint32) fs.FileMode {
	m := fs.FileMode(p & 0o777)
	if p&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if p&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if p&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// typeLetter returns the first letter of a mode in ls -l. For find, a regular file is f.
func typeLetter(m fs.FileMode) byte {
	switch {
	case m.IsDir():
		return 'd'
	case isLink(m):
		return 'l'
	case m&fs.ModeNamedPipe != 0:
		return 'p'
	case m&fs.ModeSocket != 0:
		return 's'
	case m&fs.ModeCharDevice != 0:
		return 'c'
	case m&fs.ModeDevice != 0:
		return 'b'
	}
	return '-'
}

// modeString returns a mode in the format of ls -l.
func modeString(m fs.FileMode) string {
	b := []byte{typeLetter(m), 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for i, l := range []byte("rwxrwxrwx") {
		b[i+1] = '-'
		if m&(0o400>>i) != 0 {
			b[i+1] = l
		}
	}
	special := func(bit fs.FileMode, at int, with, without byte) {
		if m&bit == 0 {
			return
		}
		if b[at] == 'x' {
			b[at] = with
		} else {
			b[at] = without
		}
	}
	special(fs.ModeSetuid, 3, 's', 'S')
	special(fs.ModeSetgid, 6, 's', 'S')
	special(fs.ModeSticky, 9, 't', 'T')
	return string(b)
}

// rawMode is st_mode.
func rawMode(m fs.FileMode) uint32 {
	t := map[byte]uint32{'d': 0o040000, 'l': 0o120000, 'p': 0o010000, 's': 0o140000, 'c': 0o020000, 'b': 0o060000, '-': 0o100000}
	return permBits(m) | t[typeLetter(m)]
}

// kindName returns a file's kind in the words of stat and find.
func kindName(i vfs.Info) string {
	switch typeLetter(i.Mode) {
	case 'd':
		return "directory"
	case 'l':
		return "symbolic link"
	case 'p':
		return "fifo"
	case 's':
		return "socket"
	case 'c':
		return "character special file"
	case 'b':
		return "block special file"
	}
	if i.Size == 0 {
		return "regular empty file"
	}
	return "regular file"
}

// blocks returns the size of a file on a disk with blocks of 4096 bytes, in units of 512 bytes.
func blocks(i vfs.Info) int64 {
	if i.Mode.IsDir() {
		return 8
	}
	return (i.Used + 4095) / 4096 * 8
}

// device returns the numbers of a character device.
func device(i vfs.Info) (major, minor int) {
	minors := map[string]int{"null": 3, "zero": 5, "full": 7, "random": 8}
	if i.Name == "urandom" {
		return 1, 9
	}
	if n, ok := minors[i.Device]; ok {
		return 1, n
	}
	return 5, 0
}

// accessed and changed return a file's other times.
func accessed(i vfs.Info) time.Time { return i.Accessed }
func changed(i vfs.Info) time.Time  { return i.Changed }

// prompt asks a question on Err and reads a line. It returns true if the line begins with y.
func prompt(c *tool.Call, format string, args ...any) bool {
	fmt.Fprintf(c.Err, "%s: %s", c.Base(), fmt.Sprintf(format, args...))
	line := readAnswer(c.In)
	return strings.HasPrefix(line, "y") || strings.HasPrefix(line, "Y")
}

// readAnswer reads one line byte by byte, because another program may read the rest.
func readAnswer(in io.Reader) string {
	var b [1]byte
	line := []byte{}
	for len(line) < 4096 {
		n, err := in.Read(b[:])
		if n > 0 {
			if b[0] == '\n' {
				break
			}
			line = append(line, b[0])
		}
		if err != nil {
			break
		}
	}
	return string(line)
}

// human formats a size as -h does, rounded up. base is 1024, or 1000 for --si.
func human(n int64, base int64) string {
	if n < base {
		return strconv.FormatInt(n, 10)
	}
	const units = "KMGTPE"
	unit, div := 0, base
	for n/div >= base && unit < len(units)-1 {
		unit++
		div *= base
	}
	letter := units[unit : unit+1]
	if base == 1000 && unit == 0 {
		letter = "k"
	}
	whole, rest := n/div, n%div
	if whole < 10 {
		tenths := (rest*10 + div - 1) / div
		if tenths == 10 {
			whole, tenths = whole+1, 0
		}
		if whole < 10 {
			return fmt.Sprintf("%d.%d%s", whole, tenths, letter)
		}
		return fmt.Sprintf("%d%s", whole, letter)
	}
	if rest > 0 {
		whole++
	}
	if whole == base && unit < len(units)-1 {
		return "1.0" + units[unit+1:unit+2]
	}
	return fmt.Sprintf("%d%s", whole, letter)
}

// inUnits divides, rounding up.
func inUnits(n, unit int64) int64 { return (n + unit - 1) / unit }

// sizeArg reads a size: a number with one of GNU's suffixes. These are K, KB, KiB, M, …, and b, c,
// w for the programs that accept them.
func sizeArg(s string) (n int64, ok bool) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	n = 1
	if digits > 0 {
		var err error
		if n, err = strconv.ParseInt(s[:digits], 10, 64); err != nil {
			return 0, false
		}
	}
	mult, ok := suffixes(s[digits:])
	if !ok || digits == 0 && s[digits:] == "" || n > 0 && mult > (1<<63-1)/n {
		return 0, false
	}
	return n * mult, true
}

// suffixes returns the factor of a suffix.
func suffixes(s string) (int64, bool) {
	switch s {
	case "":
		return 1, true
	case "B", "c":
		return 1, true
	case "w":
		return 2, true
	case "b":
		return 512, true
	}
	at := strings.IndexByte("KMGTPE", upper(s[0]))
	if at < 0 {
		return 0, false
	}
	base := int64(1024)
	switch s[1:] {
	case "", "iB":
	case "B":
		base = 1000
	default:
		return 0, false
	}
	n := base
	for range at {
		n *= base
	}
	return n, true
}

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 32
	}
	return b
}

// lookupUser and lookupGroup read a name or a number.
func lookupUser(c *tool.Call, s string) (uid, gid uint32, ok bool) {
	if a, found := c.Machine().User(s); found {
		return a.UID, a.GID, true
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), uint32(n), err == nil
}

func lookupGroup(c *tool.Call, s string) (uint32, bool) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 32); err == nil {
		return uint32(n), true
	}
	if data, err := c.FS().ReadFile("/etc/group"); err == nil {
		for line := range strings.Lines(string(data)) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
			if len(f) >= 3 && f[0] == s {
				n, err := strconv.ParseUint(f[2], 10, 32)
				return uint32(n), err == nil
			}
		}
	}
	if a, ok := c.Machine().User(s); ok && c.Machine().GroupName(a.GID) == s {
		return a.GID, true
	}
	return 0, false
}

// blockPool has the buffers of copyAll.
var blockPool = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

// copyAll copies from in to out in large blocks, and pays for that.
func copyAll(c *tool.Call, out io.Writer, in io.Reader) (int64, error) {
	block := blockPool.Get().(*[]byte)
	defer blockPool.Put(block)
	buf := *block
	var total int64
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if !c.Step(1 + n>>10) {
				return total, tool.ErrStop
			}
			w, werr := out.Write(buf[:n])
			total += int64(w)
			if werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// readFile reads a whole named input, and pays for its memory.
func readFile(c *tool.Call, name string) ([]byte, error) {
	in, err := c.OpenIn(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return c.ReadAll(in)
}

// flush writes the buffered output. If that fails, so does the program.
func flush(c *tool.Call, w *bufio.Writer, status int) int { return c.Flush(w, status) }
