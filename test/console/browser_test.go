// Package console drives the console in real Chromium, against a real daemon with real sandboxes.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// patience is how long the page may take for one step on a busy machine.
const patience = 20 * time.Second

// browser is a tab of Chromium that looks at one daemon. It counts what no page of ours may do.
type browser struct {
	t      testing.TB
	ctx    context.Context
	daemon *daemontest.Daemon

	mu     sync.Mutex
	faults []string
}

// watch runs in each page before its own scripts.
const watch = `window.__violations = [];
addEventListener("securitypolicyviolation", (e) => window.__violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sourceFile + ":" + e.lineNumber + " " + e.sample));
window.__pwned = [];
for (const f of ["alert", "confirm", "prompt", "open", "print"]) window[f] = (...a) => { window.__pwned.push(f + " " + a.join(" ")); return null; };`

// newBrowser starts Chromium, which reaches only this host's loopback.
func newBrowser(t testing.TB, d *daemontest.Daemon) *browser {
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
	dir, err := os.MkdirTemp("", "carrel-console-")
	if err != nil {
		t.Fatal(err)
	}
	// Chromium's other processes write for a moment after the first one has ended.
	t.Cleanup(func() {
		testenv.EventuallyNil(t, "the browser's files are removed", func() error { return os.RemoveAll(dir) })
	})
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.Flag("no-sandbox", os.Geteuid() == 0), // Chromium's own sandbox does not start as root
		chromedp.Flag("host-resolver-rules", "MAP *.example.com 127.0.0.1 , MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE *.localhost"),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 800), chromedp.Flag("force-color-profile", "srgb"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 15*time.Minute)
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil { // the first run's context is the browser's
		t.Fatal(err)
	}
	b := &browser{t: t, ctx: ctx, daemon: d}
	b.listen()
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(watch).Do(ctx)
		return err
	}), chromedp.EmulateViewport(1280, 800), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}))
	return b
}

// tab is another tab of the same browser, for one test. It shares no cookies with the others.
func (b *browser) tab(t testing.TB) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	n := &browser{t: t, ctx: ctx, daemon: b.daemon}
	n.listen()
	n.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(watch).Do(ctx)
		return err
	}), chromedp.EmulateViewport(1280, 800))
	return n
}

// listen keeps what the pages throw and what their policy blocks.
func (b *browser) listen() {
	chromedp.ListenTarget(b.ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, "thrown: "+e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Source == log.SourceSecurity {
				b.faults = append(b.faults, "security: "+e.Entry.Text)
			}
		case *page.EventJavascriptDialogOpening:
			b.faults = append(b.faults, "dialog: "+e.Message)
		}
	})
}

// clean fails if a page threw something, ran a stranger's script, or broke its policy.
func (b *browser) clean() {
	b.t.Helper()
	var violations, pwned []string
	b.run(chromedp.Evaluate("window.__violations", &violations), chromedp.Evaluate("window.__pwned", &pwned))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(violations)+len(pwned)+len(b.faults) > 0 {
		b.t.Errorf("violations %q, foreign scripts %q, faults %q", violations, pwned, b.faults)
	}
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience+30*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("%v\nthe page says: %s\nfaults: %q", err, b.text(), b.faults)
	}
}

// text is what the page says.
func (b *browser) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	var text string
	_ = chromedp.Run(ctx, chromedp.Evaluate("location.href + '\\n' + document.body.innerText", &text))
	return text
}

// until waits until a script's value is true. A page that goes away meanwhile is asked again.
func (b *browser) until(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	err := testenv.Within(ctx, patience, func() error {
		return chromedp.Run(ctx, chromedp.PollFunction("async () => "+script, nil, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(50*time.Millisecond)))
	})
	if err != nil {
		b.t.Fatalf("waited in vain for %s: %v\nthe page says: %s\nfaults: %q", what, err, b.text(), b.faults)
	}
}

// says waits until the page says something.
func (b *browser) says(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("the page to say %q", text), "document.body.innerText.includes("+js(text)+")")
}

// hides waits until the page does not say something any more.
func (b *browser) hides(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("the page to stop saying %q", text), "!document.body.innerText.includes("+js(text)+")")
}

// js writes a value as a script has it.
func js(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// find is the script for the visible button, link or other thing whose text or label is exactly this. An
// open dialog comes first: a person can use nothing behind it.
func find(name string) string {
	return `(() => { const root = document.querySelector("dialog[open]") ?? document;
	const all = [...root.querySelectorAll("button, a, summary, [role=button], [role=option], label, select, input, textarea")];
	const hit = (e) => e.getClientRects().length > 0 && !e.disabled;
	const text = (e) => (e.getAttribute("aria-label") ?? e.innerText ?? e.textContent).trim();
	return all.find((e) => hit(e) && text(e) === ` + js(name) + `) ?? all.find((e) => hit(e) && text(e).startsWith(` + js(name) + `)); })()`
}

// click presses the mouse on something that a person finds by its text, once it stands still and
// nothing covers it.
func (b *browser) click(name string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q to click on", name), `(async () => { const e = `+find(name)+`; if (!e) return false;
	e.scrollIntoView({block: "nearest", inline: "nearest"});
	const place = () => { const r = e.getClientRects()[0]; return r && [r.x + r.width / 2, r.y + r.height / 2]; };
	const before = place();
	await new Promise((done) => setTimeout(done, 40));
	const now = place();
	if (!before || !now || before[0] !== now[0] || before[1] !== now[1] || !e.isConnected) return false;
	const top = document.elementFromPoint(...now);
	if (!top || !(e.contains(top) || top.contains(e))) return false;
	window.__at = {X: now[0], Y: now[1]};
	return true; })()`)
	var at struct{ X, Y float64 }
	b.run(chromedp.Evaluate(`window.__at`, &at))
	b.run(chromedp.MouseClickXY(at.X, at.Y))
}

// fill types into the field with this label.
func (b *browser) fill(label, text string) {
	b.t.Helper()
	field := `(() => { const root = document.querySelector("dialog[open]") ?? document;
	return [...root.querySelectorAll("input, textarea, select")].find((e) => (e.getAttribute("aria-label") ?? e.closest("label")?.querySelector("span")?.innerText ?? e.closest("label")?.innerText ?? "").trim().startsWith(` + js(label) + `)); })()`
	b.until(fmt.Sprintf("the field %q", label), "!!"+field)
	b.run(chromedp.Evaluate(`(() => { const e = `+field+`; e.focus(); const d = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value"); d.set.call(e, `+js(text)+`);
	e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true})); })()`, nil))
}

// open goes to a page of the console.
func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.daemon.URL + "/console" + path))
}

// signIn signs in with a key.
func (b *browser) signIn(key string) {
	b.t.Helper()
	b.signIn2(key)
	b.says("Sign out")
}

// shot keeps a picture of the page, where CARREL_SHOTS names a directory.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("CARREL_SHOTS")
	if dir == "" {
		return
	}
	var raw []byte
	b.run(chromedp.CaptureScreenshot(&raw))
	if err := os.WriteFile(dir+"/"+name+".png", raw, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// cli runs a command against the daemon, and returns what it prints.
func cli(t testing.TB, d *daemontest.Daemon, args ...string) string {
	t.Helper()
	out, err := d.CLI(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("carrel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// signIn2 signs in where the menu is folded away.
func (b *browser) signIn2(key string) {
	b.t.Helper()
	b.open("/")
	b.says("API key")
	b.fill("API key", key)
	b.click("Open the console")
	b.until("the screen", `document.querySelector(".screen")`)
}

// onNew runs a script in each page before the page's own.
func (b *browser) onNew(script string) {
	b.t.Helper()
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
		return err
	}))
}

// awaited makes an evaluation wait for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// commands finds the command lines in the console's sources: the words before a variable or a flag.
var commands = regexp.MustCompile("[`\"]carrel ([a-z]+(?:-[a-z]+)*(?: [a-z]+)?)")

// serve serves a site of somebody else.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// types presses keys one after the other, as a keyboard does: the page may keep a key's text back.
func (b *browser) types(text string) {
	b.t.Helper()
	var keys []chromedp.Action
	for _, c := range text {
		key, code := string(c), int64(0)
		switch {
		case c == '\r':
			key, code = "Enter", 13
		case unicode.IsLetter(c) || unicode.IsDigit(c):
			code = int64(unicode.ToUpper(c))
		}
		keys = append(keys, input.DispatchKeyEvent(input.KeyDown).WithKey(key).WithText(string(c)).WithWindowsVirtualKeyCode(code),
			input.DispatchKeyEvent(input.KeyUp).WithKey(key).WithWindowsVirtualKeyCode(code))
	}
	b.run(keys...)
}
