package box_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWrittenOutside checks the files that carrel run itself writes after the command has ended.
// The command, or one in an earlier box, may have put a link, a pipe or another directory in the
// place.
func TestWrittenOutside(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		const report = "--report=out/r.json"
		for _, c := range []struct {
			name    string
			earlier string // in a box before
			flags   []string
			shell   string
			code    int
			says    string
			whole   string // final place of the file, "" for none
		}{
			{"a file", "", []string{report}, "true", 0, "", "out/r.json"},
			{"a link to a file outside", "", []string{report}, "ln -s ../../outside/canary out/r.json", 0, "", "out/r.json"},
			{"a link to a new file outside", "", []string{report}, "ln -s ../../outside/new out/r.json", 0, "", "out/r.json"},
			{"a pipe", "", []string{report}, "mkfifo out/r.json", 0, "", "out/r.json"},
			{"a socket", "", []string{report}, `python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('out/r.json')"`, 0, "", "out/r.json"},
			{"a directory", "", []string{report}, "mkdir -p out/r.json/x", 125, "r.json", ""},
			{"a link for the directory", "", []string{report}, "mv out moved && ln -s ../outside out", 125, "moved or replaced", "moved/r.json"},
			{"another directory", "", []string{report}, "mv out moved && mkdir out", 125, "moved or replaced", "moved/r.json"},
			{"an earlier link for the directory", "rm -r out; ln -s ../outside out", []string{report}, "true", 125, "link in a directory that the box writes to", ""},
			{"an earlier link above it", "ln -s ../outside up; mkdir ../outside/out", []string{"--report=up/r.json"}, "true", 125, "link in a directory that the box writes to", ""},
			{"an earlier pipe", "mkfifo out/r.json", []string{report}, "true", 125, "is no file", ""},
			{"an earlier link to a pipe", "mkfifo out/p; ln -s p out/r.json", []string{report}, "true", 125, "link to something that is no file", ""},
			{"an earlier link to a file", "ln -s ../../outside/canary out/r.json", []string{report}, "true", 0, "", "out/r.json"},
			{"a diff", "", []string{"--overlay", "--diff=out/d.diff"}, "echo x >new", 0, "", "out/d.diff"},
			{"a diff over an earlier link", "ln -s ../../outside/canary out/d.diff", []string{"--overlay", "--diff=out/d.diff"}, "echo x >new", 0, "", "out/d.diff"},
			{"a diff over an earlier pipe", "mkfifo out/d.diff", []string{"--overlay", "--diff=out/d.diff"}, "echo x >new", 125, "is no file", ""},
			{"a diff in an earlier link", "rm -r out; ln -s ../outside out", []string{"--overlay", "--diff=out/d.diff"}, "echo x >new", 125, "link in a directory that the box writes to", ""},
			{"no such directory", "", []string{"--report=none/r.json"}, "echo ran >ran", 125, "none", ""},
		} {
			w.sub(t, c.name, func(t *testing.T) {
				removeAll(t, w.project)
				w.write(w.project+"/out/README", "x")
				_ = os.Lchown(w.project, w.uid, w.uid)
				if c.earlier != "" {
					w.run(w.box("-q", "-c", c.earlier))
				}
				r := w.runFor(w.box(append(append([]string{}, c.flags...), "-c", c.shell)...), time.Minute)
				if r.code != c.code || !strings.Contains(r.err, c.says) {
					t.Errorf("exit status %d, want %d and %q:\n%s", r.code, c.code, c.says, r.all())
				}
				if w.read(w.canary) != "a canary\n" {
					t.Errorf("the file outside: %q", w.read(w.canary))
				}
				if names, _ := filepath.Glob(w.outside + "/*"); len(names) != 1 && c.earlier != "ln -s ../outside up; mkdir ../outside/out" {
					t.Errorf("outside: %q", names)
				}
				if c.whole != "" {
					info, err := os.Lstat(filepath.Join(w.project, c.whole))
					if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
						t.Errorf("%s: %v, %v", c.whole, info, err)
					}
				}
				if left, _ := filepath.Glob(w.project + "/*/.[rd].*"); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
				if w.read(w.project+"/ran") != "" {
					t.Error("the command ran all the same")
				}
			})
		}
		w.sub(t, "streams", func(t *testing.T) {
			for _, name := range []string{"/dev/stderr", "/dev/fd/2", "/dev/null"} {
				r := w.run(w.box("--report", name, "--", "true"))
				if got := strings.Contains(r.err, `"version": 1`); r.code != 0 || got != (name != "/dev/null") {
					t.Errorf("%s: %d %s", name, r.code, r.all())
				}
			}
			pr, pw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer pr.Close()
			cmd := w.box("--report", "/dev/fd/3", "--", "true")
			cmd.ExtraFiles = []*os.File{pw}
			w.run(cmd)
			_ = pw.Close()
			if text, _ := io.ReadAll(pr); !strings.Contains(string(text), `"version": 1`) {
				t.Errorf("to a pipe of the caller's: %q", text)
			}
			if r := w.run(w.box("--report", "/dev/fd/77", "--", "true")); r.code != 125 || !strings.Contains(r.err, "/dev/fd/77 is not open") {
				t.Errorf("a descriptor that is closed: %d %s", r.code, r.all())
			}
		})
	})
}

// TestStateInTheProject puts the state directory, with the quarantine in it, where the box may
// write.
func TestStateInTheProject(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.env = append(w.env, "XDG_STATE_HOME="+w.project+"/state", "XDG_CONFIG_HOME="+w.project+"/conf")
		w.write(w.project+"/state/README", "x")
		w.write(w.project+"/conf/README", "x")
		for _, shell := range []string{
			"mkdir -p state/carrel && ln -s $PWD/../outside state/carrel/quarantine", "ln -s $PWD/../outside state/carrel", "mv state s2; mkdir state; ln -s $PWD/../outside state/carrel",
			"mkdir -p conf/carrel; echo 'read: {allow: [~/.ssh]}' >conf/carrel/run.yaml",
		} {
			w.run(w.box("-q", "-c", shell))
			w.run(w.box("-q", "-c", `python3 - <<'E'
import os
for i in range(200):
    try:
        open("n", "w").close(); os.rename("n", ".mcp.json")
    except OSError:
        pass
E`))
			if names, _ := filepath.Glob(w.outside + "/*"); len(names) != 1 {
				t.Errorf("%s: outside there are %q", shell, names)
			}
			if _, err := os.Stat(w.project + "/conf/carrel/run.yaml"); err == nil {
				t.Errorf("%s: the box wrote the settings of the next", shell)
			}
			if _, err := os.Readlink(w.project + "/state/carrel"); err == nil {
				t.Errorf("%s: the state directory is a link of the box's", shell)
			}
		}
	})
}
