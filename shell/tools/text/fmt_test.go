package text

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/tool"
)

// freeHost asks no price.
type freeHost struct{ tool.Host }

func (freeHost) Step(int) bool        { return true }
func (freeHost) Pay(int64) error      { return nil }
func (freeHost) Getenv(string) string { return "" }

// runFmt runs fmt on an input.
func runFmt(t testing.TB, in string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	c := &tool.Call{Host: freeHost{}, Ctx: context.Background(), Name: "fmt", Args: args, In: strings.NewReader(in), Out: &out, Err: &errs}
	if code := fmtCommand(c); code != 0 || errs.Len() > 0 {
		t.Fatalf("%q: status %d: %s", args, code, errs.String())
	}
	return out.String()
}

// TestFmtLayout checks the promises of the manual about paragraphs, indentation, prefixes and
// blanks.
func TestFmtLayout(t *testing.T) {
	for _, test := range []struct{ name, in, args, want string }{
		{"joins lines", "a\nb\n", "", "a b\n"},
		{"two blanks after a sentence", "a.\nb (c!)\nd\n", "", "a.  b (c!)  d\n"},
		{"keeps blanks", "a   b \n c\n", "", "a   b\n c\n"},
		{"blank lines", "x\n\n \n  \ny", "", "x\n\n\n\ny\n"},
		{"keeps indentation", "  a\n  b\n c\n", "", "  a b\n c\n"},
		{"tabs in, tabs out", "\ta\n\tb\n", "", "\ta b\n"},
		{"blanks in, blanks out", "        a\n        b\n", "", "        a b\n"},
		{"crown", "aa\n  bb\n  cc\n d\n", "-c -w 6", "aa bb\n  cc\n d\n"},
		{"tagged", "a b c\n  d e\n  f\n", "-t -w 5", "a b c\n  d e\n  f\n"},
		{"tagged, one line", "a\nb\nc\n", "-t", "a\nb\nc\n"},
		{"tagged, one long line", "aa bb cc dd\n", "-t -w 8", "aa bb cc\n   dd\n"},
		{"split only", "aa bb cc dd\nee\nff\n", "-s -w 7", "aa bb\ncc dd\nee\nff\n"},
		{"uniform", "a.   B  c.  D\n", "-u", "a.  B c.  D\n"},
		{"prefix", "# aa\n# bb\n  # cc\nplain   x \n#\n# e\n", "-p #", "# aa bb\n  # cc\nplain   x \n#\n# e\n"},
		{"prefix with a blank", "#a\n# b\n# c\n", "-p #\x20", "#a\n# b c\n"},
		{"prefix and margin", "# aa bb cc dd\n", "-p # -w 8", "# aa bb\n# cc dd\n"},
		{"long word", "aaaaaaaaaa b c\n", "-w 5", "aaaaaaaaaa\nb c\n"},
		{"width 0", "a b\n", "-w 0", "a\nb\n"},
		{"even lines", "aa bb cc dd ee ff\n", "-w 10 -g 6", "aa bb\ncc dd\nee ff\n"},
		{"looks ahead", "aaa bb cc ddddd ee\n", "-w 6 -g 6", "aaa\nbb cc\nddddd\nee\n"},
		{"breaks after a sentence", "aaaa bbbb cccc dddd eeee ffff.  Gggg hhhh iiii jjjj kkkk\n", "-w 40 -g 37",
			"aaaa bbbb cccc dddd eeee ffff.\nGggg hhhh iiii jjjj kkkk\n"},
	} {
		args := strings.Fields(test.args)
		if strings.HasSuffix(test.args, "\x20") {
			args = []string{"-p", "# "}
		}
		if got := runFmt(t, test.in, args...); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// randomText returns some paragraphs of sentences.
func randomText(r *rand.Rand, prefix string) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		indent := strings.Repeat(" ", r.IntN(3)*2)
		for range 1 + r.IntN(8) {
			b.WriteString(prefix + indent)
			for i := range 1 + r.IntN(14) {
				if i > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(9)))
				if r.IntN(7) == 0 {
					b.WriteString(".")
				}
			}
			b.WriteByte('\n')
		}
		b.WriteString(strings.TrimRight(prefix, " ") + "\n")
	}
	return b.String()
}

// paragraphs returns the words of a text by paragraphs. An indentation or an empty line separates
// paragraphs.
func paragraphs(text, prefix string) (out []string) {
	last := -1
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), strings.TrimRight(prefix, " "))
		words := strings.Fields(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if len(words) > 0 && indent == last {
			out[len(out)-1] += " " + strings.Join(words, " ")
			continue
		}
		out = append(out, strings.Join(words, " "))
		if last = indent; len(words) == 0 {
			last = -1
		}
	}
	return out
}

// TestFmtInvariants fills random texts to random widths. Several results can be right. So it checks
// that paragraphs keep their words, that no line is too long unless it is one word, and that no
// other choice of breaks costs less.
func TestFmtInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 7))
	for range 300 {
		prefix := []string{"", "", "# ", "> "}[r.IntN(4)]
		width := 12 + r.IntN(70)
		text := randomText(r, prefix)
		args := []string{"-w", fmt.Sprint(width)}
		if prefix != "" {
			args = append(args, "-p", strings.TrimRight(prefix, " "))
		}
		got := runFmt(t, text, args...)
		if a, b := paragraphs(got, prefix), paragraphs(text, prefix); !slices.Equal(a, b) {
			t.Fatalf("%q: paragraphs differ:\n%q\n%q", args, a, b)
		}
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			words := strings.Fields(strings.TrimPrefix(line, strings.TrimRight(prefix, " ")))
			if len(line) > width && len(words) > 1 {
				t.Errorf("%q: a line of %d columns: %q", args, len(line), line)
			}
		}
		if again := runFmt(t, got, args...); len(paragraphs(again, prefix)) != len(paragraphs(got, prefix)) {
			t.Errorf("%q: formatting again makes other paragraphs", args)
		}
	}
}

// TestFmtFillsBest compares the breaks with all other possible breaks.
func TestFmtFillsBest(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 8))
	for range 500 {
		f := &filler{width: 10 + r.IntN(20), step: func(int) bool { return true }}
		f.goal = f.width * 93 / 100
		words := make([]fillWord, 1+r.IntN(9))
		for i := range words {
			words[i] = fillWord{text: bytes.Repeat([]byte("x"), 1+r.IntN(8)), gap: 1 + r.IntN(2)}
			words[i].endSentence = r.IntN(4) == 0
		}
		first, other := r.IntN(4), r.IntN(4)
		cost := func(starts []int) (sum int, fits bool) {
			for i, from := range starts[:len(starts)-1] {
				to, length := starts[i+1], other
				if i == 0 {
					length = first
				}
				for j := from; j < to; j++ {
					if length += len(words[j].text); j+1 < to {
						length += words[j].gap
					}
				}
				if length > f.width && to-from > 1 {
					return 0, false
				}
				sum += f.lineCost(length, to == len(words)) + f.breakCost(words, to)
			}
			return sum, true
		}
		starts, _ := f.fill(words, first, other)
		got, fits := cost(starts)
		if !fits {
			t.Fatalf("width %d: %v of %v is too wide", f.width, starts, words)
		}
		for breaks := range 1 << (len(words) - 1) {
			try := []int{0}
			for i := 1; i < len(words); i++ {
				if breaks>>(i-1)&1 == 1 {
					try = append(try, i)
				}
			}
			try = append(try, len(words))
			if c, fits := cost(try); fits && c < got {
				t.Fatalf("width %d: breaks %v cost %d, %v only %d", f.width, starts, got, try, c)
			}
		}
	}
}

// TestFmtLikeRealFmt compares the paragraphs of random texts with those of the real fmt. The
// numbers of lines must be about equal.
func TestFmtLikeRealFmt(t *testing.T) {
	_, err := exec.LookPath("fmt")
	testenv.Need(t, "simbash", err)
	r := rand.New(rand.NewPCG(15, 9))
	equal, ours, theirs := 0, 0, 0
	const texts = 60
	for range texts {
		prefix := []string{"", "", "# "}[r.IntN(3)]
		text := randomText(r, prefix)
		args := []string{"-w", fmt.Sprint(20 + r.IntN(60))}
		if prefix != "" {
			args = append(args, "-p", "#")
		}
		if r.IntN(3) == 0 {
			args = append(args, []string{"-c", "-t", "-u"}[r.IntN(3)])
		}
		cmd := exec.CommandContext(t.Context(), "fmt", args...)
		cmd.Stdin = strings.NewReader(text)
		want, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		got := runFmt(t, text, args...)
		if got == string(want) {
			equal++
		}
		if a, b := strings.Fields(got), strings.Fields(string(want)); prefix == "" && !slices.Equal(a, b) {
			t.Errorf("%q: words differ:\n%s\n%s", args, got, want)
		}
		ours, theirs = ours+strings.Count(got, "\n"), theirs+strings.Count(string(want), "\n")
	}
	t.Logf("%d of %d texts are equal; %d lines, fmt has %d", equal, texts, ours, theirs)
	if ours > theirs*11/10 || ours < theirs*9/10 {
		t.Errorf("%d lines, fmt has %d", ours, theirs)
	}
}
