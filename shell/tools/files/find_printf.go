package files

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// part writes one piece of a -printf format.
type part func(e *found, w *bufio.Writer)

// parsePrintf splits a format into pieces.
func parsePrintf(format string) []part {
	var parts []part
	var text []byte
	flushText := func() {
		if len(text) > 0 {
			s := string(text)
			parts = append(parts, func(_ *found, w *bufio.Writer) { _, _ = w.WriteString(s) })
			text = nil
		}
	}
	for i := 0; i < len(format); i++ {
		switch {
		case format[i] == '\\' && i+1 < len(format):
			i++
			switch at := strings.IndexByte("abfnrtv\\", format[i]); {
			case at >= 0:
				text = append(text, "\a\b\f\n\r\t\v\\"[at])
			case format[i] == 'c':
				flushText()
				return append(parts, func(_ *found, w *bufio.Writer) { _ = w.Flush() })
			case format[i] >= '0' && format[i] <= '7':
				end := i
				for end < len(format) && end < i+3 && format[end] >= '0' && format[end] <= '7' {
					end++
				}
				n, _ := strconv.ParseUint(format[i:end], 8, 16) // digits
				text = append(text, byte(n))
				i = end - 1
			default:
				text = append(text, '\\', format[i])
			}
		case format[i] == '%' && i+1 < len(format):
			end := i + 1
			for end < len(format) && strings.IndexByte("-+ #0", format[end]) >= 0 {
				end++
			}
			for end < len(format) && (digit(format[end]) || format[end] == '.') {
				end++
			}
			if end == len(format) {
				text = append(text, format[i:]...)
				i = end
				continue
			}
			if format[end] == '%' {
				text = append(text, '%')
				i = end
				continue
			}
			spec, d := format[i+1:end], format[end]
			sub := byte(0)
			if strings.IndexByte("ABCT", d) >= 0 && end+1 < len(format) {
				end++
				sub = format[end]
			}
			flushText()
			if strings.IndexByte("abcdDfFgGhHiklmMnpPsStuUyYABCTZ", d) < 0 {
				text = append(text, format[i:end+1]...)
			} else {
				parts = append(parts, func(e *found, w *bufio.Writer) { _, _ = w.WriteString(padSpec(spec, e.directive(d, sub, spec), d)) })
			}
			i = end
		default:
			text = append(text, format[i])
		}
	}
	flushText()
	return parts
}

// padSpec applies flags, width and precision.
func padSpec(spec, value string, d byte) string {
	if spec == "" {
		return value
	}
	left, zero := strings.Contains(strings.TrimRight(spec, "123456789."), "-"), false
	s := strings.TrimLeft(spec, "-+ #")
	if strings.HasPrefix(s, "0") {
		zero = true
	}
	s = strings.TrimLeft(s, "-+ #0")
	ws, ps, hasP := strings.Cut(s, ".")
	width, _ := strconv.Atoi(ws) // digits, or none
	number := strings.IndexByte("dGimnUbkDs", d) >= 0
	if hasP {
		if p, _ := strconv.Atoi(ps); !number && p < len(value) {
			value = value[:p]
		}
	}
	width = min(width, 4096)
	for len(value) < width {
		switch {
		case left:
			value += " "
		case zero && (d == 'm' || d == 'd' || d == 'G' || d == 'U' || d == 'n'):
			value = "0" + value
		default:
			value = " " + value
		}
	}
	return value
}

// directive returns the value of one directive of -printf.
func (e *found) directive(d, sub byte, spec string) string {
	i, m := e.info, e.f.Machine()
	switch d {
	case 'a':
		return cTime(accessed(i))
	case 'c':
		return cTime(changed(i))
	case 't':
		return cTime(i.Modified)
	case 'A':
		return findTime(accessed(i), sub)
	case 'B', 'T':
		return findTime(i.Modified, sub)
	case 'C':
		return findTime(changed(i), sub)
	case 'b':
		return strconv.FormatInt(blocks(i), 10)
	case 'k':
		return strconv.FormatInt(blocks(i)/2, 10)
	case 'd':
		return strconv.Itoa(e.depth)
	case 'D':
		return strconv.Itoa(diskMajor<<8 | diskMinor)
	case 'f':
		if e.depth == 0 {
			return lastName(e.path)
		}
		return i.Name
	case 'F':
		return diskKind
	case 'g':
		return m.GroupName(i.GID)
	case 'G':
		return strconv.Itoa(int(i.GID))
	case 'u':
		return m.UserName(i.UID)
	case 'U':
		return strconv.Itoa(int(i.UID))
	case 'h':
		if t := strings.TrimRight(e.path, "/"); strings.Contains(t, "/") {
			return t[:strings.LastIndexByte(t, '/')]
		}
		return "."
	case 'H':
		return e.root
	case 'i':
		return strconv.FormatUint(i.Ino, 10)
	case 'l':
		if isLink(i.Mode) {
			return i.Target
		}
		return ""
	case 'm':
		if strings.Contains(spec, "#") {
			return fmt.Sprintf("%#o", permBits(i.Mode))
		}
		return fmt.Sprintf("%o", permBits(i.Mode))
	case 'M':
		return modeString(i.Mode)
	case 'n':
		return strconv.Itoa(i.Links)
	case 'p':
		return e.path
	case 'P':
		return strings.TrimPrefix(strings.TrimPrefix(e.path, e.root), "/")
	case 's':
		return strconv.FormatInt(i.Size, 10)
	case 'S':
		if i.Size == 0 {
			return "1"
		}
		return strconv.FormatFloat(float64(blocks(i)*512)/float64(i.Size), 'g', 6, 64)
	case 'y':
		return string(findType(typeLetter(i.Mode)))
	case 'Y':
		if !isLink(i.Mode) {
			return string(findType(typeLetter(i.Mode)))
		}
		t, err := statOf(e.f.Call, e.path)
		switch {
		case err == nil:
			return string(findType(typeLetter(t.Mode)))
		case notExist(err):
			return "N"
		case strings.Contains(err.Error(), "too many"):
			return "L"
		}
		return "?"
	}
	return ""
}

func findType(l byte) byte {
	if l == '-' {
		return 'f'
	}
	return l
}

// cTime returns a time in the format of ctime, with the fraction that find adds.
func cTime(t time.Time) string {
	return t.Format("Mon Jan _2 15:04:05") + fmt.Sprintf(".%09d0 ", t.Nanosecond()) + strconv.Itoa(t.Year())
}

// findTime returns one field of a time.
func findTime(t time.Time, sub byte) string {
	frac := fmt.Sprintf(".%09d0", t.Nanosecond())
	switch sub {
	case '@':
		return strconv.FormatInt(t.Unix(), 10) + frac
	case '+':
		return t.Format("2006-01-02+15:04:05") + frac
	case 'S':
		return t.Format("05") + frac
	case 'T':
		return t.Format("15:04:05") + frac
	case 'X':
		return t.Format("15:04:05") + frac
	case 'r':
		return t.Format("03:04:05") + frac + t.Format(" PM")
	case 'c':
		return cTime(t)
	case 0:
		return ""
	}
	return strftime("%"+string(sub), t)
}
