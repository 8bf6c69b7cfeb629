package simbash

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/test/cases"
	"github.com/carrel-dev/carrel/shell/tools"
)

const (
	// sharedWords is the longest run of words that our help text may share with the host program's.
	sharedWords = 5
	// sentenceWords is the length from which a whole sentence must differ.
	sentenceWords = 3
	// leastHelps is the least number of host programs that must be compared.
	leastHelps = 100
	helpTime   = 10 * time.Second
)

// TestHelpOwnWords compares our help texts with those of the host programs. Options and formats are
// equal, but sentences must not be.
func TestHelpOwnWords(t *testing.T) {
	if !*real {
		testenv.Inapplicable(t, "compares with the help texts of the host's programs (-real)")
	}
	testenv.Need(t, "simbash", missing("bash"))
	compared := 0
	for _, name := range tools.Names() {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		theirs := hostHelp(t.Context(), t.TempDir(), path)
		if len(sentences(theirs)) == 0 {
			continue // no help, or only a synopsis
		}
		compared++
		ours, err := simulated.Run(t.Context(), "/tmp/simbash-help/d", name+" --help")
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range copied(ours.Out+ours.Errs, theirs) {
			t.Errorf("%s --help says in the host program's words: %q", name, run)
		}
	}
	t.Logf("compared %d help texts", compared)
	if compared < leastHelps {
		t.Errorf("only %d programs of the host have help texts to compare with, want %d", compared, leastHelps)
	}
}

// TestCopied shows which texts count as copied.
func TestCopied(t *testing.T) {
	const theirs = "Usage: x [OPTION]... [FILE]...\n  or:  x --version\nWrite all the good lines of FILE\nto standard output, one a line.\n\n  -a, --all   do not skip anything\n"
	for _, c := range []struct{ name, ours, want string }{
		{"own words", "Usage: x [OPTION]... [FILE]...\nPrints good lines.\n  -a, --all   everything\n", ""},
		{"a run", "Of FILE: write all the good lines of it.\n", "write all the good lines of"},
		{"over the end of a line", "It prints LINES OF FILE to\nstandard output, one.\n", "lines of file to standard output one"},
		{"a short sentence", "Lists.\n  -a   Do not skip anything.\n", "do not skip anything"},
		{"options in between", "All the -a good -b lines of -c file to standard.\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(copied(c.ours, theirs), "|"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// hostHelp returns the output of a host program for --help, from both streams. The home directory
// is place, because some programs write files there.
func hostHelp(ctx context.Context, place, path string) string {
	ctx, cancel := context.WithTimeout(ctx, helpTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--help")
	cmd.Env = cases.Environ(filepath.Join(place, "work"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // some programs exit with an error after their help
	return out.String()
}

var (
	// synopsis matches the beginning of a synopsis, which is a format without sentences.
	synopsis = regexp.MustCompile(`(?i)^\s*(usage:|or:)`)
	// optionWord matches an option with its argument, or a part of a synopsis.
	optionWord = regexp.MustCompile(`^[-\[<({|]|=`)
	word       = regexp.MustCompile(`[a-z0-9]+('[a-z]+)?`)
	columnGap  = regexp.MustCompile(`\s{2,}`)
	lastStop   = regexp.MustCompile(`[.;:!?]\s`)
)

// stop separates words that are not adjacent in the text.
const stop = ""

// words returns the words of a help text in order, with a stop for each option and synopsis.
func words(text string) (out []string) {
	for line := range strings.Lines(text) {
		if synopsis.MatchString(line) || strings.TrimSpace(line) == "" {
			out = append(out, stop)
			continue
		}
		for _, field := range strings.Fields(line) {
			if optionWord.MatchString(field) {
				out = append(out, stop)
				continue
			}
			out = append(out, word.FindAllString(strings.ToLower(field), -1)...)
		}
	}
	return out
}

// sentences returns the separate pieces of a help text, each as its words with single spaces.
func sentences(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if synopsis.MatchString(line) {
			continue
		}
		for _, column := range columnGap.Split(strings.TrimSpace(line), -1) {
			for _, piece := range lastStop.Split(column, -1) {
				w := words(piece)
				if len(w) >= sentenceWords && !hasStop(w) {
					out[strings.Join(w, " ")] = true
				}
			}
		}
	}
	return out
}

func hasStop(list []string) bool {
	for _, w := range list {
		if w == stop {
			return true
		}
	}
	return false
}

// copied lists the texts that both help texts contain: runs of more than sharedWords words, and
// whole sentences.
func copied(ours, theirs string) (out []string) {
	o, t := words(ours), words(theirs)
	for i := 0; i < len(o); {
		longest := 0
		for j := range t {
			n := 0
			for i+n < len(o) && j+n < len(t) && o[i+n] != stop && o[i+n] == t[j+n] {
				n++
			}
			longest = max(longest, n)
		}
		if longest > sharedWords {
			out = append(out, strings.Join(o[i:i+longest], " "))
		}
		i += max(longest, 1)
	}
	known := sentences(theirs)
	for s := range sentences(ours) {
		if known[s] {
			out = append(out, s)
		}
	}
	return out
}
