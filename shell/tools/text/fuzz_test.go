package text

import (
	"bytes"
	"testing"
	"time"
)

// FuzzSets looks for inputs that break the parsers of tr's sets, sort's keys, cut's lists, od's
// types and seq's formats.
func FuzzSets(f *testing.F) {
	for _, s := range []string{"a-z", "[:alpha:]", "[a*10]", "[=a=]", `\377-\0`, "1.2n,3b", "1-3,5-", "x1zd4", "%05.2f", `[ab`, `[:x`, `\`} {
		f.Add(s, "10 b")
	}
	f.Fuzz(func(t *testing.T, s, line string) {
		if len(s) > 1000 {
			return
		}
		start := time.Now()
		defer func() {
			if d := time.Since(start); d > time.Minute {
				t.Errorf("%q and %q took %v", s, line, d)
			}
		}()
		a, err := parseSet(s)
		if b, berr := parseSet(line); err == nil && berr == nil {
			_, _ = trTable(a, b, false, false)
			_, _ = trTable(a, b, true, true)
		}
		if k, err := parseKey(s); err == nil {
			for _, tab := range []int{-1, ' '} {
				from, to := k.bounds([]byte(line), tab)
				key := []byte(line)[from:to]
				if k.compare(key, key, 1) != 0 {
					t.Errorf("%q is not equal to itself by %q", key, s)
				}
				_ = k.prefix(key)
			}
		}
		_, _ = parseSpans(s, "field")
		_, _ = parseTypes(s)
		_, _, _, _, _ = floatFormat(s)
		_, _ = parseHexdump(s)
		_, _ = parseTabs([]string{s})
		_, _ = delimiters(s)
	})
}

// TestPrefix compares the quick comparison of numbers with the exact one.
func TestPrefix(t *testing.T) {
	k := sortKey{ordering: ordering{kind: 'n'}}
	texts := []string{"", "0", "-0", "-1", "1", "1.5", "1.50", ".5", "-.5", "10", "9", "123456789012345", "123456789012346", "1234567890123456", "1234567890123457",
		"0.1234567890123456", "0.123456789012345", "99999999999999999999", "-99999999999999999999", "x", " 7", "1e3"}
	for _, a := range texts {
		for _, b := range texts {
			want := k.compare([]byte(a), []byte(b), 0)
			pa, pb := k.prefix([]byte(a)), k.prefix([]byte(b))
			switch {
			case pa>>1 < pb>>1 && want >= 0, pa>>1 > pb>>1 && want <= 0, pa>>1 == pb>>1 && k.exact(pa&pb) && want != 0:
				t.Errorf("%q and %q: prefixes %x %x, compared %d", a, b, pa, pb, want)
			}
		}
	}
	if compareVersions([]byte("a1"), []byte("a01")) == 0 && !bytes.Equal([]byte("a1"), []byte("a01")) {
		t.Log("versions that differ in zeros are equal")
	}
}
