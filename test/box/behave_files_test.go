package box_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// access is one file operation that a box allows or refuses.
type access struct {
	name  string
	flags []string
	shell string
	out   string // all of standard output
	ok    bool   // exit status 0
	err   string // part of standard error
}

// TestFiles checks reading and writing.
func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for rel, text := range map[string]string{
			"d/x": "dx", "d/sub/x": "dsubx", "d/sub/deep/x": "deepx", "project/private.txt": "private", "project/a.pem": "pem", "project/deep/er/b.pem": "pem",
			"data/file": "data", "project/fixed/file": "fixed", "project/.env": "env", "project/app/.env.local": "env", "project/.env.example": "example",
		} {
			w.write(filepath.Join(w.home, rel), text)
		}
		for _, c := range []access{
			{"reading everywhere", nil, "cat ../outside/canary /etc/passwd | head -1", "a canary\n", true, ""},
			{"writing here", nil, "echo x >new; mkdir -p m/n; echo y >m/n/z; mv m/n/z m/y; rm -r m; cat new; rm new", "x\n", true, ""},
			{"writing outside", nil, "echo x >../outside/new", "", false, "outside/new"},
			{"changing outside", nil, "echo x >>../outside/canary", "", false, "outside/canary"},
			{"writing to /etc", nil, "echo x >/etc/carrel-box-test", "", false, "/etc/carrel-box-test"},
			{"writing to the home", nil, "echo x >~/.bashrc", "", false, ".bashrc"},
			{"a secret", nil, "cat ~/.ssh/id_ed25519", "", false, "carrel: "},
			{".env", nil, "cat .env", "", false, ".env"},
			{".env below", nil, "cat app/.env.local", "", false, ".env.local"},
			{"a secret that is allowed", []string{"--read", "{secrets}"}, "cat ~/.ssh/id_ed25519 | cut -c1-10", "-----BEGIN\n", true, ""},
			{"allowed by a tilde", []string{"--read", "~/.ssh"}, "cat ~/.ssh/id_ed25519 | cut -c1-10", "-----BEGIN\n", true, ""},
			{"a directory allowed", []string{"--write", "{home}/data"}, "echo y >../data/file2; cat ../data/file2; rm ../data/file2", "y\n", true, ""},
			{"a relative directory allowed", []string{"--write", "../data"}, "echo y >../data/file2 && rm ../data/file2", "", true, ""},
			{"one file allowed", []string{"--write", "{home}/data/file"}, "echo data >../data/file; echo x >../data/other", "", false, "data/other"},
			{"denied in the working directory", []string{"--no-write", "fixed"}, "echo x >fixed/file", "", false, "fixed/file"},
			{"read-only mode", []string{"--no-write", "."}, "echo x >new", "", false, "new"},
			{"read-only mode, reading", []string{"--no-write", "."}, "cat README.md", "hello\n", true, ""},
			{"deny", []string{"--no-read", "{home}/d"}, "cat ~/d/x", "", false, "d/x"},
			{"allow inside deny", []string{"--no-read", "{home}/d", "--read", "{home}/d/sub"}, "cat ~/d/sub/x; cat ~/d/x 2>/dev/null; true", "dsubx", true, ""},
			{"deny inside allow inside deny", []string{"--no-read", "{home}/d", "--read", "{home}/d/sub", "--no-read", "{home}/d/sub/deep"}, "cat ~/d/sub/x; cat ~/d/sub/deep/x 2>/dev/null; cat ~/d/x 2>/dev/null; true", "dsubx", true, ""},
			{"the order of flags does not matter", []string{"--read", "{home}/d/sub", "--no-read", "{home}/d"}, "cat ~/d/sub/x; cat ~/d/x 2>/dev/null; true", "dsubx", true, ""},
			{"no reading and no writing", []string{"--no-read", "private.txt", "--no-write", "private.txt"}, "cat private.txt; echo x >private.txt", "", false, "private.txt"},
			{"no reading under no writing", []string{"--no-read", "private.txt", "--no-write", "."}, "cat private.txt", "", false, "private.txt"},
			{"no reading under writing", []string{"--no-read", "{home}/d/sub", "--write", "{home}/d"}, "echo y >~/d/y && rm ~/d/y; cat ~/d/sub/x", "", false, "d/sub"},
			{"globs", []string{"--no-read", "**/*.pem"}, "cat a.pem; cat deep/er/b.pem", "", false, "a.pem"},
			{"globs, below", []string{"--no-read", "**/*.pem"}, "cat deep/er/b.pem", "", false, "b.pem"},
			{"globs of an absolute path", []string{"--no-read", "{project}/**/*.pem"}, "cat deep/er/b.pem", "", false, "b.pem"},
			{"globs by name", []string{"--no-read", "*.pem"}, "cat deep/er/b.pem", "", false, "b.pem"},
			{"a star in one directory", []string{"--no-read", "{home}/d/*/x"}, "cat ~/d/x; cat ~/d/sub/x", "dx", false, "d/sub/x"},
			{"globs leave the rest", []string{"--no-read", "**/*.pem"}, "cat README.md", "hello\n", true, ""},
			{"a rule for what does not exist", []string{"--no-read", "{project}/not-there"}, "cat README.md", "hello\n", true, ""},
			{"a new file of a denied name", []string{"--no-write", "{project}/not-there"}, "echo x >not-there", "", false, "not-there"},
			{"listing a directory with a denied file", nil, "ls -a | grep -c '^.env$'; ls -la >/dev/null; find . >/dev/null 2>&1; true", "1\n", true, ""},
			{"copying a tree without what is denied", nil, "mkdir to; cp README.md to/; ls to; rm -r to", "README.md\n", true, ""},
			{"protected names", nil, "echo x >.mcp.json", "", false, ".mcp.json"},
			{"protected names, lifted", []string{"--write", ".mcp.json"}, "echo x >.mcp.json; cat .mcp.json; rm .mcp.json", "x\n", true, ""},
			{"names like protected ones", nil, "for f in .mcp.json.bak my-mcp.json .bashrc.d .vscodex .gitignore .gitattributes .github; do echo x >$f || exit 1; rm $f; done; echo fine", "fine\n", true, ""},
			{"setuid", nil, "cp /bin/sh ./s; chmod 4755 s 2>/dev/null; ./s -c 'grep NoNewPrivs /proc/self/status'; rm s", "NoNewPrivs:\t1\n", true, ""},
			{"sudo and su", nil, "su -c id </dev/null 2>/dev/null && echo raised; sudo -n id 2>/dev/null && echo raised; unshare -r id 2>/dev/null && echo raised; echo same", "same\n", true, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				known(t)
				if c.name == "sudo and su" && w.uid == 0 {
					c.shell = strings.Replace(c.shell, "su -c id </dev/null 2>/dev/null && echo raised; sudo -n id 2>/dev/null && echo raised;", "", 1)
				}
				var flags []string
				for _, f := range c.flags {
					flags = append(flags, w.expand(f))
				}
				before := w.state([]string{"{home}", "-{project}", "-{home}/bin"})
				r := w.run(w.box(append(flags, "-c", c.shell)...))
				if r.out != c.out || (r.code == 0) != c.ok || !strings.Contains(r.err, c.err) {
					t.Errorf("exit %d, %q, want ok %v, %q\n%s", r.code, r.out, c.ok, c.out, r.err)
				}
				if !c.ok && !strings.Contains(r.err, "carrel: ") && (c.name != "writing to /etc" || w.uid == 0) { // others can't anyway
					t.Errorf("no summary: %s", r.err)
				}
				if len(c.flags) == 0 {
					for _, d := range diff(before, w.state([]string{"{home}", "-{project}", "-{home}/bin"})) {
						t.Error(d)
					}
				}
			})
		}
		if got := w.listing(); got != ".env .env.example README.md a.pem app deep fixed private.txt" {
			t.Errorf("left in the working directory: %s", got)
		}
	})
}

// listing returns the names in the project.
func (w *world) listing() string {
	entries, err := os.ReadDir(w.project)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestGhosts looks for files that a box leaves. There must be none, however the box ends.
func TestGhosts(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		needBox(t, w)
		w.write(w.project+"/.git/HEAD", "ref: refs/heads/main\n")
		tmp := w.home + "/tmp"
		w.mkdir(tmp)
		for _, flags := range [][]string{nil, {"--no-read", "**/*.pem", "--no-write", "*.lock", "--no-read", "{project}/not-there"}, {"--overlay"}, {"--internet"}, {"--publish", "0:8000"}, {"--memory", "200M", "--pids", "100"}} {
			for _, kill := range []bool{false, true} {
				t.Run(fmt.Sprint(flags, kill), func(t *testing.T) {
					known(t)
					before := w.state([]string{"{home}", "-{home}/bin"})
					var expanded []string
					for _, f := range flags {
						expanded = append(expanded, w.expand(f))
					}
					line := "true"
					if kill {
						line = "echo up; sleep 60"
					}
					cmd := w.box(append(expanded, "-c", line)...)
					cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
					if !kill {
						w.run(cmd)
					} else {
						w.startAndKill(cmd)
					}
					for _, d := range diff(before, w.state([]string{"{home}", "-{home}/bin"})) {
						t.Error(d)
					}
				})
			}
		}
	})
}

// TestVanishing starts boxes while the files that they hide come and go.
func TestVanishing(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		stop, done := make(chan bool), make(chan bool)
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				p := fmt.Sprintf("%s/.env.%d", w.project, i%40)
				_ = os.WriteFile(p, []byte(w.secret), 0o644)
				_ = os.Remove(fmt.Sprintf("%s/.env.%d", w.project, (i+20)%40))
			}
		}()
		boxes := 40
		if testing.Short() {
			boxes = 15
		}
		for range boxes {
			if r := w.run(w.box("--", "true")); r.code != 0 {
				t.Errorf("exit %d %s", r.code, r.err)
				break
			}
		}
		close(stop)
		<-done
	})
}
