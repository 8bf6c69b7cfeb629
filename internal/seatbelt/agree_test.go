package seatbelt

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/settings"
)

// elements are few, so that rules and paths often match.
var elements = []string{"a", "b", ".git", "hooks", "x.json", "a\nb", "q\"", "b\\", "é"}

func somePath(r *rand.Rand) string {
	n := r.IntN(6)
	p := ""
	for range n {
		p += "/" + elements[r.IntN(len(elements))]
	}
	if p == "" {
		return "/"
	}
	return p
}

func plainPath(r *rand.Rand) string {
	p := "/"
	for range r.IntN(4) {
		p = path.Join(p, elements[r.IntN(6)])
	}
	return p
}

func someBox(r *rand.Rand) *settings.Box {
	b := &settings.Box{Dir: "/a", Home: "/a/b", ReadDefault: settings.Readable, WriteDefault: settings.Denied, Closed: true}
	if r.IntN(3) == 0 {
		b.ReadDefault = settings.Denied
	} else if r.IntN(4) == 0 {
		b.WriteDefault = settings.Writable
	}
	said := map[string]bool{}
	for range r.IntN(8) {
		p := somePath(r)
		if !said[p] {
			b.Paths = append(b.Paths, settings.PathRule{Path: p, Access: []settings.Access{settings.Denied, settings.Readable, settings.Writable}[r.IntN(3)]})
		}
		said[p] = true
	}
	for range r.IntN(4) {
		g := settings.Protected{Pattern: []string{".git/hooks", "x.json", "*.json", "hooks", "q\"", "?", "[ab]", "b\\\\", ".git/*", "é"}[r.IntN(10)], Deep: true}
		switch r.IntN(4) {
		case 0: // absolute; Seatbelt is stricter about pattern characters except the star
			g.Pattern, g.Deep = path.Join(plainPath(r), []string{".git/hooks", "x.json", "*.json", "*/hooks"}[r.IntN(4)]), false
		case 1:
			g.Dir = somePath(r)
		}
		b.Protected = append(b.Protected, g)
	}
	return b
}

// agree compares a profile with the decisions that it was made from. In two cases the profile is
// stricter on purpose: the directories in front of protected names are neither moved nor made; and
// a writable rule's own path may be protected by its name.
func agree(t *testing.T, b *settings.Box, p *profile, at string) {
	t.Helper()
	// A deep pattern of one directory holds everywhere. Otherwise the protected file could be moved
	// out and back.
	wide := *b
	wide.Protected = slices.Clone(b.Protected)
	for i := range wide.Protected {
		if wide.Protected[i].Deep {
			wide.Protected[i].Dir = ""
		}
	}
	b = &wide
	want, rule := b.Access(at)
	if at != "/" { // the root's list of names is always readable
		if got := p.allows("file-read-data", at); got != (want != settings.Denied) {
			t.Errorf("%q is %s by %+v, and read: %v", at, want, rule, got)
		}
	}
	write := p.allows("file-write-data", at)
	if write && want != settings.Writable || !write && want == settings.Writable && rule.Path != at {
		t.Errorf("%q is %s by %+v, and written: %v", at, want, rule, write)
	}
	if !write && (p.allows("file-write-create", at) || p.allows("file-write-unlink", at)) {
		t.Errorf("%q can't be written, but made or removed", at)
	}
	// No directory above a closed path can be moved.
	if want != settings.Writable {
		for dir := at; dir != "/"; {
			dir = path.Dir(dir)
			if rule.Path == at && p.allows("file-write-unlink", dir) && !anywhere(b, at) {
				t.Errorf("%q is %s, and %q can be moved", at, want, dir)
			}
		}
	}
}

// anywhere reports whether a path is closed by a name that holds in every directory. Such a file is
// closed wherever it is moved.
func anywhere(b *settings.Box, at string) bool {
	_, rule := b.Access(at)
	for _, r := range b.Paths {
		if r.Path == rule.Path {
			return false
		}
	}
	for _, g := range b.Protected {
		if g.Dir == "" && !strings.HasPrefix(g.Pattern, "/") {
			return true
		}
	}
	return false
}

// TestAgrees shows that the profile decides like the box, for any box.
func TestAgrees(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 80
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		b := someBox(r)
		text, err := Profile(b)
		if err != nil {
			t.Fatalf("%+v: %v", b, err)
		}
		p := parse(t, text)
		for range 40 {
			agree(t, b, p, somePath(r))
		}
		for _, rule := range b.Paths {
			agree(t, b, p, rule.Path)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%s", seed, b, text)
		}
	}
}

// TestResolved does the same for a box that package settings made for macOS, from a home with
// secrets.
func TestResolved(t *testing.T) {
	home := "/Users/ann"
	there := func(p string) bool {
		return p == home || p == home+"/project" || strings.HasPrefix(p, home+"/.ssh") || p == home+"/.aws" || p == home+"/.config" || p == home+"/.config/gh" || p == "/Users" || p == home+"/Library" || strings.HasPrefix(p, home+"/Library/Keychains")
	}
	b, err := settings.Resolve(settings.Request{Dir: home + "/project", Home: home, OS: "darwin", NoFiles: true, UID: 501, Exists: there})
	if err != nil {
		t.Fatal(err)
	}
	text, err := Profile(b)
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, text)
	t.Logf("%d bytes, %d rules, %d paths, %d names", len(text), len(p.rules), len(b.Paths), len(b.Protected))
	for _, at := range []string{home + "/project/x", home + "/project/.git/hooks/pre-commit", home + "/project/.git/config", home + "/project/a/.vscode/tasks.json", home + "/.ssh/id_rsa", home + "/.aws/credentials",
		home + "/.config/gh/hosts.yml", home + "/Library/Keychains/login.keychain-db", home + "/notes", home + "/.bashrc", "/private/etc/hosts", "/usr/bin/true", home + "/project/.mcp.json", home + "/project/.git/modules/x/config"} {
		agree(t, b, p, at)
	}
	if p.allows("file-read-data", home+"/.ssh/id_rsa") || p.allows("file-read-data", home+"/Library/Keychains/x") || p.allows("file-write-data", home+"/project/.git/config") || !p.allows("file-write-data", home+"/project/main.go") {
		t.Error("the box is not what was meant")
	}
}

// FuzzQuote shows that a quoted text is read back unchanged, and that each quote is closed.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", `a"b`, `\`, "\n", `")(allow default)("`, "\xff", "; x", `\n`, "#\"", "é\t\r\x01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := quote(s)
		if err != nil {
			return
		}
		nodes, err := read("(allow " + q + ")")
		if err != nil || len(nodes) != 1 || len(nodes[0].list) != 2 || nodes[0].list[1].atom != s {
			t.Fatalf("%q is written %s and read as %+v %v", s, q, nodes, err)
		}
	})
}

// FuzzExpression shows that a pattern without stars becomes an expression that matches the
// pattern's own text.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{".git/config", "a[b", "*.x", "ſ", "ẞ", `\`, "[!a]b", "x{2}", "ffi", ".", "\xdf", "a\xffb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if s == "" || strings.ContainsAny(s, "\x00") || path.Clean(s) != s || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "..") || s == "." {
			return
		}
		if _, err := path.Match(s, ""); err != nil || len(s) > 200 {
			return
		}
		b := &settings.Box{Dir: "/w", Home: "/h", ReadDefault: settings.Readable, WriteDefault: settings.Writable, Closed: true, Protected: []settings.Protected{{Pattern: s, Deep: true}}}
		text, err := Profile(b)
		if err != nil {
			return
		}
		p := parse(t, text)
		if strings.ContainsAny(s, `*?[\`) {
			return
		}
		for _, at := range []string{"/" + s, "/w/x/" + s, "/w/" + s + "/y", "/w/" + strings.ToUpper(s)} {
			if !strings.EqualFold(at, strings.ToUpper(at)) {
				continue
			}
			if p.allows("file-write-data", at) {
				t.Errorf("%q does not hold %q", s, at)
			}
		}
	})
}
