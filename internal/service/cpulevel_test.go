package service

import (
	"strings"
	"testing"
)

// TestCPULevel names levels of lists of features. A list that lacks one feature is of the level
// below.
func TestCPULevel(t *testing.T) {
	v2 := "sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
	v3 := v2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
	v4 := v3 + " avx512f avx512bw avx512cd avx512dq avx512vl"
	for _, c := range []struct{ features, want string }{
		{"", ""}, {"asimd fp", ""}, {"sse2", "x86-64-v1"}, {v2, "x86-64-v2"}, {v3, "x86-64-v3"}, {v4, "x86-64-v4"},
		{strings.Replace(v4, "avx512vl", "", 1), "x86-64-v3"}, {strings.Replace(v4, "popcnt", "", 1), "x86-64-v1"},
	} {
		if got := cpuLevel(c.features); got != c.want {
			t.Errorf("%q is of level %q, want %q", c.features, got, c.want)
		}
	}
}
