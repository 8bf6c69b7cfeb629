package regex_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/regex"
)

// TestFind has cases from GNU's grep and sed, and from PCRE.
func TestFind(t *testing.T) {
	const (
		bre = regex.Flags(0)
		ere = regex.Extended
		pcr = regex.Perl
		ic  = regex.IgnoreCase
	)
	for _, c := range []struct {
		flags         regex.Flags
		pattern, text string
		want          string // positions, "-" for none, or an error
	}{
		{bre, `a*`, "baa", "0 0"},
		{bre, `*a`, "*a", "0 2"},
		{bre, `^*a`, "*a", "0 2"},
		{bre, `\(*a\)`, "*a", "0 2 0 2"},
		{bre, `a\{2,3\}`, "aaaa", "0 3"},
		{bre, `\(ab\)*\1`, "ababab", "0 6 2 4"},
		{bre, `a\|b`, "xb", "1 2"},
		{bre, `a^b$c`, "a^b$c", "0 5"},
		{bre, `[]a]*`, "]a]b", "0 3"},
		{bre, `[^]a]`, "]ab", "2 3"},
		{bre, `[a-]*`, "a-b", "0 2"},
		{bre, `[[:digit:]]\+`, "ab12", "2 4"},
		{bre, `[[.-.]]`, "a-", "1 2"},
		{bre, `\<b`, "ab b", "3 4"},
		{bre, `b\>`, "bb b", "1 2"},
		{bre, `\w\+`, "é1 x", "0 3"},
		{bre, `.`, "\xff\xc3\xa9", "1 3"},
		{bre, `\(a\)\2`, "aa", "Invalid back reference"},
		{bre, `\(`, "", `Unmatched ( or \(`},
		{bre, `a\)`, "", `Unmatched ) or \)`},
		{bre, `[a`, "", `Unmatched [, [^, [:, [., or [=`},
		{bre, `a\{1`, "", `Unmatched \{`},
		{bre, `a\{2,1\}`, "", `Invalid content of \{\}`},
		{bre, `[b-a]`, "", `Invalid range end`},
		{bre, `[[:foo:]]`, "", `Invalid character class name`},
		{bre, `a\`, "", `Trailing backslash`},
		{bre, `\(a*\)*`, "b", "0 0 0 0"},
		{ere, `(a|ab)(c|bcd)(d*)`, "abcd", "0 4 0 1 1 4 4 4"},
		{ere, `(foo|foobar)(.*)`, "foobarx", "0 7 0 3 3 7"},
		{ere, `((a)|(b)|c)*`, "abc", "0 3 2 3 0 1 1 2"},
		{ere, `a{,2}`, "aaa", "0 2"},
		{ere, `(^a|b$)`, "ab", "0 1 0 1"},
		{ere, `x*`, "", "0 0"},
		{ere, `()`, "a", "0 0 0 0"},
		{ere, `a|b|`, "c", "0 0"},
		{ere, `(.)(.)\2\1`, "xabbax", "1 5 1 2 2 3"},
		{ere, `a+*`, "aaa", "0 3"},
		{ere | ic, `É+k`, "xéÉK", "1 6"},
		{ere | ic, `[a-c]+`, "xABCd", "1 4"},
		{ere | regex.Words, `foo`, "foobar foo", "7 10"},
		{ere | regex.Words, `a|ab`, "ab", "0 2"},
		{ere | regex.Whole, `a|ab`, "ab", "0 2"},
		{ere | regex.Multi, `^b`, "a\nb", "2 3"},
		{pcr, `a+?`, "aaa", "0 1"},
		{pcr, `(?<=a)b`, "bab", "2 3"},
		{pcr, `(?<!a)b`, "abb", "2 3"},
		{pcr, `foo(?=bar)`, "foobaz foobar", "7 10"},
		{pcr, `foo(?!bar)`, "foobar foobaz", "7 10"},
		{pcr, `a\Kb`, "ab", "1 2"},
		{pcr, `(?>a+)a`, "aaa", "-"},
		{pcr, `a++b`, "aab", "0 3"},
		{pcr, `(?<x>a)\k<x>`, "baa", "1 3 1 2"},
		{pcr, `(?i:A)b`, "ab", "0 2"},
		{pcr, `(?i)A(?-i)b`, "aB ab", "3 5"},
		{pcr, `\d{3}-\d{4}`, "tel 555-1234", "4 12"},
		{pcr, `[\w.]+@[\w.]+`, "to a.b@c.d!", "3 10"},
		{pcr, `\p{Lu}\p{Ll}+`, "xÉtéy", "1 7"},
		{pcr, `\x41\x{e9}`, "Aé", "0 3"},
		{pcr, `\Qa.b\E.`, "axb a.bc", "4 8"},
		{pcr, `(a|ab)(c|bcd)`, "abcd", "0 4 0 1 1 4"},
		{pcr, `(?:(a)|b)*`, "ab", "0 2 0 1"},
		{pcr, `^(?=.*\d)(?=.*[a-z]).+$`, "ab1", "0 3"},
		{pcr, `(`, "", "missing closing parenthesis at offset 1"},
		{pcr, `(?<=a*)b`, "", "lookbehind assertion is not fixed length at offset 7"},
	} {
		re, err := regex.Compile(c.pattern, c.flags)
		got := ""
		if err != nil {
			got = err.Error()
		} else if loc := re.FindSubmatchIndex([]byte(c.text), 0); loc == nil {
			got = "-"
		} else {
			got = strings.Trim(fmt.Sprint(loc), "[]")
		}
		if got != c.want {
			t.Errorf("%q in %q (flags %x): %s, want %s", c.pattern, c.text, c.flags, got, c.want)
		}
		if err == nil && re.Match([]byte(c.text)) != (got != "-") {
			t.Errorf("%q in %q: Match disagrees", c.pattern, c.text)
		}
	}
}

// TestBombs runs searches that must end at a limit, or at once.
func TestBombs(t *testing.T) {
	text := []byte(strings.Repeat("a", 3000))
	for _, c := range []struct {
		flags   regex.Flags
		pattern string
		hard    bool
	}{
		{regex.Extended, `(a*)*(a*)*(a*)*b`, false},
		{regex.Extended, `(a|a)*(a|aa)+c`, false},
		{regex.Extended, `(a+)+(a+)+\1bb`, false}, // there is no b
		{regex.Extended, `(a*)*(a*)*(a*)*\1[bc]`, true},
		{regex.Perl, `(a+)+(?!a)[bc]`, true},
		{regex.Perl, `(?:a?){300}(?:a){300}[bc]`, false},
		{regex.Extended, `((a{1,100}){1,100}){1,100}`, false},
	} {
		re, err := regex.Compile(c.pattern, c.flags)
		if err != nil {
			continue // too big
		}
		got := re.Match(text)
		if hard := re.Err() == regex.ErrTooHard; hard != c.hard || got && strings.HasSuffix(c.pattern, "c") {
			t.Errorf("%s: %v %v", c.pattern, got, re.Err())
		}
	}
	re, _ := regex.Compile(`(x+)+\1y|z`, regex.Extended)
	re.Budget(func(int) bool { return false })
	if re.Match([]byte(strings.Repeat("x", 1<<20))) || re.Err() == nil {
		t.Errorf("not stopped: %v", re.Err())
	}
}

// TestNextLine searches a buffer of lines.
func TestNextLine(t *testing.T) {
	text := "one\ntwo\n\nthree é\nfour"
	for pattern, want := range map[string]string{"o": "one two four", "^$": "", "e$": "one", "^t": "two three é", `\bé`: "three é", "": "one two  three é four", "[^x]": "one two three é four", "e.*e": "three é", `(.)\1`: "three é"} {
		re, err := regex.Compile(pattern, regex.Extended|regex.Lines)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for at := 0; at < len(text); {
			s, e := re.NextLine([]byte(text), at)
			if s < 0 {
				break
			}
			got = append(got, text[s:e])
			at = e + 1
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

// twice finds patterns that have different meanings in Go and POSIX: operators on operators, or on
// nothing.
var twice = regexp.MustCompile(`[(?*+|^$][?+*]|^[?+*]`)

// FuzzGo compares with Go's package regexp where both give a pattern the same meaning.
func FuzzGo(f *testing.F) {
	for _, s := range []string{"a*b", "(a|ab)(c|bcd)", "^a+$", "[a-c]+x?", "(a*)*b", "é.", "a{2,3}", "(a|b)*c|d", "\\w+\\b", "[^a]b", "(?:a|b)?c"} {
		f.Add(s, "aabbcc abcd xé", true)
		f.Add(s, "dcba", false)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, perl bool) {
		if len(pattern) > 40 || len(text) > 200 || strings.ContainsAny(pattern, "\\[{") && !perl {
			return
		}
		for _, r := range pattern + text {
			if r >= 0x80 && r != 'é' {
				return
			}
		}
		flags := regex.Extended
		if perl {
			flags = regex.Perl
		} else if twice.MatchString(pattern) {
			return
		}
		re, err := regex.Compile(pattern, flags)
		if err != nil {
			return
		}
		expr := pattern
		if !perl {
			expr = "(?s)" + pattern
		}
		theirs, gerr := regexp.Compile(expr)
		if gerr != nil || perl && strings.ContainsAny(pattern, "$[(\\{") {
			re.FindSubmatchIndex([]byte(text), 0)
			re.Match([]byte(text))
			return
		}
		if !perl {
			theirs.Longest()
		}
		want := theirs.FindStringIndex(text)
		s, e := re.FindIndex([]byte(text), 0)
		if (want == nil) != (s < 0) || want != nil && (want[0] != s || want[1] != e) {
			t.Fatalf("%q in %q: %d %d, want %v", pattern, text, s, e, want)
		}
		if re.Match([]byte(text)) != (want != nil) {
			t.Fatalf("%q in %q: Match disagrees", pattern, text)
		}
		if loc := re.FindSubmatchIndex([]byte(text), 0); (loc == nil) != (want == nil) || loc != nil && (loc[0] != s || loc[1] != e) {
			t.Fatalf("%q in %q: submatches %v, want %v", pattern, text, loc, want)
		}
	})
}
