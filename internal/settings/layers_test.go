package settings_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// TestOrder checks all layers; each is stronger than the one before.
func TestOrder(t *testing.T) {
	p := newPlace(t)
	p.file("data/x", "x")
	p.file(".config/carrel/run.yaml", "write: {allow: [~/data]}\nlimits: {pids: 10, memory: 1G}\n")
	b := p.resolve()
	p.want(b, map[string]settings.Access{"data/x": writable})
	if b.Pids != 10 || b.MemoryMB != 1024 || !slices.Equal(b.Layers, []settings.Source{"~/.config/carrel/run.yaml", "flags"}) {
		t.Errorf("%+v", b)
	}
	p.file("project/.carrel.yaml", "write: {deny: [~/data]}\nlimits: {pids: 5}\n")
	b = p.resolve()
	p.want(b, map[string]settings.Access{"data/x": readable})
	if b.Pids != 5 {
		t.Error(b.Pids)
	}
	file := p.file("given.yaml", "write: {allow: [data]}\nlimits: {pids: 20}\n") // relative to the file
	b = p.resolve(func(r *settings.Request) { r.File = file })
	p.want(b, map[string]settings.Access{"data/x": writable})
	if b.Pids != 20 {
		t.Error(b.Pids)
	}
	none := 0
	b = p.resolve(func(r *settings.Request) {
		r.File, r.Flags.Write.Deny, r.Flags.Limits.Pids = file, []string{"~/data"}, &none
	})
	p.want(b, map[string]settings.Access{"data/x": readable})
	if b.Pids != 0 {
		t.Error(b.Pids)
	}
	if b = p.resolve(func(r *settings.Request) { r.NoFiles = true }); b.Pids != 4096 {
		t.Error(b.Pids)
	}
}

// TestMostSpecific shows that the longer path decides, whatever its layer.
func TestMostSpecific(t *testing.T) {
	p := newPlace(t)
	p.file("a/b/c/d/x", "x")
	p.file(".config/carrel/run.yaml", "read: {deny: [~/a/b, ~/a/b/c/d]}\n")
	b := p.resolve(flags(settings.Settings{Read: settings.PathRules{Allow: []string{"~/a", "~/a/b/c"}}}))
	p.want(b, map[string]settings.Access{"a/x": readable, "a/b/x": denied, "a/b/c/x": readable, "a/b/c/d/x": denied})
	// Opening for writing also opens reading. Closing reading also closes writing.
	b = p.resolve(flags(settings.Settings{Write: settings.PathRules{Allow: []string{"~/a", "~/a/b/c"}}}))
	p.want(b, map[string]settings.Access{"a/x": writable, "a/b/x": denied, "a/b/c/x": writable, "a/b/c/d/x": denied})
	b = p.resolve(flags(settings.Settings{Write: settings.PathRules{Allow: []string{"~/a/b"}, Deny: []string{"~/a/b/c"}}}))
	p.want(b, map[string]settings.Access{"a/b/x": writable, "a/b/c/x": readable, "a/b/c/d/x": denied})
}

// TestTrust shows that the project's file closes paths at once, but opens paths only after its
// exact content was trusted.
func TestTrust(t *testing.T) {
	p := newPlace(t)
	p.file("data/x", "x")
	p.file("project/private/x", "x")
	opening := `
profiles: [git]
tier: sim
read: {allow: [~/.ssh], deny: [private]}
write: {allow: [~/data], unprotect: [.mcp.json], protect: [lock]}
network: {allow: [example.com], policy: github, sockets: [/var/run/docker.sock], publish: ["8080"], host: true, bind: false}
env: {pass: [MY_TOKEN], set: {A: b}, strip: [PLAIN]}
limits: {pids: none, memory: 64M}
overlay: true
walls: light
`
	p.file(".ssh/id", "x")
	p.file("project/.carrel.yaml", opening)
	env := func(r *settings.Request) { r.Env = append(r.Env, "MY_TOKEN=x", "PLAIN=y") }
	untrusted := func(b *settings.Box) {
		t.Helper()
		p.want(b, map[string]settings.Access{"data/x": readable, ".ssh/id": denied, "project/.mcp.json": readable, "project/lock/x": readable, "project/private/x": denied})
		if !b.Closed || b.Host || b.Light || b.Bind || !b.Overlay || b.Tier != carrel.NS || len(b.Sockets)+len(b.Publish)+len(b.Profiles) > 0 || b.Pids != 4096 || b.MemoryMB != 64 {
			t.Errorf("%+v", b)
		}
		for _, v := range b.Env {
			if v.Kept && v.Name != "PATH" && v.Name != "HOME" {
				t.Errorf("%+v", v)
			}
		}
		noted(t, b, "is not trusted")
	}
	untrusted(p.resolve(env))
	b := p.resolve(env, func(r *settings.Request) { r.Trust = true })
	p.want(b, map[string]settings.Access{"data/x": writable, ".ssh/id": readable, "project/.mcp.json": writable, "project/private/x": denied})
	if b.Tier != carrel.Sim || !b.Light || !b.Host || len(b.Sockets) != 1 || b.Pids != 0 {
		t.Errorf("%+v", b)
	}
	p.want(p.resolve(env), map[string]settings.Access{"data/x": writable}) // it stays trusted
	p.file("project/.carrel.yaml", opening+"# changed\n")
	untrusted(p.resolve(env))
	if text := newPlace(t).fails(func(r *settings.Request) { r.Trust = true }); !strings.Contains(text, "--trust") {
		t.Error(text)
	}
	// The same content at another path is another file.
	q := newPlace(t)
	q.file("project/.carrel.yaml", opening)
	q.file("data/x", "x")
	q.want(q.resolve(func(r *settings.Request) { r.StateDir = p.home + "/.local/state/carrel" }), map[string]settings.Access{"data/x": readable})
}

// TestProjectFileAbove finds the project's file in a directory above. Its paths are relative to
// that directory.
func TestProjectFileAbove(t *testing.T) {
	p := newPlace(t)
	p.file("project/.carrel.yaml", "read: {deny: [./docs, '*.key']}\nwrite: {deny: [web/dist]}\n")
	p.file("project/docs/x", "x")
	p.file("project/web/dist/x", "x")
	p.file("project/web/a.key", "x")
	b := p.resolve(func(r *settings.Request) { r.Dir = p.dir + "/web" })
	p.want(b, map[string]settings.Access{"project/docs/x": denied, "project/web/x": writable, "project/web/dist/x": readable, "project/web/a.key": denied, "project/.carrel.yaml": readable})
}

// TestProfiles checks each built-in profile, and what they open together.
func TestProfiles(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{".npm/x", ".claude/settings.json", ".claude/todo/x", ".claude/.credentials.json", "go/pkg/x"} {
		p.file(dir, "x")
	}
	for _, pr := range settings.Profiles() {
		if pr.Description == "" {
			t.Errorf("%s says nothing of itself", pr.Name)
		}
		b := p.resolve(func(r *settings.Request) { r.Flags.Profiles = []string{pr.Name} })
		p.want(b, map[string]settings.Access{"project/x": writable, ".ssh/id": readable}) // there is none
		p.want(b, map[string]settings.Access{"project/.mcp.json": readable, "project/.bashrc": readable})
		if b.Host || slices.Contains(b.Sockets, "*") {
			t.Errorf("%s opens too much", pr.Name)
		}
		for _, n := range b.Notes {
			if strings.HasPrefix(n, "!") {
				t.Errorf("%s: %s", pr.Name, n)
			}
		}
	}
	b := p.resolve(func(r *settings.Request) {
		r.Flags.Profiles = []string{"claude-code", "node", "github", "go"}
		r.Env = append(r.Env, "ANTHROPIC_API_KEY=k", "AWS_SECRET_ACCESS_KEY=k")
	})
	p.want(b, map[string]settings.Access{".npm/x": writable, "go/pkg/y": writable, ".claude/todo/x": writable, ".claude/.credentials.json": writable, ".claude/settings.json": readable, ".claude/hooks/x": readable})
	if !slices.Contains(b.Policy.Presets, "anthropic") || !slices.Contains(b.Policy.Presets, "github") || b.Closed {
		t.Errorf("%+v", b.Policy)
	}
	for _, v := range b.Env {
		if v.Name == "ANTHROPIC_API_KEY" && !v.Kept || v.Name == "AWS_SECRET_ACCESS_KEY" && v.Kept {
			t.Errorf("%+v", v)
		}
	}
	if text := p.fails(func(r *settings.Request) { r.Flags.Profiles = []string{"cluade-code"} }); !strings.Contains(text, "did you mean claude-code?") {
		t.Error(text)
	}
}

// TestStrict shows what stays readable if reading is closed by default.
func TestStrict(t *testing.T) {
	p := newPlace(t)
	p.file("other/x", "x")
	p.file("project/.env", "x")
	b := p.resolve(func(r *settings.Request) {
		r.Flags = settings.Settings{Profiles: []string{"strict"}}
		r.Env = append(r.Env, "WHATEVER=x", "LANG=C")
	})
	p.want(b, map[string]settings.Access{"project/x": writable, "project/.env": denied, "/usr/bin/env": readable, "/etc/passwd": readable, "/etc/shadow": denied, "/opt/x": readable, "/srv/x": denied})
	for _, v := range b.Env {
		if v.Kept != (v.Name != "WHATEVER") {
			t.Errorf("%+v", v)
		}
	}
}

// randomSettings makes a random layer about the paths of a small tree.
func randomSettings(r *rand.Rand) settings.Settings {
	paths := []string{"~", ".", "~/a", "~/a/b", "~/a/b/c", "a", "a/b", "a/.env", "/usr", "/etc", "*.key", ".env*", "**/b", "a/*", ".mcp.json", ".git/hooks", "~/.ssh", "~/.ssh/id", "a/b/", "/", "/tmp", "/var/tmp/y", "/tmp/y"}
	opens := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == "/" || p == "/tmp" || p == "/usr" }) // searching them completely takes long
	list := func(from []string) []string {
		var out []string
		for range r.IntN(4) {
			if s := from[r.IntN(len(from))]; !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
		return out
	}
	word := func(words ...string) string { return words[r.IntN(len(words))] }
	truth := func() *bool {
		b := r.IntN(2) == 0
		return []*bool{nil, &b}[r.IntN(2)]
	}
	n, d := r.IntN(20)*100, time.Duration(r.IntN(9))*time.Second
	s := settings.Settings{
		Profiles: list([]string{"git", "node", "claude-code", "strict"}), Tier: word("", "ns", "gvisor", "sim"),
		Read:    settings.PathRules{Allow: list(opens), Deny: list(paths), Default: word("", "", "allow", "deny")},
		Write:   settings.PathRules{Allow: list(opens), Deny: list(paths), Default: word("", "", "", "allow"), Protect: list([]string{"lock", ".x/y"}), Unprotect: list([]string{".git", ".mcp.json"})},
		Network: settings.NetworkRules{Allow: list([]string{"example.com", "*.example.org", "10.0.0.0/8"}), Deny: list([]string{"example.net", "192.0.2.1"}), PolicyRef: word("", "github", "allow"), Bind: truth(), Host: r.IntN(4) == 0, Sockets: list([]string{"/a", "*"}), Publish: list([]string{"80"})},
		Env:     settings.EnvRules{Pass: list([]string{"A_TOKEN", "*"}), Strip: list([]string{"PLAIN", "P*"}), Clear: r.IntN(4) == 0, Set: map[string]string{"SET": "x"}},
		Limits:  settings.Limits{Pids: []*int{nil, &n}[r.IntN(2)], MemoryMB: []*int{nil, &n}[r.IntN(2)], Timeout: []*time.Duration{nil, &d}[r.IntN(2)]},
		Overlay: truth(), Walls: word("", "light"), Terminal: word("", "own", "none"),
	}
	if s.Read.Default == "deny" {
		s.Write.Default = ""
	}
	return s
}

// open describes the openness of a box in numbers. A more open box has higher numbers.
func open(b *settings.Box, paths []string) map[string]int {
	out := map[string]int{}
	count := func(name string, yes bool) {
		if yes {
			out[name] = 1
		}
	}
	for _, p := range paths {
		a, rule := b.Access(p)
		if slices.Contains(b.Private, rule.Path) {
			a = denied // nothing of this machine is visible there
		}
		out[p] = map[settings.Access]int{denied: 0, readable: 1, writable: 2}[a]
	}
	for _, v := range b.Env {
		count("env "+v.Name, v.Kept)
	}
	for _, s := range b.Sockets {
		out["socket "+s] = 1
	}
	for _, r := range b.Policy.Rules {
		for _, d := range r.Allow {
			out["net "+d] = 1
		}
	}
	for _, s := range b.Policy.Presets {
		out["preset "+s] = 1
	}
	for name, n := range map[string]int{"pids": b.Pids, "memory": b.MemoryMB, "timeout": int(b.Timeout)} {
		if n == 0 {
			n = 1 << 62
		}
		out[name] = n
	}
	count("host", b.Host)
	count("net", !b.Closed)
	count("default", b.Policy.Default == "allow")
	count("light", b.Light)
	count("bind", b.Bind)
	count("terminal", !b.NoTerminal)
	count("overlay", !b.Overlay)
	out["publish"], out["tier"] = len(b.Publish), map[carrel.Tier]int{carrel.NS: 3, carrel.GVisor: 2, carrel.Sim: 1}[b.Tier]
	return out
}

// TestUntrustedNeverOpens makes boxes from random layers, with and without an untrusted project's
// file of random content. That file must never open anything.
func TestUntrustedNeverOpens(t *testing.T) {
	p := newPlace(t)
	var paths []string
	for _, f := range []string{".ssh/id", ".env", ".mcp.json", "x", "a/.env", "a/x", "a/b/x", "a/b/c/x", "a/b/c/k.key", ".git/hooks/x", ".git/config", "lock/x", ".x/y"} {
		paths = append(paths, p.file(f, "x"), p.file("project/"+f, "x"))
	}
	paths = append(paths, "/usr/bin/x", "/etc/passwd", "/etc/shadow", "/tmp/x", "/tmp", "/var/tmp/y", "/run/x", "/", p.home, p.dir, p.dir+"/new/.vscode/x")
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	tried := 0
	for i := range 300 {
		req := p.request()
		req.Flags = randomSettings(r)
		req.Env = append(req.Env, "A_TOKEN=x", "PLAIN=x", "OTHER=x")
		os.Remove(filepath.Join(p.dir, ".carrel.yaml"))
		before, err := settings.Resolve(req)
		if err != nil {
			continue // a contradiction
		}
		p.file("project/.carrel.yaml", yamlOf(randomSettings(r)))
		after, err := settings.Resolve(req)
		if err != nil {
			continue
		}
		tried++
		was, is := open(before, paths), open(after, paths)
		for k, n := range is {
			if n > was[k] && !ownHidden(before, after, k) {
				text, _ := os.ReadFile(filepath.Join(p.dir, ".carrel.yaml"))
				t.Fatalf("seed %d, round %d: %s was %d and is %d with the file\n%s\nflags %+v\nbefore %q\nafter %q", seed, i, k, was[k], n, text, req.Flags, below(before, p.home), below(after, p.home))
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d boxes compared", tried)
	}
}

// ownHidden reports whether a path was hidden by the box's own /tmp alone, in which these tests' home
// is, and is opened by the user's flags. A file that closes what is around makes them count.
func ownHidden(before, after *settings.Box, p string) bool {
	if !strings.HasPrefix(p, "/") {
		return false
	}
	_, was := before.Access(p)
	_, is := after.Access(p)
	return slices.Contains(before.Private, was.Path) && is.Source == "flags"
}

// yamlOf writes settings as a file, by hand; it covers the whole format.
func yamlOf(s settings.Settings) string {
	var w strings.Builder
	list := func(key string, l []string) {
		if l != nil {
			fmt.Fprintf(&w, "%s: %s\n", key, strings.ReplaceAll(fmt.Sprintf("%q", l), `" "`, `", "`))
		}
	}
	word := func(key, v string) {
		if v != "" {
			fmt.Fprintf(&w, "%s: %s\n", key, v)
		}
	}
	truth := func(key string, b *bool) {
		if b != nil {
			fmt.Fprintf(&w, "%s: %t\n", key, *b)
		}
	}
	list("profiles", s.Profiles)
	word("tier", s.Tier)
	word("walls", s.Walls)
	word("terminal", s.Terminal)
	truth("overlay", s.Overlay)
	w.WriteString("read:\n  x: 1\n")
	text := strings.TrimSuffix(w.String(), "read:\n  x: 1\n")
	w.Reset()
	section := func(name string) {
		if w.Len() > 0 {
			text += name + ":\n  " + strings.TrimSuffix(strings.ReplaceAll(w.String(), "\n", "\n  "), "  ")
			w.Reset()
		}
	}
	list("allow", s.Read.Allow)
	list("deny", s.Read.Deny)
	word("default", s.Read.Default)
	section("read")
	list("allow", s.Write.Allow)
	list("deny", s.Write.Deny)
	word("default", s.Write.Default)
	list("protect", s.Write.Protect)
	list("unprotect", s.Write.Unprotect)
	section("write")
	list("allow", s.Network.Allow)
	list("deny", s.Network.Deny)
	word("policy", s.Network.PolicyRef)
	list("sockets", s.Network.Sockets)
	list("publish", s.Network.Publish)
	truth("bind", s.Network.Bind)
	truth("host", &s.Network.Host)
	section("network")
	list("pass", s.Env.Pass)
	list("strip", s.Env.Strip)
	truth("clear", &s.Env.Clear)
	fmt.Fprintf(&w, "set: {SET: x}\n")
	section("env")
	size := func(key string, n *int, unit string) {
		switch {
		case n != nil && *n == 0:
			fmt.Fprintf(&w, "%s: none\n", key)
		case n != nil:
			fmt.Fprintf(&w, "%s: %d%s\n", key, *n, unit)
		}
	}
	size("pids", s.Limits.Pids, "")
	size("memory", s.Limits.MemoryMB, "M")
	if d := s.Limits.Timeout; d != nil && *d == 0 {
		w.WriteString("timeout: none\n")
	} else if d != nil {
		fmt.Fprintf(&w, "timeout: %s\n", d)
	}
	section("limits")
	if text == "" {
		return "{}"
	}
	return text
}

// TestOrderWithinALayer shows that the order of a list does not matter.
func TestOrderWithinALayer(t *testing.T) {
	p := newPlace(t)
	for _, f := range []string{"a/.env", "a/b/x", "a/b/c/k.key", ".git/hooks/x"} {
		p.file(f, "x")
		p.file("project/"+f, "x")
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	for range 100 {
		req := p.request()
		req.Flags = randomSettings(r)
		first, err := settings.Resolve(req)
		for _, l := range [][]string{req.Flags.Read.Allow, req.Flags.Read.Deny, req.Flags.Write.Allow, req.Flags.Write.Deny} {
			r.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		}
		second, err2 := settings.Resolve(req)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%+v: %v, then %v", req.Flags, err, err2)
		}
		if err != nil {
			continue
		}
		if a, b := below(first, p.home), below(second, p.home); !slices.Equal(a, b) {
			t.Fatalf("%+v\n%s\n%s", req.Flags, a, b)
		}
	}
}

// below lists the rules in a directory.
func below(b *settings.Box, dir string) []string {
	var out []string
	for _, r := range b.Paths {
		if strings.HasPrefix(r.Path, dir) {
			out = append(out, r.Path+" "+string(r.Access))
		}
	}
	return out
}
