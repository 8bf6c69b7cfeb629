// Package play runs the page docs/play in real Chromium, and the same machine under WASI.
package play

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// page serves docs/play and records all other requests.
func page(t *testing.T) (url string, strays *[]string) {
	t.Helper()
	dir := filepath.Join("..", "..", "docs", "play")
	_, err := os.Stat(filepath.Join(dir, "carrel.wasm"))
	testenv.Need(t, "play", err) // make play
	strays = &[]string{}
	files := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(filepath.Join(dir, filepath.Clean(r.URL.Path))); errors.Is(err, fs.ErrNotExist) {
			*strays = append(*strays, r.URL.Path)
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, strays
}

// chromium starts a browser that reaches only this host's loopback.
func chromium(t *testing.T) context.Context {
	t.Helper()
	var path string
	err := exec.ErrNotFound
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, lerr := exec.LookPath(name); lerr == nil {
			path, err = p, nil
			break
		}
	}
	testenv.Need(t, "play", err)
	dir, err := os.MkdirTemp("", "carrel-play-")
	if err != nil {
		t.Fatal(err)
	}
	// Chromium's other processes write for a moment after the first one has ended.
	t.Cleanup(func() {
		testenv.EventuallyNil(t, "the browser's files are removed", func() error { return os.RemoveAll(dir) })
	})
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.Flag("no-sandbox", os.Geteuid() == 0), // Chromium's own sandbox does not start as root
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(t.Logf)) // log events that the library does not know
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestPage acts as a visitor: it runs the examples and scripts, stops an endless one, and goes back
// to a saved moment.
func TestPage(t *testing.T) {
	url, strays := page(t)
	ctx := chromium(t)
	var thrown []string
	chromedp.ListenTarget(ctx, func(ev any) {
		if e, ok := ev.(*runtime.EventExceptionThrown); ok {
			thrown = append(thrown, e.ExceptionDetails.Error())
		}
	})
	status := func(has string) chromedp.Action {
		return chromedp.Poll(`document.getElementById("status").textContent.includes(`+"`"+has+"`"+`)`, nil, chromedp.WithPollingTimeout(time.Minute))
	}
	var output string
	run := func(script, wait string) {
		t.Helper()
		err := chromedp.Run(ctx, chromedp.SetValue("#script", script, chromedp.ByID), chromedp.Click("#run", chromedp.ByID), status(wait),
			chromedp.Evaluate(`document.getElementById("output").textContent`, &output))
		if err != nil {
			var now string
			_ = chromedp.Run(ctx, chromedp.Evaluate(`document.getElementById("status").textContent + "\n" + document.getElementById("output").textContent`, &now))
			t.Fatalf("%s: %v; the page says %q", script, err, now)
		}
	}
	var examples []string
	if err := chromedp.Run(ctx, chromedp.Navigate(url), status("ready"), chromedp.Evaluate(`Object.values(examples)`, &examples)); err != nil {
		t.Fatal(err, thrown)
	}
	run(examples[0], "status 0")
	if !strings.Contains(output, "2 on") && !strings.Contains(output, "words in 4 lines") {
		t.Errorf("words: %q", output)
	}
	run(examples[1], "status 0")
	if output != "8\n" && output != "bob\n8\n" {
		t.Errorf("json: %q", output)
	}
	run(examples[2], "status 0")
	if output != "jsonl 1\nmd 1\ntxt 2\nbye (0)\n" {
		t.Errorf("traps: %q", output)
	}
	run("echo kept > f; echo 'grün ☃' ; echo err >&2; exit 4", "status 4")
	if !strings.Contains(output, "grün ☃\n") || !strings.Contains(output, "err\n") {
		t.Errorf("characters: %q", output)
	}
	var class string
	if err := chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector("#output .err").textContent`, &class)); err != nil || class != "err\n" {
		t.Errorf("standard error is not told apart: %q %v", class, err)
	}
	// A moment, and back.
	if err := chromedp.Run(ctx, chromedp.Click("#snapshot", chromedp.ByID), chromedp.WaitVisible("#moments li a")); err != nil {
		t.Fatal(err)
	}
	run("cat f; rm f; ls f", "status 2")
	if err := chromedp.Run(ctx, chromedp.Click("#moments li a"), status("back at moment 1")); err != nil {
		t.Fatal(err)
	}
	run("cat f", "status 0")
	if output != "kept\n" {
		t.Errorf("after the rollback: %q", output)
	}
	// An endless script is stopped, the page lives on, and the next machine is new.
	if err := chromedp.Run(ctx, chromedp.SetValue("#script", examples[3], chromedp.ByID), chromedp.Click("#run", chromedp.ByID),
		chromedp.Poll(`document.getElementById("output").textContent.startsWith("y\ny\ny\n")`, nil, chromedp.WithPollingTimeout(time.Minute)),
		chromedp.Click("#stop", chromedp.ByID), status("ready")); err != nil {
		t.Fatal(err)
	}
	run("cat f", "status 1")
	// There is no way out of the page, and it requested only its own files.
	run("curl -sS http://example.com/; wget -q -O - http://127.0.0.1:1/; echo end", "status 0")
	if !strings.Contains(output, "end\n") {
		t.Errorf("network: %q", output)
	}
	if len(*strays) > 0 || len(thrown) > 0 {
		t.Errorf("asked for %q, thrown %q", *strays, thrown)
	}
}

// TestWASI runs the machine as a plain program of a WASI runtime that gives it no files and no
// network.
func TestWASI(t *testing.T) {
	testenv.Long(t, "building and compiling the module takes a minute; test-all has it")
	wasm := filepath.Join(t.TempDir(), "sim.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", wasm, "github.com/carrel-dev/carrel/cmd/carrel-play")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	code, err := os.ReadFile(wasm)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	m, err := r.CompileModule(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		stdin  string
		out    string
		status uint32
	}{
		{[]string{"-c", `echo "$1" | tr a-z A-Z; exit 3`, "x"}, "", "X\n", 3},
		{nil, "sort <<< $'b\\na' | head -1; cat /etc/passwd | head -1 | cut -d: -f1", "a\nroot\n", 0},
		{[]string{"-c", `wc -c`}, "12345", "5\n", 0},
	} {
		var out, errs bytes.Buffer
		config := wazero.NewModuleConfig().WithName("").WithArgs(append([]string{"carrel-play"}, c.args...)...).WithStdin(strings.NewReader(c.stdin)).
			WithStdout(&out).WithStderr(&errs).WithSysWalltime().WithSysNanotime().WithSysNanosleep()
		_, err := r.InstantiateModule(ctx, m, config)
		var exit *sys.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err, errs.String())
		}
		status := uint32(0)
		if exit != nil {
			status = exit.ExitCode()
		}
		if out.String() != c.out || status != c.status {
			t.Errorf("%q: %d %q, want %d %q; %s", c.args, status, out.String(), c.status, c.out, errs.String())
		}
	}
}
