package console

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// serveVariable makes this program the server in the sandbox of TestReal.
const serveVariable = "CARREL_CONSOLE_SERVE"

func TestMain(m *testing.M) {
	if n, err := strconv.ParseInt(os.Getenv(printVariable), 10, 64); err == nil {
		printMuch(n)
		return
	}
	if address := os.Getenv(serveVariable); address != "" {
		serveHostile(address)
		return
	}
	os.Exit(m.Run())
}

// hostilePage reaches for everything that a preview must not have, and says what it got.
const hostilePage = `<!doctype html><title>t</title><h1>the server in the sandbox</h1><script>
(async () => { const out = [], console_ = new URLSearchParams(location.search).get("console") ?? CONSOLE;
const attempt = async (name, fn) => { try { if (await fn()) out.push(name); } catch (e) {} };
await attempt("the parent's document", () => parent.document.body);
await attempt("the parent's address", () => parent.location.href);
await attempt("the parent's storage", () => parent.sessionStorage.length >= 0);
await attempt("its opener", () => window.opener);
await attempt("a cookie", () => document.cookie);
await attempt("a key in storage", () => sessionStorage.getItem("carrel.key"));
await attempt("the console's session", async () => (await fetch(console_ + "/console/session", {credentials: "include"})).ok);
await attempt("the console's page", async () => (await (await fetch(console_ + "/console/", {credentials: "include"})).text()).length);
await attempt("sandboxes", async () => (await (await fetch(console_ + "/carrel/v1/sandboxes", {credentials: "include"})).json()).sandboxes);
await attempt("where it is shown", () => location.ancestorOrigins?.[0] === undefined ? false : document.referrer);
await attempt("a window", () => open(console_ + "/console/"));
await attempt("a dialog", () => { const before = Date.now(); return confirm("x") || Date.now() - before > 2000; });
await attempt("the camera", () => navigator.mediaDevices.getUserMedia({video: true}));
try { top.location = "https://evil.example.com/"; } catch (e) {}
for (const m of [{type: "carrel"}, "key", {key: 1}]) parent.postMessage(m, "*");
await fetch("/report", {method: "POST", body: JSON.stringify(out)});
document.body.append("done"); })();
</script>`

// serveHostile is a server in a sandbox: its page, and what that page told it.
func serveHostile(address string) {
	if err := litter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	var mu sync.Mutex
	report, cookies := "", ""
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		cookies += r.Header.Get("Cookie") + r.Header.Get("X-Api-Key") + r.Header.Get("Referer")
		mu.Unlock()
		port := r.Host[strings.LastIndex(r.Host, ":"):]
		_, _ = io.WriteString(w, strings.ReplaceAll(hostilePage, "CONSOLE", js("http://127.0.0.1"+port)))
	})
	mux.HandleFunc("POST /report", func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		mu.Lock()
		report = string(raw)
		mu.Unlock()
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(w, "%s|%s", report, cookies)
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, mux))
}

// TestReal drives the screens that need a real wall: a terminal on a real shell, and the preview of a
// real server.
func TestReal(t *testing.T) {
	t.Parallel()
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t), "--default-tier", "gvisor")
	id := cli(t, d, "create", "--name", "real")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cli(t, d, "cp", self, id+":/tmp/server")
	server := d.CLI("exec", "--env", serveVariable+"=0.0.0.0:8000", id, "--", "/tmp/server")
	var said strings.Builder
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Log("the server said: ", said.String())
		}
	}()
	testenv.EventuallyNil(t, "the server listens", func() error { _, err := reported(t, d, id); return err })
	b := newBrowser(t, d)
	b.signIn(d.Key)
	b.says("real")
	b.open("/sandboxes/" + id + "/ports")
	b.fill("Port", "8000")
	b.click("Preview")
	report := ""
	testenv.EventuallyNil(t, "the page in the preview reports", func() (err error) {
		if report, err = reported(t, d, id); err == nil && report == "|" {
			err = errors.New("nothing yet")
		}
		return err
	})
	if report != "[]|" {
		t.Errorf("the preview reached %s", report)
	}
	b.until("the console", `location.pathname.startsWith("/console/sandboxes/")`)
	b.shot("ports")
	// The browser tells that it kept the frame from moving the page and from opening windows.
	b.mu.Lock()
	b.faults = nil
	b.mu.Unlock()
	b.click("Terminal")
	b.until("a shell", `/[$#] $/.test(document.querySelector(".xterm-rows")?.innerText.trimEnd() + " ")`)
	b.types("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; done; echo size $(stty size 2>/dev/null || echo none)\r")
	b.until("its output", `document.querySelector(".xterm-rows")?.innerText.includes("line 300")`)
	// The terminal gives its connection up on another screen, and goes on where it was.
	b.types("sleep 1; echo after a pause\r")
	b.click("Overview")
	b.says("About")
	at := time.Now()
	testenv.Eventually(t, "a second passes", func() bool { return time.Since(at) > 1500*time.Millisecond })
	b.click("Terminal")
	b.until("what came meanwhile", `document.querySelector(".xterm-rows")?.innerText.split("\n").some((l) => l.startsWith("after a pause"))`)
	b.until("everything once", `document.querySelector(".xterm-rows")?.innerText.match(/^after a pause/gm).length === 1`)
	b.run(chromedp.EmulateViewport(1000, 600))
	b.until("another size", `document.querySelectorAll(".xterm-rows > div").length < 35`)
	large(t, b, id)
	flood(t, b, d, id)
	b.open("/sandboxes/" + id + "/timeline")
	b.click("Take snapshot")
	b.fill("Label", "with memory")
	b.click("Take snapshot")
	b.says("with memory")
	b.clean()
}

// reported asks the server in a sandbox what its page reported, and which of the visitor's headers came in.
func reported(t testing.TB, d *daemontest.Daemon, id string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL+"/report", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", "8000")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(raw))
	}
	return string(raw), err
}
