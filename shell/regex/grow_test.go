package regex_test

import (
	"testing"

	"github.com/carrel-dev/carrel/shell/regex"
)

// TestMayGrow shows that a match may grow while the expression can go on after the input that was
// read.
func TestMayGrow(t *testing.T) {
	for _, c := range []struct {
		expression, text string
		want             bool
	}{
		{"ab", "xab", true}, // nothing was read behind it
		{"ab", "xabcd", false},
		{"a(bc)?", "xab", true},
		{"a(bc)?", "xabde", false},
		{"a+", "xaabc", false},
		{"a.*z|a", "abcd", true},
		{"a[^\n]*z|a", "ab\nd", false},
	} {
		re, err := regex.Compile(c.expression, regex.Extended)
		if err != nil {
			t.Fatal(err)
		}
		b := []byte(c.text)
		start, end := re.FindIndex(b, 0)
		if got := re.MayGrow(b, start, end); got != c.want {
			t.Errorf("%q in %q: %v", c.expression, c.text, got)
		}
	}
}
