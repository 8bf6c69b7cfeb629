package box_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// atRest is a secret in some place, and the command that tries to read it.
type atRest struct {
	name    string
	prepare func(w *world) // makes the secret; its text is the world's
	flags   []string
	shell   string // in the box; "" reads the path
	path    string
	tells   string // what --dry-run has in it
	open    bool   // it is to be read all the same
	big     bool   // it is made in seconds: with -short, one kind of user does it
}

// link makes a hard or symbolic link, and the directories above it.
func (w *world) link(make func(from, to string) error, from, to string) {
	w.t.Helper()
	w.mkdir(filepath.Dir(to))
	if err := make(from, to); err != nil {
		w.t.Fatal(err)
	}
	_ = os.Lchown(to, w.uid, w.uid)
}

// hold writes the secret to a path in the home.
func hold(rel string) func(*world) {
	return func(w *world) { w.write(filepath.Join(w.home, rel), w.secret+"\n") }
}

// manyFiles makes a tree of more than 25,000 entries, with the secret below the last directory.
func manyFiles(dir string) func(*world) {
	return func(w *world) {
		for d := range 130 {
			at := fmt.Sprintf("%s/%s/d%03d", w.home, dir, d)
			w.mkdir(at)
			for f := range 200 {
				if err := os.WriteFile(fmt.Sprintf("%s/%d", at, f), nil, 0o644); err != nil {
					w.t.Fatal(err)
				}
			}
		}
		hold(dir + "/d129/a/b/c/d/e/f/g/h/.env")(w)
	}
}

func secretsAtRest() []atRest {
	deep := "/d129/a/b/c/d/e/f/g/h/.env"
	return []atRest{
		{name: "another directory", prepare: hold("other/.env"), path: "{home}/other/.env", tells: "~/other/.env"},
		{name: "another directory, deep", prepare: hold("other/a/b/c/d/e/f/g/h/i/j/.env.production"), path: "{home}/other/a/b/c/d/e/f/g/h/i/j/.env.production"},
		{name: "a repository beside", prepare: func(w *world) { hold("beside/.git/HEAD")(w); hold("beside/api/.env")(w) }, path: "../beside/api/.env"},
		{name: "what programs fill", prepare: hold("project/node_modules/x/.env"), path: "node_modules/x/.env"},
		{name: "a big tree", big: true, prepare: manyFiles("project/big"), path: "{project}/big" + deep},
		{name: "a big tree elsewhere", big: true, prepare: manyFiles("large"), path: "{home}/large" + deep, tells: "~/large" + deep},
		{name: "/proc/self/root", prepare: hold("other/.env"), path: "/proc/self/root{home}/other/.env"},
		{name: "/proc/self/cwd", prepare: hold("other/.env"), path: "/proc/self/cwd/../other/.env"},
		{name: "a hard link of a key", prepare: func(w *world) { w.write(w.key, w.secret+"\n"); w.link(os.Link, w.key, w.home+"/other/copy") }, path: "{home}/other/copy"},
		{name: "a hard link of a key, here", prepare: func(w *world) { w.write(w.key, w.secret+"\n"); w.link(os.Link, w.key, w.project+"/sub/copy") }, path: "sub/copy"},
		{name: "a hard link of .env", prepare: func(w *world) { hold("other/.env")(w); w.link(os.Link, w.home+"/other/.env", w.home+"/z/notes") }, path: "{home}/z/notes", tells: "~/z/notes"},
		{name: "what a link in a closed directory leads to", prepare: func(w *world) {
			hold("vault/key")(w)
			w.link(os.Symlink, w.home+"/vault/key", w.secrets+"/id_vault")
		}, path: "{home}/vault/key", tells: "~/vault/key"},
		{name: "what a linked directory leads to", prepare: func(w *world) {
			hold("vault2/sub/key")(w)
			hold("vault3/key")(w)
			w.link(os.Symlink, "../vault2", w.secrets+"/more")
			w.link(os.Symlink, w.home+"/vault3/key", w.home+"/vault2/sub/last")
		}, shell: "cat {home}/vault2/sub/key {home}/vault3/key"},
		{name: "what .env leads to", prepare: func(w *world) { hold("plain")(w); w.link(os.Symlink, w.home+"/plain", w.home+"/other/.env") }, path: "{home}/plain"},
		{name: "a directory that was moved inside", prepare: hold("project/app/conf/.env"), shell: "mv app app2; cat app2/conf/.env; ln app2/conf/.env y; cat y; rm -f y; mv app2/conf/.env x; cat x; mv x app2/conf/.env; mv app2 app"},
		{name: "a directory of that name", prepare: hold("other/.env/production"), path: "{home}/other/.env/production"},
		{name: "writing everywhere", flags: []string{"--write", "{home}/other"}, prepare: hold("other/sub/.env"), path: "{home}/other/sub/.env"},
		{name: "overlay", flags: []string{"--overlay"}, prepare: hold("other/.env"), path: "{home}/other/.env"},
		{name: "overlay, deep", big: true, flags: []string{"--overlay"}, prepare: manyFiles("project/big"), shell: "cat big" + deep + "; mv big big2; cat big2" + deep},
		{name: "light", flags: []string{"--light"}, prepare: hold("other/.env"), path: "{home}/other/.env"},
		{name: "an opened directory", flags: []string{"--read", "{home}/other"}, prepare: hold("other/.env"), path: "{home}/other/.env"},

		{name: "a sample", prepare: hold("other/.env.example"), path: "{home}/other/.env.example", open: true},
		{name: "by name", flags: []string{"--read", "{home}/other/.env"}, prepare: hold("other/.env"), path: "{home}/other/.env", open: true},
		{name: "made inside", prepare: hold("project/text"), shell: "cp text .env && cat .env && mkdir -p n && mv .env n/.env && cat n/.env && rm -r n", open: true},
		{name: "a file beside it", prepare: hold("other/.env/../plain"), path: "{home}/other/plain", open: true},
	}
}

// TestSecretsAtRest reads secrets in all kinds of places and by all kinds of names.
func TestSecretsAtRest(t *testing.T) {
	both(t, func(t *testing.T, first *world) {
		needBox(t, first)
		for i, c := range secretsAtRest() {
			t.Run(c.name, func(t *testing.T) {
				if testing.Short() && !c.big && os.Getuid() == 0 && (i%2 == 0) != (first.uid == 0) {
					testenv.Long(t, "the other user has this case")
				}
				if c.big && (first.uid == 0 || c.name != "a big tree") {
					testenv.Long(t, "26,000 files; the ordinary user reads below them once, too")
				}
				w := newWorld(t, first.who)
				c.prepare(w)
				line := w.expand(c.shell)
				if line == "" {
					line = "cat '" + w.expand(c.path) + "'"
				}
				if r := w.run(w.command("bash", "-c", "cd "+w.project+"; "+line)); !strings.Contains(r.out, w.secret) {
					t.Fatalf("nothing to read outside: %s", r.all())
				}
				var flags []string
				for _, f := range c.flags {
					flags = append(flags, w.expand(f))
				}
				r := w.run(w.box(append(flags, "-c", line)...))
				if got := strings.Contains(r.all(), w.secret); got != c.open {
					t.Errorf("read: %v\n%s", got, r.all())
				}
				if dry := w.run(w.box(append(flags, "--dry-run", "--", "true")...)); !c.open && c.tells != "" && !strings.Contains(dry.out, c.tells) {
					t.Errorf("--dry-run does not tell of %s:\n%s", c.tells, dry.all())
				}
			})
		}
		t.Run("mounts", func(t *testing.T) { testMountedSecrets(t, newWorld(t, first.who)) })
	})
}

// testMountedSecrets mounts secrets in a second place. An unprivileged user mounts in its own user
// namespace.
func testMountedSecrets(t *testing.T, w *world) {
	hold("other/.env")(w)
	hold("other/plain")(w)
	w.write(w.key, w.secret+"\n")
	for _, dir := range []string{"/at", "/file"} {
		w.mkdir(w.home + dir)
	}
	w.write(w.home+"/file/shown", "")
	unshare := "unshare -m bash -c"
	if w.uid != 0 {
		unshare = "unshare -Urm bash -c"
	}
	for _, c := range []struct{ name, mount, path string }{
		{"a closed directory", "mount --bind $H/.ssh $H/at", "$H/at/id_ed25519"},
		{"above a closed directory", "mount --bind $H $H/at", "$H/at/.ssh/id_ed25519"},
		{"a closed file", "mount --bind $H/.ssh/id_ed25519 $H/file/shown", "$H/file/shown"},
		{"a directory with .env", "mount --bind $H/other $H/at", "$H/at/.env"},
		{".env itself", "mount --bind $H/other/.env $H/file/shown", "$H/file/shown"},
		{"in the working directory", "mkdir -p $H/project/m; mount --bind $H/.ssh $H/project/m", "$H/project/m/id_ed25519"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := func(run string) []string {
				words := strings.Fields(unshare)
				return append(words[1:], "H="+w.home+"; set -e; "+c.mount+"; cd $H/project; set +e; "+run)
			}
			if r := w.run(w.command("unshare", script("cat "+c.path)...)); !strings.Contains(r.out, w.secret) {
				t.Fatalf("nothing to read outside: %s", r.all())
			}
			r := w.run(w.command("unshare", script(w.carrel+" run -- cat "+c.path)...))
			if strings.Contains(r.all(), w.secret) {
				t.Errorf("it was read:\n%s", r.all())
			}
			if ok := w.run(w.command("unshare", script(w.carrel+" run -- cat "+w.project+"/README.md")...)); ok.out != "hello\n" {
				t.Errorf("the box does not work with this mount: %s", ok.all())
			}
		})
	}
}

// TestSecretsOfServers: what lies where servers, other disks and software of the machine's own are
// is closed by its name, too.
func TestSecretsOfServers(t *testing.T) {
	var err error
	if os.Getuid() != 0 {
		err = errors.New("making directories in /srv takes root")
	}
	testenv.Need(t, "root", err)
	both(t, func(t *testing.T, w *world) {
		for _, top := range []string{"/srv", "/opt", "/mnt", "/media"} {
			if _, err := os.Stat(top); err != nil {
				continue
			}
			dir := filepath.Join(top, w.tag())
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			for _, name := range []string{"app/.env", "a/b/c/d/.env.production", "app/plain"} {
				file := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(w.secret+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			for _, flags := range [][]string{nil, {"--profile", "strict"}} {
				closed := flags != nil && top != "/opt" // strict reads nothing of the others
				for _, name := range []string{"app/.env", "a/b/c/d/.env.production"} {
					r := w.run(w.box(append(flags, "--", "cat", filepath.Join(dir, name))...))
					if r.code == 0 || strings.Contains(r.all(), w.secret) {
						t.Errorf("%v: %s was read: %s", flags, filepath.Join(dir, name), r.all())
					}
				}
				if r := w.run(w.box(append(flags, "--", "cat", dir+"/app/plain")...)); strings.Contains(r.out, w.secret) == closed {
					t.Errorf("%v: %s/app/plain: exit %d %s", flags, dir, r.code, r.all())
				}
			}
			if r := w.run(w.box("--read", dir+"/app/.env", "--", "cat", dir+"/app/.env")); !strings.Contains(r.out, w.secret) {
				t.Errorf("--read does not open it: %s", r.all())
			}
		}
	})
}
