//go:build linux

package box_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func TestMain(m *testing.M) {
	if reexec.Run(box.Parts()) {
		return
	}
	os.Exit(m.Run())
}

// plain is the Spec of an ordinary command.
func plain(args ...string) box.Spec {
	return box.Spec{Args: args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root"}, Dir: "/", Root: box.Root{Host: true}, Network: box.Closed}
}

// output runs a command in a box and returns what it wrote.
func output(t *testing.T, s box.Spec, o box.Options) (string, box.Exit) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o.Stdout, o.Stderr = w, w
	b, err := box.Start(t.Context(), s, o)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := b.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return string(text), exit
}

// shell is plain with a line for the shell.
func shell(line string) box.Spec { return plain("/bin/sh", "-c", line) }

func TestRuns(t *testing.T) {
	out, exit := output(t, shell("id; cat /proc/self/status | grep -E 'Cap|NoNew'; ls -la /dev /tmp /run; mount | head -50; exit 3"), box.Options{})
	t.Log(out)
	if exit.Code != 3 || !strings.Contains(out, "NoNewPrivs:\t1") {
		t.Errorf("exit %+v", exit)
	}
}

func TestMountsFirst(t *testing.T) {
	dir := t.TempDir() // below /tmp, which is private inside
	for _, d := range []string{"proj/.git/hooks", "secret", "other"} {
		if err := os.MkdirAll(dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/proj/key", []byte("k"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := shell(`touch ok; touch .git/hooks/x; cat key; ls ` + dir + `; cat given; touch /etc/x; ls -la sub; touch sub/y && echo sub-ok; cat /etc/hostname`)
	s.Dir = dir + "/proj"
	s.Mounts = []box.Mount{
		{Kind: box.Writable, Source: s.Dir, Target: s.Dir},
		{Kind: box.ReadOnly, Target: s.Dir + "/.git/hooks"},
		{Kind: box.Tmpfs, Target: s.Dir + "/.git/none", Optional: true},
		{Kind: box.ReadFile, Source: "text", Target: dir + "/proj/key"},
	}
	s.Hidden = []box.Hidden{{Path: "/etc/hostname"}}
	out, exit := output(t, s, box.Options{})
	t.Log(out, exit)
}
