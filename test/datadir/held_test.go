package datadir

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// smallRoot makes a root filesystem with a shell and cat.
func smallRoot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, raw []byte) {
		t.Helper()
		must(t, "make a directory", os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(t, "write", os.WriteFile(filepath.Join(dir, name), raw, 0o755))
	}
	for _, program := range []string{"/bin/sh", "/bin/cat"} {
		out, err := exec.Command("ldd", program).Output()
		must(t, "ldd "+program, err)
		for _, word := range append(strings.Fields(string(out)), program) {
			if strings.HasPrefix(word, "/") {
				raw, err := os.ReadFile(word)
				must(t, "read", err)
				put(word, raw)
			}
		}
	}
	put("etc/passwd", []byte("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"))
	put("etc/group", []byte("root:x:0:\nuser:x:1000:\n"))
	put("home/user/.profile", nil)
	put("tmp/.keep", nil)
	return dir
}

// TestHeldTemplate pauses sandboxes of a template. The template is imported anew, and deleted. The
// sandboxes resume all the same, also where templates lie on another filesystem. When the image
// itself is lost, the error says which one and where it belongs, and putting it there helps.
func TestHeldTemplate(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"same filesystem", "another filesystem"} {
		for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
			if testing.Short() && (tier == carrel.NS) != (place == "same filesystem") {
				continue // each place and each tier once
			}
			t.Run(place+"/"+string(tier), func(t *testing.T) {
				if os.Geteuid() != 0 {
					testenv.Inapplicable(t, "only root mounts filesystems here")
				}
				dir := t.TempDir()
				if place == "another filesystem" {
					must(t, "link", os.Symlink(tmpfs(t), filepath.Join(dir, "templates")))
				}
				d := daemontest.StartIn(t, dir, "--default-tier", string(tier))
				held(t, d)
			})
		}
	}
}

// held is TestHeldTemplate for one daemon.
func held(t *testing.T, d *daemontest.Daemon) {
	ctx, svc := t.Context(), connect(t, d)
	root := smallRoot(t)
	cli(t, d, "template", "import", "small", root)
	made := func() carrel.ID {
		t.Helper()
		sb, err := svc.Create(ctx, carrel.CreateOptions{Template: "small", Timeout: time.Hour})
		must(t, "create", err)
		c, err := svc.Computer(ctx, sb.ID)
		must(t, "reach", err)
		_, err = c.Files("").Write(ctx, "word", strings.NewReader(string(sb.ID)))
		must(t, "write", err)
		return sb.ID
	}
	first, running := made(), made()
	_, err := svc.Pause(ctx, first, carrel.PauseOptions{})
	must(t, "pause", err)
	must(t, "change the template", os.WriteFile(filepath.Join(root, "home/user/new"), []byte("new"),
		0o644))
	cli(t, d, "template", "import", "small", root)
	must(t, "resume after a new import", wakes(ctx, svc, first, first))
	_, err = svc.Pause(ctx, first, carrel.PauseOptions{})
	must(t, "pause again", err)
	cli(t, d, "template", "rm", "small")
	d.Terminate()
	d.Restart()
	svc = connect(t, d)
	must(t, "resume after the template's end", wakes(ctx, svc, first, first))
	_, err = svc.Pause(ctx, running, carrel.PauseOptions{})
	must(t, "pause what ran meanwhile", err)
	must(t, "resume it", wakes(ctx, svc, running, running))

	// Now the image is lost.
	_, err = svc.Pause(ctx, first, carrel.PauseOptions{})
	must(t, "pause for the loss", err)
	all, err := filepath.Glob(filepath.Join(d.Dir, "sandboxes", ".roots", "*"))
	must(t, "list", err)
	aside := t.TempDir()
	for _, name := range all {
		must(t, "take it away", os.Rename(name, filepath.Join(aside, filepath.Base(name))))
	}
	_, _, err = svc.Resume(ctx, first, carrel.ResumeOptions{})
	if err == nil || !strings.Contains(err.Error(), "the image under it is missing") ||
		!strings.Contains(err.Error(), "digest") ||
		!strings.Contains(carrel.HintOf(err), filepath.Join("sandboxes", ".roots")) {
		t.Fatalf("resume without the image: %v (hint %q)", err, carrel.HintOf(err))
	}
	for _, name := range all {
		must(t, "put it back", os.Rename(filepath.Join(aside, filepath.Base(name)), name))
	}
	must(t, "resume with the image back", wakes(ctx, svc, first, first))
}

// cli runs the command line. It must succeed.
func cli(t *testing.T, d *daemontest.Daemon, args ...string) {
	t.Helper()
	if out, err := d.CLI(args...).CombinedOutput(); err != nil {
		t.Fatalf("carrel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
