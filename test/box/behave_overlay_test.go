package box_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// changes are the changes of a command in an overlay.
const changes = "echo new >new.txt; echo more >>README.md; rm gone.txt; mkdir -p sub/dir; echo deep >sub/dir/deep.txt; mv old.txt renamed.txt; chmod 755 mode.sh; echo x >.mcp.json 2>/dev/null; cat README.md | wc -l"

// TestOverlay shows that an overlay keeps changes apart.
func TestOverlay(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		reset := func() {
			_ = os.RemoveAll(w.project)
			for name, text := range map[string]string{"README.md": "hello\n", "gone.txt": "gone\n", "old.txt": "old\n", "mode.sh": "echo mode\n", "same.txt": "same\n", "dir/kept": "kept\n"} {
				w.write(w.project+"/"+name, text)
			}
		}
		reset()
		before := w.state([]string{"{home}", "-{home}/bin"})
		same := func(t *testing.T) {
			t.Helper()
			for _, d := range diff(before, w.state([]string{"{home}", "-{home}/bin"})) {
				t.Error(d)
			}
		}
		t.Run("thrown away", func(t *testing.T) {
			if r := w.run(w.box("--overlay", "-c", changes)); r.out != "2\n" {
				t.Errorf("%d %q %s", r.code, r.out, r.err)
			}
			same(t)
		})
		t.Run("diff", func(t *testing.T) {
			r := w.run(w.box("--overlay", "--diff", "-c", changes+" >/dev/null"))
			same(t)
			for _, want := range []string{"+new\n", "+more\n", "-gone\n", "+deep\n", "renamed.txt", "+++ b/README.md"} {
				if !strings.Contains(r.out, want) {
					t.Errorf("no %q in\n%s%s", want, r.out, r.err)
				}
			}
			if strings.Contains(r.out, "same.txt") {
				t.Error(r.out)
			}
			// git can apply the printed changes.
			copied := w.home + "/copy"
			if out, err := exec.Command("cp", "-a", w.project, copied).CombinedOutput(); err != nil {
				t.Fatalf("%s", out)
			}
			defer os.RemoveAll(copied)
			git := w.command("git", "apply", "-")
			git.Dir, git.Stdin = copied, strings.NewReader(r.out)
			if got := w.run(git); got.code != 0 || w.read(copied+"/README.md") != "hello\nmore\n" || w.read(copied+"/sub/dir/deep.txt") != "deep\n" {
				t.Errorf("git apply: %s", got.all())
			}
		})
		t.Run("diff to a file", func(t *testing.T) {
			r := w.run(w.box("--overlay", "--diff="+w.home+"/out.diff", "-c", changes))
			if !strings.Contains(w.read(w.home+"/out.diff"), "+new\n") || r.out != "2\n" {
				t.Errorf("%q %s", r.out, r.err)
			}
			_ = os.Remove(w.home + "/out.diff")
			same(t)
		})
		t.Run("apply", func(t *testing.T) {
			r := w.run(w.box("--overlay", "--apply", "-c", changes))
			for name, want := range map[string]string{"new.txt": "new\n", "README.md": "hello\nmore\n", "gone.txt": "", "sub/dir/deep.txt": "deep\n", "old.txt": "", "renamed.txt": "old\n", "same.txt": "same\n", "dir/kept": "kept\n", ".mcp.json": ""} {
				if got := w.read(w.project + "/" + name); got != want {
					t.Errorf("%s: %q, want %q %s", name, got, want, r.err)
				}
			}
			if info, err := os.Stat(w.project + "/mode.sh"); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v %v", info, err)
			}
			for p, text := range w.state([]string{"{project}"}) {
				if !strings.Contains(text, "uid "+uidText(w)) {
					t.Errorf("%s is not the user's: %s", p, text)
				}
			}
		})
		t.Run("outside stays closed", func(t *testing.T) {
			if r := w.run(w.box("--overlay", "-c", "echo x >../outside/new")); r.code == 0 {
				t.Errorf("%s", r.all())
			}
		})
		t.Run("apply without an overlay", func(t *testing.T) {
			if r := w.run(w.box("--apply", "--", "true")); r.code != 0 && r.code != 125 {
				t.Errorf("%d %s", r.code, r.err)
			}
		})
	})
}

// TestOverlayFiles: a file that was opened by itself is not written through the layer.
func TestOverlayFiles(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.write(w.home+"/alone", "old")
		w.write(w.home+"/.claude.json", "old")
		w.write(w.project+"/inside", "old")
		for _, flags := range [][]string{{"--overlay", "--write", w.home + "/alone"}, {"--profile", "readonly", "--write", w.home + "/alone"}, {"--overlay", "--profile", "claude-code"}} {
			r := w.run(w.box(append(flags, "-c", "echo new >~/alone; echo new >~/.claude.json; echo new >inside; cat inside")...))
			if r.out != "new\n" || w.read(w.home+"/alone") != "old" || w.read(w.home+"/.claude.json") != "old" || w.read(w.project+"/inside") != "old" {
				t.Errorf("%v: exit %d %s\nalone %q, inside %q", flags, r.code, r.all(), w.read(w.home+"/alone"), w.read(w.project+"/inside"))
			}
			if len(flags) == 3 && flags[1] == "--write" && !strings.Contains(r.err, "stays as it is") {
				t.Errorf("it is not told: %s", r.err)
			}
		}
		if r := w.run(w.box("--overlay", "--apply", "--write", w.project+"/inside", "-c", "echo kept >inside")); r.code != 0 || w.read(w.project+"/inside") != "kept\n" {
			t.Errorf("exit %d %s", r.code, r.all())
		}
	})
}
