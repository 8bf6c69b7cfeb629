package agent

import (
	"path"
	"strings"
	"testing"
)

func TestResolvePath(t *testing.T) {
	ann := User{Name: "ann", Home: "/home/ann"}
	for in, want := range map[string]string{
		"":                       "/home/ann",
		".":                      "/home/ann",
		"a/b":                    "/home/ann/a/b",
		"./a//b/":                "/home/ann/a/b",
		"../bob/x":               "/home/bob/x",
		"../../../../etc/passwd": "/etc/passwd",
		"/a/./b/../c/":           "/a/c",
		"/":                      "/",
		"//":                     "/",
		"~":                      "/home/ann",
		"~/":                     "/home/ann",
		"~/x":                    "/home/ann/x",
		"~/../x":                 "/home/x",
		`~\x`:                    `/home/ann/\x`,
		"a/~":                    "/home/ann/a/~",
		" a ":                    "/home/ann/ a ",
		"a\nb":                   "/home/ann/a\nb",
	} {
		if got, err := resolvePath("path", in, ann); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := resolvePath("path", "x", User{Name: "lost"}); err != nil || got != "/x" {
		t.Errorf("without a home: %q, %v", got, err)
	}
}

func FuzzResolvePath(f *testing.F) {
	for _, s := range []string{"", "~", "~bob", "~/x", "/", "../..", "a\x00b", strings.Repeat("/d", 3000), strings.Repeat("n", 300), "a/./../b//", `~\..`, "\xff/é"} {
		f.Add(s, "/home/ann")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, name, home string) {
		got, err := resolvePath("path", name, User{Name: "ann", Home: home})
		if err != nil {
			return
		}
		if !path.IsAbs(got) || path.Clean(got) != got || len(got) > maxPath || strings.Contains(got, "\x00") && !strings.Contains(home, "\x00") {
			t.Fatalf("%q in %q became %q", name, home, got)
		}
		if again, err := resolvePath("path", got, User{Name: "bob", Home: "/other"}); strings.Contains(home, "\x00") == false && (err != nil || again != got) {
			t.Fatalf("%q resolves again to %q, %v", got, again, err)
		}
	})
}
