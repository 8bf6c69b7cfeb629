package files

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// devOf returns the number of the disk or mount of a file.
func devOf(i vfs.Info) int { return diskMajor<<8 | diskMinor + int(max(i.Dev, 1)) - 1 }

// The number of the first disk, and the reported type of filesystem.
const (
	diskMajor, diskMinor = 0, 45
	diskKind             = "tmpfs"
	diskMagic            = 0x01021994
)

const statTerse = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o\n"

// stat describes files.
func stat(c *tool.Call) int {
	f, ok := c.Flags("c:fLt", "format=c", "dereference=L", "file-system=f", "printf=\x81:", "terse=t", "cached=\x82:")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	out := c.Buffered()
	status := 0
	for _, name := range f.Args {
		if !c.Step(8) {
			return 1
		}
		look, verb := lstat, "statx"
		if f.Has('L') || f.Has('f') {
			look = statOf
		}
		i, err := look(c, name)
		if name == "-" && !f.Has('f') {
			i, err = vfs.Info{Name: "-", Path: "-", Mode: 0o10600, Links: 1}, nil
		}
		if err != nil {
			_ = out.Flush()
			if f.Has('f') {
				status = c.Errorf(1, "cannot read file system information for %s: %s", quoted(name), errText(err))
			} else {
				status = c.Errorf(1, "cannot %s %s: %s", verb, quoted(name), errText(err))
			}
			continue
		}
		format, escapes := f.Value('c', "")+"\n", false
		switch last := f.Last("c\x81"); {
		case last == 0x81:
			format, escapes = f.Value(0x81, ""), true
		case last == 'c':
		case f.Has('f') && f.Has('t'):
			format = "%n %i %l %t %s %S %b %f %a %c %d\n"
		case f.Has('f'):
			format = "  File: \"%n\"\n    ID: %-8i Namelen: %-7l Type: %T\nBlock size: %-10s Fundamental block size: %S\n" +
				"Blocks: Total: %-10b Free: %-10f Available: %a\nInodes: Total: %-10c Free: %d\n"
		case f.Has('t'):
			format = statTerse
		default:
			format = statDefault(i)
		}
		if escapes {
			format = statEscapes(format)
		}
		s := statter{c: c, name: name, i: i, fs: f.Has('f')}
		out.WriteString(s.format(format))
	}
	return flush(c, out, status)
}

func statDefault(i vfs.Info) string {
	device := ""
	if t := typeLetter(i.Mode); t == 'c' || t == 'b' {
		device = " Device type: %Hr,%Lr"
	}
	links := "Links: %h\n"
	if device != "" {
		links = "Links: %-5h" + device + "\n"
	}
	return "  File: %.N\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\nDevice: %Hd,%Ld\tInode: %-10i  " + links +
		"Access: (%04a/%10.10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\nAccess: %x\nModify: %y\nChange: %z\n Birth: %w\n"
}

// statEscapes replaces the backslashes of --printf.
func statEscapes(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch at := strings.IndexByte("abefnrtv", s[i]); {
		case at >= 0:
			b.WriteByte("\a\b\x1b\f\n\r\t\v"[at])
		case s[i] >= '0' && s[i] <= '7':
			end := i
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			n, _ := strconv.ParseUint(s[i:end], 8, 16) // digits
			b.WriteByte(byte(n))
			i = end - 1
		case s[i] == 'x' && i+1 < len(s):
			end := i + 1
			for end < len(s) && end < i+3 && strings.IndexByte("0123456789abcdefABCDEF", s[end]) >= 0 {
				end++
			}
			n, _ := strconv.ParseUint(s[i+1:end], 16, 16) // digits, or none
			b.WriteByte(byte(n))
			i = end - 1
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// statter formats one file.
type statter struct {
	c    *tool.Call
	name string
	i    vfs.Info
	fs   bool
}

// format replaces the directives of a format.
func (s statter) format(format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		flags := i
		for i < len(format) && strings.IndexByte("-+ #0'I", format[i]) >= 0 {
			i++
		}
		left := strings.Contains(format[flags:i], "-")
		zero := strings.Contains(format[flags:i], "0")
		hash := strings.Contains(format[flags:i], "#")
		widthAt := i
		for i < len(format) && digit(format[i]) {
			i++
		}
		width, _ := strconv.Atoi(format[widthAt:i]) // digits, or none
		precision := -1
		if i < len(format) && format[i] == '.' {
			at := i + 1
			for i++; i < len(format) && digit(format[i]); i++ {
			}
			precision, _ = strconv.Atoi(format[at:i]) // digits, or none
		}
		width, precision = min(width, 4096), min(precision, 4096)
		if i >= len(format) {
			b.WriteString(format[start:])
			break
		}
		half := byte(0)
		if (format[i] == 'H' || format[i] == 'L') && i+1 < len(format) && (format[i+1] == 'd' || format[i+1] == 'r') {
			half = format[i]
			i++
		}
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		value := "?"
		if s.fs {
			value = s.disk(format[i])
		} else {
			value = s.directive(format[i], half, precision)
		}
		number := strings.IndexByte("abBdDfghiosStTuXYZWr", format[i]) >= 0
		if hash && (format[i] == 'a') {
			value = "0" + value
		}
		if !number && precision >= 0 && precision < len(value) && format[i] != 'X' && format[i] != 'N' {
			value = value[:precision]
		}
		for len(value) < width {
			switch {
			case left:
				value += " "
			case zero && number:
				value = "0" + value
			default:
				value = " " + value
			}
		}
		b.WriteString(value)
	}
	return b.String()
}

// directive returns the value of one directive.
func (s statter) directive(d, half byte, precision int) string {
	i := s.i
	m := s.c.Machine()
	switch d {
	case 'a':
		return fmt.Sprintf("%o", permBits(i.Mode))
	case 'A':
		return modeString(i.Mode)
	case 'b':
		return strconv.FormatInt(blocks(i), 10)
	case 'B':
		return "512"
	case 'C':
		return "?"
	case 'd':
		switch half {
		case 'H':
			return strconv.Itoa(diskMajor)
		case 'L':
			return strconv.Itoa(devOf(i))
		}
		return strconv.Itoa(devOf(i))
	case 'D':
		return fmt.Sprintf("%x", devOf(i))
	case 'f':
		return fmt.Sprintf("%x", rawMode(i.Mode))
	case 'F':
		return kindName(i)
	case 'g':
		return strconv.Itoa(int(i.GID))
	case 'G':
		return m.GroupName(i.GID)
	case 'h':
		return strconv.Itoa(i.Links)
	case 'i':
		return strconv.FormatUint(i.Ino, 10)
	case 'm':
		return "/"
	case 'n':
		return s.name
	case 'N':
		quote := quoteIfStat
		if precision == 0 { // for the default format, which does not quote
			quote = func(s string) string { return s }
		}
		q := quote(s.name)
		if isLink(i.Mode) {
			q += " -> " + quote(i.Target)
		}
		return q
	case 'o':
		return "4096"
	case 's':
		return strconv.FormatInt(i.Size, 10)
	case 'r', 't', 'T':
		return s.rdev(d, half)
	case 'u':
		return strconv.Itoa(int(i.UID))
	case 'U':
		return m.UserName(i.UID)
	case 'w', 'W':
		if d == 'W' {
			return strconv.FormatInt(i.Created.Unix(), 10)
		}
		return fullTime(i.Created)
	}
	t := i.Modified
	switch d {
	case 'x', 'X':
		t = accessed(i)
	case 'y', 'Y':
	case 'z', 'Z':
		t = changed(i)
	default:
		return "?"
	}
	if d >= 'a' {
		return fullTime(t.In(s.c.Now().Location()))
	}
	text := strconv.FormatInt(t.Unix(), 10)
	if precision >= 0 {
		if precision == 0 {
			precision = 9
		}
		text += "." + fmt.Sprintf("%09d", t.Nanosecond())[:min(precision, 9)]
	}
	return text
}

func (s statter) rdev(d, half byte) string {
	major, minor := 0, 0
	if t := typeLetter(s.i.Mode); t == 'c' || t == 'b' {
		major, minor = device(s.i)
	}
	switch {
	case d == 't':
		return fmt.Sprintf("%x", major)
	case d == 'T':
		return fmt.Sprintf("%x", minor)
	case half == 'H':
		return strconv.Itoa(major)
	case half == 'L':
		return strconv.Itoa(minor)
	}
	return strconv.Itoa(major<<8 | minor)
}

// quoteIfStat quotes as %N does.
func quoteIfStat(s string) string { return shellQuote(s, true) }

// disk returns the value of a directive of -f.
func (s statter) disk(d byte) string {
	used, total := diskUse(s.c)
	switch d {
	case 'n':
		return s.name
	case 'i':
		return "0"
	case 'l':
		return "255"
	case 's', 'S':
		return "4096"
	case 't':
		return fmt.Sprintf("%x", diskMagic)
	case 'T':
		return diskKind
	case 'b':
		return strconv.FormatInt(total/4096, 10)
	case 'f', 'a':
		return strconv.FormatInt((total-used)/4096, 10)
	case 'c':
		return "1048576"
	case 'd':
		return "1000000"
	}
	return "?"
}

// diskUse returns the used bytes of the disk and its size. A disk without a quota is reported as a
// terabyte.
func diskUse(c *tool.Call) (used, total int64) {
	used, total = c.FS().FS().Usage()
	if total == 0 {
		total = 1 << 40
	}
	return min(used, total), total
}
