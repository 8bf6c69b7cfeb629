//go:build linux

package tier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/run/tier"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of an unprivileged user. No account has it.
const stranger = 54379

// tiers are the available tiers.
var tiers = []carrel.Tier{carrel.Sim, carrel.GVisor}

func TestMain(m *testing.M) {
	if reexec.Run(tier.Parts()) {
		return
	}
	os.Exit(m.Run())
}

// each runs a test in both tiers.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	for _, tr := range tiers {
		t.Run(string(tr), func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			dir := filepath.Join(tmp, "project")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			f(t, &world{t: t, tier: tr, tmp: tmp, dir: dir})
			left, _ := filepath.Glob(filepath.Join(tmp, "carrel-*"))
			if len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// world is a project and a tier.
type world struct {
	t        *testing.T
	tier     carrel.Tier
	tmp, dir string
	notes    []string
}

// file makes a file of the project.
func (w *world) file(name, text string, mode fs.FileMode) {
	w.t.Helper()
	p := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o600), os.Chmod(p, mode)); err != nil {
		w.t.Fatal(err)
	}
}

// read reads a file of the project; a missing file is "".
func (w *world) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(w.dir, name))
	return string(text)
}

// line returns a request for a line of shell.
func (w *world) line(text string) tier.Request {
	args := []string{text}
	if w.tier != carrel.Sim {
		args = []string{"/bin/bash", "-c", text}
	}
	return tier.Request{Tier: w.tier, Dir: w.dir, Args: args, Env: []string{"HOME=/home/ann", "PATH=/usr/local/bin:/usr/bin:/bin", "GREETING=hello", "LANG=C.UTF-8"},
		Note: func(s string) { w.notes = append(w.notes, s) }}
}

// run runs a request. It must not return an error.
func (w *world) run(r tier.Request) (tier.Result, string, string) {
	w.t.Helper()
	var out, errs bytes.Buffer
	if r.Stdout == nil {
		r.Stdout = &out
	}
	r.Stderr = &errs
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	res, err := tier.Run(ctx, r)
	if errors.Is(err, carrel.Unsupported) {
		testenv.Need(w.t, "gvisor", fmt.Errorf("%w (hint: %s)", err, carrel.HintOf(err)))
	}
	if err != nil {
		w.t.Fatalf("%v (hint: %s)\n%s", err, carrel.HintOf(err), errs.String())
	}
	return res, out.String(), errs.String()
}

// words returns changes as "kind path".
func words(list []overlay.Change) string {
	var out []string
	for _, c := range list {
		out = append(out, string(c.Kind)+" "+c.Path)
	}
	return strings.Join(out, ", ")
}

func skippedWords(list []overlay.Skipped) string {
	var out []string
	for _, c := range list {
		out = append(out, string(c.Kind)+" "+c.Path+" ("+c.Rule+")")
	}
	return strings.Join(out, ", ")
}

func TestStreams(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		r := w.line(`echo "$GREETING $PWD $HOME"; cd "$HOME" && touch x && echo at home; echo oops >&2; exit 7`)
		res, out, errs := w.run(r)
		if res.Code != 7 || res.Signal != 0 || out != "hello "+w.dir+" /home/ann\nat home\n" || errs != "oops\n" {
			t.Errorf("%+v %q %q", res, out, errs)
		}
		r = w.line("cat | wc -c")
		r.Stdin = io.LimitReader(zeros{}, 1<<20)
		if _, out, _ := w.run(r); strings.TrimSpace(out) != "1048576" {
			t.Errorf("a pipe in: %q", out)
		}
		in, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		r = w.line("yes 0123456789abcde | head -n 500000; read line || echo end")
		r.Stdin = in
		_, out, _ = w.run(r)
		if len(out) != 16*500000+4 || !strings.HasSuffix(out, "end\n") {
			t.Errorf("%d bytes out, %q", len(out), out[max(0, len(out)-20):])
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// started signals on a channel when the command prints something.
type started struct {
	once sync.Once
	c    chan struct{}
	bytes.Buffer
}

func (s *started) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.c) })
	return s.Buffer.Write(p)
}

func TestSignals(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			line string
			sig  syscall.Signal
			want tier.Result
		}{
			{"trap 'echo got it; exit 3' INT; echo up; while :; do sleep 0.1; done", syscall.SIGINT, tier.Result{Code: 3}},
			{"trap 'echo got it; exit 4' TERM; echo up; while :; do sleep 0.1; done", syscall.SIGTERM, tier.Result{Code: 4}},
			{"echo up; while :; do sleep 0.1; done", syscall.SIGKILL, tier.Result{Signal: syscall.SIGKILL}},
		} {
			out := &started{c: make(chan struct{})}
			signals := make(chan os.Signal, 1)
			go func() {
				<-out.c
				signals <- c.sig
			}()
			r := w.line(c.line)
			r.Stdout, r.Signals = out, signals
			res, _, errs := w.run(r)
			if res.Code != c.want.Code || res.Signal != c.want.Signal {
				t.Errorf("%v: %+v %q %q %v", c.sig, res, out.String(), errs, w.notes)
			}
		}
		r := w.line("echo x > made; sleep 60")
		r.Timeout = 2 * time.Second
		if res, _, _ := w.run(r); res.Limit != "timeout" || res.Signal != syscall.SIGKILL || w.read("made") != "x\n" {
			t.Errorf("%+v", res)
		}
	})
}

func TestTerminal(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		control, tty, err := pty.Open()
		if err != nil {
			testenv.Need(t, "pty", err)
		}
		defer control.Close()
		defer tty.Close()
		if err := pty.Setsize(tty, &pty.Winsize{Cols: 91, Rows: 33}); err != nil {
			t.Fatal(err)
		}
		out := &started{c: make(chan struct{})}
		go func() {
			<-out.c
			_, _ = control.Write([]byte("typed\r"))
		}()
		r := w.line(`test -t 0 && test -t 1 && echo "a terminal"; stty size; read -r line; echo "got <$line>"`)
		r.Terminal, r.Stdout = tty, out
		w.run(r)
		for _, want := range []string{"a terminal\r\n", "33 91\r\n", "got <typed>\r\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in %q", want, out.String())
			}
		}
	})
}

func TestChangesComeBack(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.file("edited", "old\n", 0o644)
		w.file("kept", "kept\n", 0o640)
		w.file("gone", "x\n", 0o644)
		w.file("dir/a", "x\n", 0o644)
		w.file("dir/b", "x\n", 0o644)
		w.file("tofile/x", "x\n", 0o644)
		w.file("run.sh", "#!/bin/bash\necho ran\n", 0o755)
		w.file("with space/new\nline", "x\n", 0o644)
		if err := os.Symlink("kept", filepath.Join(w.dir, "link")); err != nil {
			t.Fatal(err)
		}
		line := `set -e; ./run.sh; cat link > from-link; echo new > edited; rm gone; rm dir/a; rm -r tofile; echo f > tofile
mkdir -p new/deep; echo deep > new/deep/file; ln -s ../kept new/link; chmod 755 kept; echo more >> "with space/new
line"; echo data > -dash`
		res, out, errs := w.run(w.line(line))
		if res.Code != 0 || out != "ran\n" {
			t.Fatalf("%+v %q %q", res, out, errs)
		}
		want := "added -dash, removed dir/a, modified edited, added from-link, removed gone, mode kept, added new, added new/deep, added new/deep/file, " +
			"added new/link, modified tofile, removed tofile/x, modified with space/new\nline"
		if got := words(res.Changes); got != want || len(res.Skipped) != 0 {
			t.Errorf("got  %s\nwant %s\nskipped %s", got, want, skippedWords(res.Skipped))
		}
		for name, text := range map[string]string{"edited": "new\n", "kept": "kept\n", "gone": "", "dir/a": "", "dir/b": "x\n", "tofile": "f\n", "new/deep/file": "deep\n",
			"from-link": "kept\n", "with space/new\nline": "x\nmore\n", "-dash": "data\n"} {
			if got := w.read(name); got != text {
				t.Errorf("%s: %q", name, got)
			}
		}
		if to, _ := os.Readlink(filepath.Join(w.dir, "new/link")); to != "../kept" {
			t.Errorf("the link leads to %q", to)
		}
		if st, err := os.Stat(filepath.Join(w.dir, "kept")); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%v %v", st.Mode(), err)
		}
		// Run it again: nothing changes.
		if res, _, _ := w.run(w.line("cat edited > /dev/null; touch edited")); len(res.Changes)+len(res.Skipped) != 0 {
			t.Errorf("%s", words(res.Changes))
		}
	})
}

// TestSecrets shows that secrets are not in the copy, and can be neither replaced nor removed from
// inside.
func TestSecrets(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.file(".env", "TOKEN=secret\n", 0o600)
		w.file("config/.env", "TOKEN=secret\n", 0o600)
		w.file("config/plain", "x\n", 0o644)
		w.file("keys/id", "secret\n", 0o600)
		w.file("swap/.env", "secret\n", 0o600)
		r := w.line(`set -e; ! cat .env keys/id config/.env; echo fake > .env; rm -r config; mkdir -p keys; echo fake > keys/id; rm -r swap; echo x > swap`)
		r.Readable = func(p string) bool {
			return filepath.Base(p) != ".env" && p != filepath.Join(w.dir, "keys")
		}
		res, out, errs := w.run(r)
		if res.Code != 0 || strings.Contains(out+errs, "secret") {
			t.Fatalf("%+v %q %q", res, out, errs)
		}
		for _, name := range []string{".env", "config/.env", "keys/id", "swap/.env"} {
			if got := w.read(name); !strings.Contains(got, "secret") {
				t.Errorf("%s: %q", name, got)
			}
		}
		if got := words(res.Changes); got != "removed config/plain" {
			t.Errorf("changes %s", got)
		}
		got := skippedWords(res.Skipped)
		for _, want := range []string{"added .env (left out of the copy: .env must not be read)", "added keys/id (left out of the copy: keys must not be read)",
			"removed config (holds config/.env, which was left out of the copy)", "modified swap (holds swap/.env, which was left out of the copy)"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
		if len(w.notes) != 1 {
			t.Error(w.notes)
		}
	})
}

func TestProtectedAndConflicts(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.file(".git/hooks/pre-commit", "ours\n", 0o755)
		w.file("both", "old\n", 0o644)
		w.file("free", "old\n", 0o644)
		r := w.line("echo evil > .git/hooks/pre-commit; echo '{}' > .mcp.json; echo new > free")
		r.Protected = func(p string) (string, bool) {
			return "built-in", p == filepath.Join(w.dir, ".git/hooks") || filepath.Base(p) == ".mcp.json"
		}
		res, _, _ := w.run(r)
		if got := skippedWords(res.Skipped); got != "modified .git/hooks/pre-commit (built-in), added .mcp.json (built-in)" {
			t.Errorf("skipped %s", got)
		}
		if w.read(".git/hooks/pre-commit") != "ours\n" || w.read(".mcp.json") != "" || w.read("free") != "new\n" {
			t.Error("what is protected was changed, or what is not was not")
		}

		out := &started{c: make(chan struct{})}
		in, feed := io.Pipe()
		go func() {
			<-out.c
			w.file("both", "theirs\n", 0o644)
			_ = feed.Close()
		}()
		r = w.line("echo new > both; echo new > free2; echo up; cat")
		r.Stdin, r.Stdout = in, out
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		res, err := tier.Run(ctx, r)
		if !errors.Is(err, carrel.Conflict) || !strings.Contains(err.Error(), "both") || w.read("both") != "theirs\n" || w.read("free2") != "" {
			t.Fatalf("%v, %q", err, w.read("both"))
		}
		if text, _ := os.ReadFile(filepath.Join(res.Upper, "both")); string(text) != "new\n" || !strings.Contains(words(res.Changes), "added free2") {
			t.Errorf("%q: %s", text, words(res.Changes))
		}
		if err := overlay.Remove(res.Upper); err != nil {
			t.Error(err)
		}
	})
}

func TestKeepChanges(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.file("a", "old\n", 0o644)
		w.file("d/gone", "old\n", 0o644)
		r := w.line("echo new > a; rm -r d; mkdir e; echo x > e/f")
		r.KeepChanges = true
		res, _, _ := w.run(r)
		if w.read("a") != "old\n" || w.read("d/gone") != "old\n" {
			t.Error("the changes were carried back")
		}
		var diff bytes.Buffer
		if err := overlay.Diff(t.Context(), &diff, w.dir, res.Upper, res.Changes); err != nil || !strings.Contains(diff.String(), "-old\n+new\n") {
			t.Errorf("%v\n%s", err, diff.String())
		}
		if _, err := overlay.Apply(t.Context(), w.dir, res.Upper, res.Changes, overlay.Options{}); err != nil || w.read("a") != "new\n" || w.read("e/f") != "x\n" {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(w.dir, "d")); err == nil {
			t.Error("d is still there")
		}
		if err := overlay.Remove(res.Upper); err != nil {
			t.Error(err)
		}
	})
}

// TestRefused shows that invalid requests start nothing.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		big := filepath.Join(w.dir, "big")
		for name, c := range map[string]struct {
			change func(*tier.Request)
			kind   carrel.Kind
			text   string
		}{
			"no command":   {func(r *tier.Request) { r.Args = nil }, carrel.Invalid, "no command"},
			"another tier": {func(r *tier.Request) { r.Tier = carrel.MicroVM }, carrel.Invalid, "microvm"},
			"root":         {func(r *tier.Request) { r.Dir = "/" }, carrel.Invalid, "can't be copied"},
			"proc":         {func(r *tier.Request) { r.Dir = "/proc/self/" }, carrel.Invalid, "can't be copied"},
			"no directory": {func(r *tier.Request) { r.Dir = filepath.Join(w.dir, "no") }, carrel.Invalid, "no such file"},
			"too large":    {func(*tier.Request) { _ = os.WriteFile(big, nil, 0o600); _ = os.Truncate(big, 5<<30) }, carrel.Exhausted, "more than"},
		} {
			r := w.line("true")
			c.change(&r)
			_, err := tier.Run(t.Context(), r)
			if carrel.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", name, err)
			}
			_ = os.Remove(big)
		}
		for name, want := range map[string]int{"/no/such/program": 127, "nosuchprogram": 127, "/etc/passwd": 126} {
			r := w.line("true")
			r.Args = []string{name}
			if res, _, errs := w.run(r); res.Code != want || errs == "" {
				t.Errorf("%s: %+v %q", name, res, errs)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		out := &started{c: make(chan struct{})}
		go func() { <-out.c; cancel() }()
		r := w.line("echo up; echo x > made; sleep 60")
		r.Stdout = out
		if _, err := tier.Run(ctx, r); !errors.Is(err, context.Canceled) || w.read("made") != "" {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// TestSpecialFiles shows that special files stay where they are, on both sides.
func TestSpecialFiles(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if w.tier == carrel.Sim {
			return // it has none
		}
		if err := syscall.Mkfifo(filepath.Join(w.dir, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.file("suid", "x\n", 0o4755|fs.ModeSetuid)
		res, _, errs := w.run(w.line("mkfifo inside; ls; chmod u+s suid; truncate -s 64M holes; echo x > a; ln a b; cp suid made; chmod 6755 made"))
		if got := skippedWords(res.Skipped); got != "added inside (a named pipe is not carried over)" {
			t.Errorf("%s %s", got, errs)
		}
		if got := words(res.Changes); got != "added a, added b, added holes, added made" {
			t.Errorf("%s", got)
		}
		st, err := os.Stat(filepath.Join(w.dir, "made"))
		if err != nil || st.Mode() != 0o755 {
			t.Errorf("%v %v", st.Mode(), err)
		}
		if st, err := os.Stat(filepath.Join(w.dir, "holes")); err != nil || st.Size() != 64<<20 || st.Sys().(*syscall.Stat_t).Blocks > 2048 {
			t.Errorf("holes: %v", err)
		}
	})
}

// TestMemory shows that use of memory over the limit is an error that says so, in tiers where it
// ends the whole sandbox.
func TestMemory(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		r := w.line("head -c 3000m /dev/zero | tail")
		r.MemoryMB = 256
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		res, err := tier.Run(ctx, r)
		if w.tier == carrel.GVisor && os.Geteuid() == 0 && (carrel.KindOf(err) != carrel.Exhausted || res.Limit != "memory") {
			t.Errorf("%+v, %v", res, err)
		}
		if err == nil && res.Code == 0 && res.Signal == 0 {
			t.Errorf("%+v", res)
		}
	})
}

// TestNames shows that names are copied byte for byte, or not at all.
func TestNames(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, name := range []string{"bad\xff", "ta\tb", "new\nline", "-rf", `back\slash`, "$(touch x)", "'quote", "\u202e", "*"} {
			w.file(name, "old\n", 0o644)
		}
		res, _, errs := w.run(w.line(`for f in *; do echo new > "./$f"; done; mkdir "./ d "; echo x > "./ d /-n"`))
		want := 11
		if w.tier == carrel.Sim {
			want = 10
		}
		if len(res.Changes) != want || len(res.Skipped) != 0 {
			t.Errorf("%q %s", words(res.Changes), errs)
		}
		if got := w.read("bad\xff"); (got == "new\n") != (w.tier != carrel.Sim) {
			t.Errorf("bad: %q", got)
		}
		if w.read("new\nline") != "new\n" || w.read("-rf") != "new\n" || w.read(" d /-n") != "x\n" || w.read("x") != "" {
			t.Error("names were confused")
		}
	})
}

// TestMany uses a directory of many files and changes few of them.
func TestMany(t *testing.T) {
	if testing.Short() {
		return
	}
	each(t, func(t *testing.T, w *world) {
		for i := range 2000 {
			w.file(fmt.Sprintf("d%d/f%d", i%100, i), "x\n", 0o644)
		}
		start := time.Now()
		res, _, _ := w.run(w.line("echo y > d7/f107; rm -r d8; echo z > new"))
		if len(res.Changes) != 23 || len(res.Skipped) != 0 {
			t.Errorf("%d changes", len(res.Changes))
		}
		t.Log(time.Since(start))
	})
}

// TestHostileTools replaces the tools inside by hostile ones that try to get out through the
// copying.
func TestHostileTools(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if w.tier == carrel.Sim {
			return
		}
		if os.Geteuid() != 0 {
			return // not root inside, so it can't replace the tools
		}
		w.file("victim", "old\n", 0o644)
		secret := filepath.Join(w.tmp, "outside")
		evil := `set -e; echo new > victim; ln -s / out; rm /usr/bin/tar; cat > /usr/bin/tar <<'END'
#!/usr/bin/env python3
import tarfile, io, sys
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
for name in ["../outside", "/` + strings.TrimPrefix(secret, "/") + `", "out/` + strings.TrimPrefix(secret, "/") + `", "./victim"]:
    i = tarfile.TarInfo(name); i.size = 4; t.addfile(i, io.BytesIO(b"evil"))
t.close()
END
chmod 755 /usr/bin/tar`
		res, _, errs := w.run(w.line(evil))
		if res.Code != 0 {
			t.Fatal(errs)
		}
		if _, err := os.Lstat(secret); err == nil {
			t.Error("written outside")
		}
		if got := w.read("victim"); got != "evil" {
			t.Errorf("%q", got)
		}

		// A listing with a name below a link that leads to a secret's directory.
		w.file("config/.env", "secret\n", 0o600)
		r := w.line(`set -e; rm /usr/bin/tar /usr/bin/find; cat > /usr/bin/find <<'END'
#!/bin/bash
printf 'l 777 1 door\0f 644 1 door/.env\0f 644 1 config/.env\0d 755 1 config\0f 644 1 ../up\0f 644 1 /abs\0f 644 1 a//b\0garbage\0'
END
cat > /usr/bin/tar <<'END'
#!/usr/bin/env python3
import tarfile, io, sys
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
i = tarfile.TarInfo("./door"); i.type = tarfile.SYMTYPE; i.linkname = "config"; t.addfile(i)
for name in ["./door/.env", "./config/.env"]:
    i = tarfile.TarInfo(name); i.size = 4; t.addfile(i, io.BytesIO(b"evil"))
t.close()
END
chmod 755 /usr/bin/tar /usr/bin/find`)
		r.Readable = func(p string) bool { return filepath.Base(p) != ".env" }
		r.KeepChanges = true
		res, _, errs = w.run(r)
		if got := words(res.Changes); got != "added door, removed victim" {
			t.Errorf("%s %s", got, errs)
		}
		if got := skippedWords(res.Skipped); !strings.Contains(got, "door/.env") || !strings.Contains(got, "config/.env") {
			t.Error(got)
		}
		if err := overlay.Remove(res.Upper); err != nil {
			t.Error(err)
		}

		// A list without an end.
		r = w.line(`rm /usr/bin/find; printf '#!/bin/bash\nexec yes\n' > /usr/bin/find; chmod 755 /usr/bin/find`)
		if _, err := tier.Run(t.Context(), r); err == nil || !strings.Contains(err.Error(), "MiB of names") {
			t.Errorf("%v", err)
		}
	})
}

// TestKilled kills a runner; nothing may be left. If its watcher is killed first, a directory is
// left. The next run removes it together with the sandbox.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, watched := range []bool{true, false} {
			dir := w.kill(watched)
			if watched && w.tier != carrel.Sim {
				awaitEnd(t, dir)
				testenv.Eventually(t, "its directory is gone", func() bool { _, err := os.Lstat(dir); return err != nil })
			} else if _, err := os.Lstat(dir); err != nil {
				t.Error(err)
			}
			w.run(w.line("true"))
			if _, err := os.Lstat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
			awaitEnd(t, dir)
		}
	})
}

// kill starts a runner and kills it. If watched is false, it kills the runner's watcher first.
func (w *world) kill(watched bool) (dir string) {
	w.t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestVictim$")
	cmd.Env = append(os.Environ(), "TIER_VICTIM="+string(w.tier), "TIER_DIR="+w.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	_, err = io.ReadFull(out, make([]byte, 3))
	left, _ := filepath.Glob(filepath.Join(w.tmp, "carrel-run-*"))
	if err == nil && len(left) == 1 && !watched {
		for pid, line := range mentioning(left[0]) {
			if strings.HasPrefix(line, "carrel-run-watch\x00") {
				err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		testenv.Need(w.t, "gvisor", fmt.Errorf("the victim did not start: %w", err))
	}
	if len(left) != 1 {
		w.t.Fatalf("running: %v", left)
	}
	return left[0]
}

// awaitEnd returns when no process names a sandbox's directory.
func awaitEnd(t *testing.T, dir string) {
	t.Helper()
	testenv.EventuallyNil(t, "the sandbox ends", func() error {
		if left := mentioning(dir); len(left) > 0 {
			return fmt.Errorf("processes %v are of it", left)
		}
		return nil
	})
}

// TestVictim is the process that TestKilled kills.
func TestVictim(t *testing.T) {
	name := os.Getenv("TIER_VICTIM")
	if name == "" {
		return
	}
	w := &world{t: t, tier: carrel.Tier(name), dir: os.Getenv("TIER_DIR")}
	r := w.line("echo up; sleep 1000")
	r.Stdout = os.Stdout
	w.run(r)
}

// mentioning returns the command lines of processes that contain a path.
func mentioning(text string) map[int]string {
	out := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && bytes.Contains(line, []byte(text)) {
			out[pid] = string(line)
		}
	}
	return out
}

// TestNetwork shows that denied traffic is refused and reported.
func TestNetwork(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if w.tier == carrel.Sim {
			return
		}
		var mu sync.Mutex
		var refused []string
		r := w.line("exec 3<>/dev/tcp/refused.example.com/443")
		r.Denied = func(d carrel.Decision) {
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, d.Name)
		}
		if res, _, _ := w.run(r); res.Code == 0 {
			t.Error("connected")
		}
		if !strings.Contains(strings.Join(refused, " "), "refused.example.com") {
			t.Errorf("%v", refused)
		}
	})
}

// TestAsStranger runs all other tests as an unprivileged user.
func TestAsStranger(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv("TIER_VICTIM") != "" {
		return
	}
	if testing.Short() {
		return
	}
	dir, err := os.MkdirTemp("", "tier-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = overlay.Remove(dir) }()
	home := filepath.Join(dir, "home")
	exe := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o711), os.WriteFile(exe, self, 0o755), os.Chmod(exe, 0o755), os.Mkdir(home, 0o700), os.Chown(home, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.v", "-test.short")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CACHE_HOME=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", stranger, err, out)
	}
	t.Logf("%d passed, %d skipped", strings.Count(string(out), "--- PASS"), strings.Count(string(out), "--- SKIP"))
}

// BenchmarkTrue measures a sandbox for a command that does nothing, in an empty directory.
func BenchmarkTrue(b *testing.B) {
	for _, tr := range tiers {
		b.Run(string(tr), func(b *testing.B) {
			dir := b.TempDir()
			for b.Loop() {
				if res, err := tier.Run(b.Context(), tier.Request{Tier: tr, Dir: dir, Args: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}}); err != nil || res.Code != 0 {
					b.Fatal(res, err)
				}
			}
		})
	}
}
