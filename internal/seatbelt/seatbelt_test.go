package seatbelt

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

var update = flag.Bool("update", false, "write the golden profiles anew")

// project returns a box as "carrel run" makes it for a project.
func project() *settings.Box {
	return &settings.Box{
		Dir: "/Users/ann/project", Home: "/Users/ann", ReadDefault: settings.Readable, WriteDefault: settings.Denied,
		Paths: []settings.PathRule{
			{Path: "/Users/ann/.aws", Access: settings.Denied},
			{Path: "/Users/ann/.ssh", Access: settings.Denied},
			{Path: "/Users/ann/.ssh/known_hosts", Access: settings.Readable},
			{Path: "/Users/ann/project", Access: settings.Writable},
			{Path: "/Users/ann/project/.env", Access: settings.Denied},
			{Path: "/Users/ann/project/.git/hooks", Access: settings.Readable},
			{Path: "/Users/ann/project/.vscode/tasks", Access: settings.Writable},
			{Path: "/Users/ann/project/sub/dir/secrets", Access: settings.Denied},
			{Path: "/Users/ann/project/sub/dir/secrets/sample", Access: settings.Writable},
			{Path: "/Users/bob", Access: settings.Denied},
		},
		Protected: []settings.Protected{
			{Pattern: ".git/hooks", Deep: true}, {Pattern: ".git/config", Deep: true}, {Pattern: ".mcp.json", Deep: true},
			{Pattern: "*.code-workspace", Deep: true}, {Pattern: ".vscode", Deep: true},
			{Pattern: "/Users/ann/.config/git"}, {Pattern: "Makefile", Dir: "/Users/ann/project/sub"},
		},
		Closed: true, Bind: true,
	}
}

func boxes() map[string]struct {
	box     *settings.Box
	options Options
} {
	strict := project()
	strict.ReadDefault, strict.Bind = settings.Denied, false
	strict.Paths = append(strict.Paths, settings.PathRule{Path: "/usr", Access: settings.Readable}, settings.PathRule{Path: "/System", Access: settings.Readable})
	wide := project()
	wide.WriteDefault, wide.Host, wide.Closed, wide.Sockets = settings.Writable, true, false, []string{"*"}
	proxied := project()
	proxied.Closed, proxied.Policy = false, carrel.Policy{Rules: []carrel.Rule{{}}}
	proxied.Publish, proxied.Sockets = []string{"8080", "0.0.0.0:9000:9000"}, []string{"/var/run/docker.sock"}
	names := &settings.Box{Dir: "/", Home: "/Users/x", ReadDefault: settings.Readable, WriteDefault: settings.Denied, Closed: true,
		Paths: []settings.PathRule{
			{Path: "/w/a\"))(allow default)(deny file-read* (subpath \"b", Access: settings.Denied},
			{Path: "/w/line\nend\t\\", Access: settings.Denied}, {Path: "/w/\xff\xfe", Access: settings.Denied}, {Path: "/tmp/x", Access: settings.Writable},
			{Path: "/System/Volumes/Data/srv", Access: settings.Denied},
		},
		Protected: []settings.Protected{{Pattern: "a.b[c]\"|.*", Dir: "/tmp/x"}, {Pattern: "a\\*", Deep: true}}}
	return map[string]struct {
		box     *settings.Box
		options Options
	}{
		"project": {project(), Options{}},
		"strict":  {strict, Options{Temp: "/private/var/folders/zz/T/carrel-1", Terminal: "/dev/ttys009"}},
		"wide":    {wide, Options{}},
		"proxied": {proxied, Options{Proxy: 3128, Temp: "/var/folders/zz/T/carrel-2"}},
		"names":   {names, Options{}},
	}
}

// TestGolden compares the profiles with texts that a person has reviewed.
func TestGolden(t *testing.T) {
	for name, c := range boxes() {
		text, err := c.options.Profile(c.box)
		if err != nil {
			t.Fatal(name, err)
		}
		parse(t, text)
		file := filepath.Join("testdata", name+".sb")
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != text {
			t.Errorf("%s: %v; the profile is now (-update writes it):\n%s", name, err, text)
		}
		again, err := c.options.Profile(c.box)
		if err != nil || again != text {
			t.Errorf("%s: the same box has two profiles", name)
		}
	}
}

// TestAttacks tries what a hostile command would try in a project.
func TestAttacks(t *testing.T) {
	text, err := Profile(project())
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, text)
	const w = "/Users/ann/project"
	for _, c := range []struct {
		what, operation, path string
		want                  bool
	}{
		{"work", "file-write-create", w + "/src/main.go", true},
		{"work", "file-write-unlink", w + "/src/main.go", true},
		{"read a key", "file-read-data", "/Users/ann/.ssh/id_ed25519", false},
		{"see that it is there", "file-read-metadata", "/Users/ann/.ssh", true},
		{"but not what is in it", "file-read-data", "/Users/ann/.ssh", false},
		{"open again what was opened", "file-read-data", "/Users/ann/.ssh/known_hosts", true},
		{"walk there", "file-read-metadata", "/Users/ann/.ssh", true},
		{"run what can't be read", "process-exec", "/Users/bob/bin/tool", false},
		{"map it", "file-map-executable", "/Users/bob/lib/x.dylib", false},
		{"write outside", "file-write-data", "/Users/ann/.bashrc", false},
		{"write into a hook", "file-write-data", w + "/.git/hooks/pre-commit", false},
		{"move the hooks away", "file-write-unlink", w + "/.git/hooks", false},
		{"move the directory above", "file-write-unlink", w + "/.git", false},
		{"move the project", "file-write-unlink", w, false},
		{"make a repository that is filled elsewhere", "file-write-create", w + "/vendor/.git", false},
		{"use another case", "file-write-create", w + "/.MCP.json", false},
		{"use a character that folds", "file-write-create", w + "/.v\u017fcode", false},
		{"use a ligature", "file-write-create", w + "/x/.git/con\ufb01g", false},
		{"use a line end in a directory", "file-write-create", w + "/a\nb/.mcp.json", false},
		{"and behind the name", "file-write-create", w + "/.vscode/a\nb", false},
		{"another ending", "file-write-create", w + "/.mcp.json5", true},
		{"another beginning", "file-write-create", w + "/x.mcp.json", true},
		{"a workspace file", "file-write-create", w + "/deep/x.code-workspace", false},
		{"what was opened by its name", "file-write-create", w + "/.vscode/tasks/x", true},
		{"beside it", "file-write-create", w + "/.vscode/tasks2", false},
		{"in it what is protected again", "file-write-create", w + "/.vscode/tasks/a/.mcp.json", false},
		{"in it the same name", "file-write-create", w + "/.vscode/tasks/.vscode/x", false},
		{"move it", "file-write-unlink", w + "/.vscode", false},
		{"the objects of a repository", "file-write-create", w + "/.git/objects/ab/cd", true},
		{"its index", "file-write-unlink", w + "/.git/index.lock", true},
		{"a secret below", "file-read-data", w + "/sub/dir/secrets/key", false},
		{"opened in it", "file-write-data", w + "/sub/dir/secrets/sample/x", true},
		{"move what is above it", "file-write-unlink", w + "/sub/dir", false},
		{"and above that", "file-write-unlink", w + "/sub", false},
		{"but not what is beside", "file-write-unlink", w + "/sub2", true},
		{"remove a secret", "file-write-unlink", w + "/.env", false},
		{"a file only in its directory", "file-write-data", w + "/sub/Makefile", false},
		{"not elsewhere", "file-write-data", w + "/Makefile", true},
		{"not deeper", "file-write-data", w + "/sub/x/Makefile", true},
		{"link a file from outside", "file-link", w + "/x", false},
		{"set a user on a program", "file-write-setugid", w + "/x", false},
		{"control the terminal", "file-ioctl", "/dev/tty", false},
		{"write to somebody's terminal", "file-write-data", "/dev/ttys001", false},
		{"control it", "file-ioctl", "/dev/ttys001", false},
		{"read what is typed there", "file-read-data", "/dev/ttys001", false},
		{"read packets", "file-read-data", "/dev/bpf0", false},
		{"read a disk", "file-read-data", "/dev/rdisk0", false},
		{"read chance", "file-read-data", "/dev/urandom", true},
		{"make one", "file-ioctl", "/dev/ptmx", true},
		{"throw away", "file-write-data", "/dev/null", true},
		{"replace the null device", "file-write-unlink", "/dev/null", false},
		{"write a disk", "file-write-data", "/dev/disk0", false},
	} {
		if got := p.allows(c.operation, c.path); got != c.want {
			t.Errorf("%s: %s of %q: %v, want %v", c.what, c.operation, c.path, got, c.want)
		}
	}
	for _, service := range []string{"com.apple.SecurityServer", "com.apple.securityd.xpc", "com.apple.coreservices.launchservicesd", "com.apple.pasteboard", "appleevent", "com.apple.trustd", "network-outbound", "AF_UNIX", "file-link"} {
		if strings.Contains(text, service) {
			t.Errorf("%s is in the profile of a box without network", service)
		}
	}
}

// TestNames shows that no name of a file becomes a rule.
func TestNames(t *testing.T) {
	c := boxes()["names"]
	text, err := c.options.Profile(c.box)
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, text)
	for _, r := range c.box.Paths {
		want := r.Access != settings.Denied
		at := (&writer{box: c.box}).real(r.Path)
		if got := p.allows("file-read-data", at); got != want {
			t.Errorf("%q is read: %v", at, got)
		}
	}
	if p.allows("network-outbound", "/x") || p.allows("file-write-data", "/etc/hosts") {
		t.Error("a name opened something")
	}
	if p.allows("file-write-data", "/private/tmp/x/a.bc\"|.zz") || !p.allows("file-write-data", "/private/tmp/x/aXbc") || p.allows("file-write-data", "/private/tmp/x/y/a*") || !p.allows("file-write-data", "/private/tmp/x/y/ab") {
		t.Error("a pattern is read as another")
	}
}

// TestNetwork checks the text of the rules.
func TestNetwork(t *testing.T) {
	base := func(change func(*settings.Box)) *settings.Box {
		b := &settings.Box{Dir: "/w", Home: "/Users/ann", ReadDefault: settings.Readable, WriteDefault: settings.Denied, Closed: true}
		change(b)
		return b
	}
	for _, c := range []struct {
		name      string
		box       *settings.Box
		options   Options
		has, lack []string
	}{
		{"closed", base(func(*settings.Box) {}), Options{}, nil, []string{"network-", "mDNSResponder"}},
		{"listening", base(func(b *settings.Box) { b.Bind = true }), Options{},
			[]string{`(allow network-bind network-inbound (local ip "localhost:*"))`}, []string{"network-outbound", `"*:`}},
		{"host", base(func(b *settings.Box) { b.Closed, b.Host, b.Bind = false, true, true }), Options{},
			[]string{`(allow network-outbound (remote ip "*:*"))`, `(local ip "*:*")`, "mDNSResponder"}, []string{`deny network`, "AF_UNIX", "SecurityServer"}},
		{"everywhere", base(func(b *settings.Box) { b.Closed, b.Policy.Default = false, "allow" }), Options{},
			[]string{`(allow network-outbound (remote ip "*:*"))`, `(deny network-outbound (remote ip "localhost:*"))`}, []string{"network-bind"}},
		{"proxy", base(func(b *settings.Box) { b.Closed = false }), Options{Proxy: 3128},
			[]string{`(allow network-outbound (remote ip "localhost:3128"))`}, []string{`"*:`, `localhost:*`, "mDNSResponder", "trustd"}},
		{"port", base(func(b *settings.Box) { b.Publish = []string{"8000"} }), Options{},
			[]string{`(allow network-bind network-inbound (local ip "localhost:8000"))`, `(allow network-outbound (remote ip "localhost:8000"))`}, []string{`"*:`}},
		{"port for others", base(func(b *settings.Box) { b.Publish = []string{"0.0.0.0:80", "[::1]:81:81", "127.0.0.1:82"} }), Options{},
			[]string{`(local ip "*:80")`, `(local ip "localhost:81")`, `(local ip "localhost:82")`, `(remote ip "localhost:80")`}, []string{`(remote ip "*`}},
		{"socket", base(func(b *settings.Box) { b.Sockets = []string{"/var/run/docker.sock"} }), Options{},
			[]string{`(allow network-outbound (literal "/private/var/run/docker.sock"))`, "AF_UNIX"}, []string{"network-bind"}},
		{"sockets", base(func(b *settings.Box) { b.Sockets = []string{"*"} }), Options{}, []string{`(remote unix-socket)`}, nil},
		{"own sockets", base(func(*settings.Box) {}), Options{Temp: "/tmp/own"}, []string{`(remote unix-socket (subpath "/private/tmp/own"))`}, []string{`remote ip`}},
	} {
		text, err := c.options.Profile(c.box)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		p := parse(t, text)
		for _, s := range c.has {
			if !p.has(s) {
				t.Errorf("%s: no %s in\n%s", c.name, s, text)
			}
		}
		for _, s := range c.lack {
			if p.has(s) {
				t.Errorf("%s: %s in\n%s", c.name, s, text)
			}
		}
	}
}

// TestRefused shows that a decision that Seatbelt can't enforce is an error with a hint, never a
// wider box.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*settings.Box)
		kind   carrel.Kind
		word   string
	}{
		"an allow list without a proxy": {func(b *settings.Box) { b.Closed, b.Policy.Rules = false, []carrel.Rule{{}} }, carrel.Unsupported, "host names"},
		"an allow list that is empty":   {func(b *settings.Box) { b.Closed = false }, carrel.Unsupported, "host names"},
		"all but some": {func(b *settings.Box) {
			b.Closed, b.Policy.Default, b.Policy.Rules = false, "allow", []carrel.Rule{{}}
		}, carrel.Unsupported, "host names"},
		"layers":               {func(b *settings.Box) { b.Overlay = true }, carrel.Unsupported, "layers"},
		"another port outside": {func(b *settings.Box) { b.Publish = []string{"8080:80"} }, carrel.Unsupported, "another number"},
		"no port":              {func(b *settings.Box) { b.Publish = []string{"[::1"} }, carrel.Unsupported, "no port"},
		"port 0":               {func(b *settings.Box) { b.Publish = []string{"0"} }, carrel.Unsupported, "no port"},
		"a NUL":                {func(b *settings.Box) { b.Paths = append(b.Paths, settings.PathRule{Path: "/a\x00b"}) }, carrel.Invalid, "NUL"},
		"a relative path":      {func(b *settings.Box) { b.Paths = append(b.Paths, settings.PathRule{Path: "a"}) }, carrel.Invalid, "absolute"},
		"a path with dots":     {func(b *settings.Box) { b.Paths = append(b.Paths, settings.PathRule{Path: "/a/../b"}) }, carrel.Invalid, "clean"},
		"a long path": {func(b *settings.Box) {
			b.Paths = append(b.Paths, settings.PathRule{Path: "/" + strings.Repeat("a", 2000)})
		}, carrel.Invalid, "longer"},
		"too much": {func(b *settings.Box) {
			for i := range 4000 {
				b.Paths = append(b.Paths, settings.PathRule{Path: "/w/" + strings.Repeat("d", 200) + string(rune('a'+i%26)) + strings.Repeat("e", i%80), Access: settings.Denied})
			}
		}, carrel.Unsupported, "KiB"},
	} {
		b := project()
		c.change(b)
		text, err := Profile(b)
		if carrel.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.word) || text != "" {
			t.Errorf("%s: %v, %d bytes", name, err, len(text))
		}
		if c.kind == carrel.Unsupported && carrel.HintOf(err) == "" {
			t.Errorf("%s: no hint", name)
		}
	}
}

// TestCommand shows that the program is an absolute path, and that the command keeps its own flags.
func TestCommand(t *testing.T) {
	line, err := Command(project(), []string{"-p", "x"})
	if err != nil || line[0] != "/usr/bin/sandbox-exec" || line[1] != "-p" || !slices.Equal(line[3:], []string{"--", "-p", "x"}) {
		t.Errorf("%q %v", line, err)
	}
	for _, args := range [][]string{nil, {""}} {
		if _, err := Command(project(), args); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestTemp shows that the box's own directory is open, and can't be moved.
func TestTemp(t *testing.T) {
	c := boxes()["strict"]
	text, err := c.options.Profile(c.box)
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, text)
	for path, want := range map[string]bool{"/private/var/folders/zz/T/carrel-1/x": true, "/private/var/folders/zz/T/other": false, "/Users/ann/project/x": true} {
		if p.allows("file-write-create", path) != want || p.allows("file-read-data", path) != want {
			t.Error(path)
		}
	}
	if p.allows("file-write-unlink", "/private/var/folders/zz/T/carrel-1") || p.allows("file-write-setugid", "/private/var/folders/zz/T/carrel-1/x") {
		t.Error("it can be moved, or hold programs with other rights")
	}
	if !p.allows("file-ioctl", "/dev/ttys009") || p.allows("file-ioctl", "/dev/ttys00") {
		t.Error("terminal")
	}
	if !p.allows("file-read-metadata", "/private/var/folders") || p.allows("file-read-data", "/private/var/folders") || !p.allows("file-read-data", "/") {
		t.Error("the way to it")
	}
}

// TestReplaced: a file is replaced by what is written beside it, and nothing else there is written.
func TestReplaced(t *testing.T) {
	b := project()
	b.Replaced = []settings.Replaced{{Path: "/Users/ann/.claude.json"}}
	text, err := Profile(b)
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, text)
	for path, want := range map[string]bool{".claude.json": true, ".claude.json.lock": true, ".claude.json.tmp.7.x": true, ".claude.jsonx": false, "xclaude.json": false, ".claude.json.d/x": false, ".bashrc": false} {
		if p.allows("file-write-create", "/Users/ann/"+path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// TestNotes shows that each weakness compared with Linux is reported.
func TestNotes(t *testing.T) {
	b := project()
	b.MemoryMB, b.Closed, b.Policy.Default = 1, false, "allow"
	if n := strings.Join(Notes(b), "\n"); !strings.Contains(n, "memory") || !strings.Contains(n, "local one") {
		t.Error(n)
	}
}
