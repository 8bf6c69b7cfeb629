package cli

import (
	"strings"
	"testing"
)

// TestNearest finds the intended word, and none if nothing is similar.
func TestNearest(t *testing.T) {
	names := []string{"create", "exec", "ls", "list", "pause", "template", "port-forward"}
	for word, want := range map[string]string{
		"creat": "create", "craete": "create", "temp": "template", "lst": "ls", "exce": "exec", "port": "port-forward", "": "", "zzz": "", "l": "", "pauze": "pause", "deploy": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%q is taken for %q, not %q", word, got, want)
		}
	}
}

// TestLimitFlags shows that a size has a unit or is in MiB, and that memory and processors can't be
// 0.
func TestLimitFlags(t *testing.T) {
	for text, want := range map[string]int{"512": 512, "512M": 512, "4GiB": 4096, "4G": 4096, "1.5g": 1536, "0": 0, "-1": 0, "4X": 0, "": 0, "1e3": 0} {
		var m mebibytes
		if err := m.Set(text); int(m) != want || (err == nil) != (want > 0) {
			t.Errorf("--memory %q is %d, %v; want %d", text, m, err, want)
		} else if err != nil && strings.Contains(err.Error(), "strconv") {
			t.Errorf("--memory %q: %v", text, err)
		}
	}
	for text, want := range map[string]float64{"2": 2, "0.5": .5, "0": 0, "-1": 0, "NaN": 0, "Inf": 0, "two": 0} {
		var n cores
		if err := n.Set(text); float64(n) != want || (err == nil) != (want > 0) {
			t.Errorf("--cpus %q is %v, %v; want %v", text, n, err, want)
		}
	}
}
