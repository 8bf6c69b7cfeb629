//go:build linux

package microvm

import (
	"bytes"
	"os"
	"strings"
	"unicode"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// maxConsole bounds what is read of a console's file, in bytes. The VMM can't make it longer.
const maxConsole = 64 << 10

// panicMark begins the kernel's own reason for its end. The stack that follows it is longer than a
// message may be.
const panicMark = "Kernel panic"

// consoleText returns everything on a console.
func consoleText(f *os.File) string {
	if f == nil {
		return "" // after Recover
	}
	b := make([]byte, maxConsole)
	n, _ := f.ReadAt(b, 0)
	return string(b[:n])
}

// words returns the part of a console's text that says why the machine ended: the kernel's panic, or
// else the last lines. The text ends with zeros. The sandbox writes to its console, so it may be
// anything. Other texts of a VMM pass through this, too.
func words(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	text := strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
	if i := strings.LastIndex(text, panicMark); i >= 0 {
		line, _, _ := strings.Cut(text[i:], "\n")
		text = line
	}
	text = strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' ' // it must not move the cursor of the person who reads it
		}
		return r
	}, text)
	if len(text) > hosted.MaxWords {
		text = strings.ToValidUTF8(text[len(text)-hosted.MaxWords:], "?")
		if _, rest, ok := strings.Cut(text, "\n"); ok {
			text = rest
		}
	}
	return strings.TrimSpace(text)
}
