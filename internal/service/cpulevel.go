package service

import "strings"

// cpuLevels are the levels of the x86-64 psABI, the lowest first, with the features that each adds
// to the one before. The names are those of /proc/cpuinfo. Level 1 is every x86-64 processor.
var cpuLevels = []struct {
	name string
	adds []string
}{
	{"x86-64-v2", []string{"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}},
	{"x86-64-v3", []string{"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}},
	{"x86-64-v4", []string{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
}

// cpuLevel names the highest level whose features are all in a list of names. It returns "" for an
// empty list, and for one of another architecture.
func cpuLevel(features string) string {
	has := map[string]bool{}
	for name := range strings.FieldsSeq(features) {
		has[name] = true
	}
	if !has["sse2"] {
		return ""
	}
	level := "x86-64-v1"
	for _, l := range cpuLevels {
		for _, f := range l.adds {
			if !has[f] {
				return level
			}
		}
		level = l.name
	}
	return level
}
