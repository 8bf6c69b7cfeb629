//go:build linux

package tier_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/run/tier"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestCopyBound shows that a directory that is too large is refused with the names of its largest
// parts, and that a larger bound lets it pass.
func TestCopyBound(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.file("small/a", "x", 0o644)
		w.file("node_modules/big", strings.Repeat("x", 3<<20), 0o644)
		for _, name := range []string{"a", "b", "c", "d"} {
			w.file(".cache/"+name, strings.Repeat("y", 1<<18), 0o644)
		}
		r := w.line("stat -c %s node_modules/big")
		r.Copy = 2 << 20
		_, err := tier.Run(t.Context(), r)
		hint := carrel.HintOf(err)
		if carrel.KindOf(err) != carrel.Exhausted || !strings.Contains(err.Error(), "2 MiB") || !strings.Contains(hint, `"node_modules" (3 MiB, 2 files), ".cache" (1 MiB, 5 files)`) ||
			!strings.Contains(hint, "--copy-max") || strings.Contains(hint, `"small"`) {
			t.Errorf("%v\n%s", err, hint)
		}
		r.Copy = 8 << 20
		if _, out, errs := w.run(r); out != "3145728\n" {
			t.Errorf("%q %q", out, errs)
		}
	})
}

// TestCopyProgress shows that a copy of more than a second is reported, and a quick one is not.
func TestCopyProgress(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.file(name, "x", 0o644)
		}
		slow := func(string) bool { time.Sleep(500 * time.Millisecond); return true }
		var told bytes.Buffer
		r := w.line("true")
		r.Progress, r.Readable = &told, slow
		w.run(r)
		if !regexp.MustCompile(`^carrel: looking through \S+: \d files so far\n`).MatchString(told.String()) || strings.Contains(told.String(), "\x1b") {
			t.Errorf("it says %q", told.String())
		}
		told.Reset()
		r.Readable = nil
		if begin := time.Now(); true {
			w.run(r)
			if took := time.Since(begin); took < time.Second && told.Len() > 0 {
				t.Errorf("after %v it says %q", took, told.String())
			}
		}
		master, slave, err := pty.Open()
		if err != nil {
			testenv.Need(t, "pty", err)
		}
		defer master.Close()
		r.Progress, r.Readable = slave, slow
		w.run(r)
		_ = slave.Close()
		buf := make([]byte, 4096)
		n, _ := master.Read(buf)
		text := string(buf[:n])
		if !strings.HasPrefix(text, "\r\x1b[Kcarrel: looking through ") || !strings.HasSuffix(text, "\r\x1b[K") || strings.Contains(text, "\n") {
			t.Errorf("on a terminal: %q", text)
		}
	})
}
