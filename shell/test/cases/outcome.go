package cases

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Outcome is the end of a script: its status, its output and its files.
type Outcome struct {
	Out   string
	Code  int
	Files []string // a line of [Describe] each
	Errs  string   // shown with differences, never compared
}

// The longest texts in a recording. A longer text is stored as its hash and length.
const (
	maxRecordedOut  = 8 << 10
	maxRecordedFile = 1 << 10
)

// Describe returns the line for a file that a script left. For a link, content is its target.
func Describe(name string, mode fs.FileMode, content string) string {
	if at := strings.Index("/"+name, "/.git/"); at >= 0 && mode&fs.ModeSymlink == 0 {
		return name[:at] + ".git/…" // git may store a repository in different ways
	}
	if !plain(name) || strings.Contains(name, `"`) {
		name = strconv.Quote(name)
	}
	if mode&fs.ModeSymlink != 0 {
		return name + " -> " + content
	}
	const shown = fs.ModeType | fs.ModePerm | fs.ModeSticky | fs.ModeSetuid | fs.ModeSetgid
	line := fmt.Sprintf("%s %v", name, mode&shown)
	if mode.IsRegular() {
		line += " " + strconv.Quote(content)
	}
	return line
}

// Ordered returns the outcome with its files sorted and without repeated lines.
func (o Outcome) Ordered() Outcome {
	o.Files = slices.Compact(slices.Sorted(slices.Values(o.Files)))
	return o
}

// Recorded returns the outcome in the form of a recording: [Root] replaces the root of the run,
// files are sorted, and long texts are replaced with hashes.
func (o Outcome) Recorded(root string) Outcome {
	if o.Out = strings.ReplaceAll(o.Out, root, Root); len(o.Out) > maxRecordedOut {
		o.Out = abridge(o.Out, maxRecordedOut) + "\n"
	}
	files := make([]string, 0, len(o.Files))
	for _, line := range o.Files {
		line = strings.ReplaceAll(line, root, Root)
		if at := strings.Index(line, ` "`); at >= 0 {
			line = line[:at+1] + abridge(line[at+1:], maxRecordedFile)
		}
		files = append(files, line)
	}
	o.Files = files
	return o.Ordered()
}

// abridge replaces a text that is longer than most with its hash.
func abridge(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%d bytes, SHA-256 %x", len(text), sha256.Sum256([]byte(text)))
}

// Differences describes the differences between two outcomes; "" when there are none.
func Differences(got, want Outcome) string {
	var b strings.Builder
	if got.Out != want.Out {
		fmt.Fprintf(&b, "output:\n got %q\nwant %q\n", clip(got.Out), clip(want.Out))
	}
	if got.Code != want.Code {
		fmt.Fprintf(&b, "status: got %d, want %d\n", got.Code, want.Code)
	}
	if !slices.Equal(got.Files, want.Files) {
		fmt.Fprintf(&b, "files:\n got %s\nwant %s\n",
			clip(strings.Join(got.Files, "\n     ")), clip(strings.Join(want.Files, "\n     ")))
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "stderr here: %s\nstderr there: %s\n", clip(got.Errs), clip(want.Errs))
	}
	return b.String()
}

// clip shortens what is shown.
func clip(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// plain reports whether a line can be written unchanged.
func plain(line string) bool {
	if !utf8.ValidString(line) {
		return false
	}
	return strings.IndexFunc(line, func(r rune) bool {
		return r != '\t' && !strconv.IsPrint(r) || r == utf8.RuneError
	}) < 0
}
