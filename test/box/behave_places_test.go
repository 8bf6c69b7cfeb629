package box_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

func uidText(w *world) string { return strconv.Itoa(w.uid) }

// TestPlaces runs a box in directories of every kind.
func TestPlaces(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		// here runs a line in dir, and compares its output with the output outside.
		here := func(t *testing.T, dir, pwd, shell string) {
			t.Helper()
			at := func(cmd *exec.Cmd) result {
				cmd.Dir = dir
				cmd.Env = append(cmd.Env, "PWD="+pwd)
				return w.run(cmd)
			}
			want, got := at(w.command("bash", "-c", shell)), at(w.box("-c", shell))
			if got.out != want.out || got.code != want.code {
				t.Errorf("inside %d %q, outside %d %q\n%s", got.code, got.out, want.code, want.out, got.err)
			}
		}
		const line = "pwd; pwd -P; echo x >made && cat made && rm made; ls | wc -l"
		for _, name := range []string{"with space", "new\nline", "quote'\"$HOME", "not-utf8-\xff\xfe", "-dash", "co:lon,comma\\back", "deep/" + strings.Repeat("long-name-of-a-directory/", 30) + "end", "ünïcödé", "*[glob]?", "{brace}"} {
			t.Run(fmt.Sprintf("%.30q", name), func(t *testing.T) {
				known(t)
				dir := filepath.Join(w.project, name)
				w.mkdir(dir)
				here(t, dir, dir, line)
				overlaid := w.box("--overlay", "-c", line)
				overlaid.Dir = dir
				if r := w.run(overlaid); r.code != 0 {
					t.Errorf("overlay: %d %s", r.code, r.err)
				}
			})
		}
		t.Run("through a link", func(t *testing.T) {
			link := w.home + "/link"
			if err := errors.Join(os.Symlink("project", link), os.Lchown(link, w.uid, w.uid)); err != nil {
				t.Fatal(err)
			}
			here(t, link, link, line)
		})
		t.Run("10,000 entries", func(t *testing.T) {
			dir := w.project + "/many"
			w.mkdir(dir)
			for i := range 10000 {
				if err := os.WriteFile(fmt.Sprintf("%s/file-%05d", dir, i), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			here(t, dir, dir, "ls | wc -l; cat file-0123*; rm -f file-00001; touch file-00001; ls | head -2")
		})
		t.Run("the home itself", func(t *testing.T) {
			// The directory stays read-only, with a message, unless it is opened by name. Files
			// that are run later stay closed even then.
			closed := w.box("-c", "echo x >made")
			closed.Dir = w.home
			if r := w.run(closed); r.code == 0 || !strings.Contains(r.err, "--write .") {
				t.Errorf("%d %s", r.code, r.all())
			}
			cmd := w.box("--write", ".", "-c", "echo x >made && rm made || echo closed; echo x >>.bashrc; echo x >.ssh/authorized_keys; mkdir -p .config/autostart; echo x >.config/autostart/x.desktop; echo x >.profile; cat .ssh/id_ed25519")
			cmd.Dir = w.home
			if r := w.run(cmd); r.code == 0 || r.out != "" || strings.Contains(r.all(), w.secret) {
				t.Errorf("%d %s", r.code, r.all())
			}
			for _, p := range []string{".bashrc", ".profile", ".ssh/authorized_keys", ".config/autostart/x.desktop"} {
				if text := w.read(w.home + "/" + p); text != "" {
					t.Errorf("%s: %q", p, text)
				}
			}
		})
		t.Run("in /tmp", func(t *testing.T) {
			dir, err := os.MkdirTemp("", "carrel-box-place-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			if err := os.Chown(dir, w.uid, w.uid); err != nil {
				t.Fatal(err)
			}
			here(t, dir, dir, line)
			cmd := w.box("-c", "echo kept >kept; ls -A /tmp | wc -l")
			cmd.Dir = dir
			if r := w.run(cmd); w.read(dir+"/kept") != "kept\n" || r.out != "1\n" {
				t.Errorf("%q %s", r.out, r.err)
			}
		})
		t.Run("/", func(t *testing.T) {
			cmd := w.box("-c", "pwd; cat /etc/hostname >/dev/null; echo x >/etc/carrel-box-test")
			cmd.Dir = "/"
			if r := w.run(cmd); r.code == 125 && !strings.Contains(r.err, "hint") || r.code == 0 {
				t.Errorf("%d %s", r.code, r.all())
			}
			if os.Remove("/etc/carrel-box-test") == nil {
				t.Error("/etc was written to")
			}
		})
		t.Run("a directory that is gone", func(t *testing.T) {
			r := w.run(w.command("bash", "-c", "mkdir gone && cd gone && rmdir ../gone && exec "+w.carrel+" run -- true"))
			if r.code != 125 || !strings.HasPrefix(r.err, "carrel: ") {
				t.Errorf("%d %s", r.code, r.all())
			}
		})
		t.Run("a home that is read-only", func(t *testing.T) {
			if err := os.Chmod(w.home, 0o555); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(w.home, 0o755)
			here(t, w.project, w.project, line)
		})
		t.Run("a home that is not there", func(t *testing.T) {
			for _, home := range []string{"/nonexistent", ""} {
				cmd := w.box("-c", "echo fine")
				cmd.Env = append(cmd.Env, "HOME="+home)
				if r := w.run(cmd); r.out != "fine\n" {
					t.Errorf("HOME=%q: %d %s", home, r.code, r.all())
				}
			}
		})
		t.Run("a directory that can't be written", func(t *testing.T) {
			dir := w.project + "/closed"
			w.mkdir(dir)
			_ = os.Chmod(dir, 0o555)
			here(t, dir, dir, "ls | wc -l; cat ../README.md")
		})
		t.Run("mounts", func(t *testing.T) { testMounted(t, w, line) })
		t.Run("in a box", func(t *testing.T) {
			if r := w.run(w.box("--", w.carrel, "run", "--", "echo", "inner")); r.out != "inner\n" {
				t.Errorf("%d %q %s", r.code, r.out, r.err)
			}
			// Files closed by the outer box stay closed.
			r := w.run(w.box("--", w.carrel, "run", "--write", w.outside, "--read", w.secrets, "-c", "echo x >"+w.canary+"; cat "+w.key))
			if strings.Contains(r.all(), w.secret) || w.read(w.canary) != "a canary\n" {
				t.Errorf("the inner box opened the outer one: %s", r.all())
			}
		})
	})
}

// testMounted works in directories that are themselves mounts.
func testMounted(t *testing.T, w *world, line string) {
	if w.uid != 0 {
		testenv.Inapplicable(t, "only root mounts")
	}
	for name, mount := range map[string]string{
		"bind":             "mount --bind $D/lower $D/at",
		"bind read-only":   "mount --bind $D/lower $D/at && mount -o remount,bind,ro $D/at",
		"tmpfs":            "mount -t tmpfs none $D/at",
		"overlay":          "mount -t tmpfs none $D/o && mkdir $D/o/u $D/o/w && mount -t overlay -o lowerdir=$D/lower,upperdir=$D/o/u,workdir=$D/o/w none $D/at",
		"bind over a file": "mount --bind $D/lower $D/at && mount --bind /etc/hostname $D/at/file",
		"shared":           "mount --make-rshared / && mount --bind $D/lower $D/at",
		"proc elsewhere":   "mount -t proc none $D/o && mount --bind $D/lower $D/at",
	} {
		t.Run(name, func(t *testing.T) {
			d := w.home + "/mounts"
			for _, p := range []string{"/at", "/lower", "/o"} {
				w.mkdir(d + p)
			}
			w.write(d+"/lower/file", "file\n")
			shell := func(run string) string {
				return "D=" + d + "; set -e; " + mount + "; cd $D/at; set +e; " + run
			}
			want := w.run(w.command("unshare", "-m", "bash", "-c", shell("bash -c '"+line+"'")))
			got := w.run(w.command("unshare", "-m", "bash", "-c", shell(w.carrel+" run -c '"+line+"'; findmnt -n -o TARGET | grep -c "+d)))
			count := strings.Count(mount, "mount -")
			if count > 0 {
				got.out = got.out[:max(0, strings.LastIndex(strings.TrimSpace(got.out), "\n")+1)]
			}
			if got.out != want.out {
				t.Errorf("inside %d %q, outside %q\n%s", got.code, got.out, want.out, got.err)
			}
		})
	}
	_, err := exec.LookPath("findmnt")
	testenv.Need(t, "mount", err)
}
