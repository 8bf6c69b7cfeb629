package web

import (
	"slices"
	"testing"
)

func TestGlob(t *testing.T) {
	for in, want := range map[string][]string{
		"http://x/":             {"http://x/"},
		"http://x/{a,b}":        {"http://x/a", "http://x/b"},
		"http://x/[1-3]":        {"http://x/1", "http://x/2", "http://x/3"},
		"http://x/[01-10:4]":    {"http://x/01", "http://x/05", "http://x/09"},
		"http://x/[a-c]{1,2}":   {"http://x/a1", "http://x/a2", "http://x/b1", "http://x/b2", "http://x/c1", "http://x/c2"},
		"http://[::1]:80/":      {"http://[::1]:80/"},
		`http://x/\{a\}`:        {"http://x/{a}"},
		"http://x/[9-10]":       {"http://x/9", "http://x/10"},
		"http://x/{":            nil,
		"http://x/[1-":          nil,
		"http://x/[3-1]":        nil,
		"http://x/]":            nil,
		"http://x/[0-99999999]": nil,
		"[1-999][1-999][1-999]": nil,
	} {
		got, err := glob(in)
		var urls []string
		for _, g := range got {
			urls = append(urls, g.url)
		}
		if (err != nil) != (want == nil) || !slices.Equal(urls, want) {
			t.Errorf("%s: %q %v", in, urls, err)
		}
	}
}

// FuzzGlob looks for patterns that panic or expand to too many URLs.
func FuzzGlob(f *testing.F) {
	for _, s := range []string{"http://x/{a,b}[1-3]", "[::1]", "[0-9:2]", "{", "[", `\{`, "[a-z]", "{,}{,}{,}", "[00000000001-2]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := glob(s)
		if err == nil && len(all) > maxGlob {
			t.Errorf("%q makes %d", s, len(all))
		}
	})
}
