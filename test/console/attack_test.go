package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// hostileTexts would run a script, get out of an attribute, reach another origin or turn the text
// around, if the page did more with them than to write them.
var hostileTexts = []string{
	`<img src=x onerror=alert(1)>`, `"><script>alert(2)</script>`, `'-alert(3)-'`, `</textarea><svg onload=alert(4)>`,
	`javascript:alert(5)`, `{{constructor.constructor('alert(6)')()}}`, `<iframe srcdoc="<script>parent.alert(7)</script>">`,
	"\u202egpj.exe", `<a href="javascript:alert(8)">x</a>`, `<style>*{background:url(//evil.example.com)}</style>`, `${alert(9)}`,
	`<base href=//evil.example.com>`, `<math><mtext></form><form><mglyph><style></math><img src onerror=alert(10)>`,
}

// api calls the API, and returns the status and the answer.
func api(t testing.TB, v village, key, method, path string, body any, header ...string) (int, map[string]any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, v.URL+path, strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return resp.StatusCode, out
}

// hostile shows strangers' texts everywhere. The caller counts what the policy blocked: nothing may
// come so far.
func hostile(t *testing.T, v village, b *browser) {
	metadata := map[string]string{}
	for i, text := range hostileTexts {
		metadata[fmt.Sprintf("%d%s", i, text)] = text
	}
	status, made := api(t, v, v.Key, "POST", "/carrel/v1/sandboxes", map[string]any{"noTimeout": true, "metadata": metadata,
		"network": map[string]any{"policy": map[string]any{"rules": []any{map[string]any{"name": hostileTexts[0], "allow": []string{"ok.example.com"}}}}}})
	if status != http.StatusCreated && status != http.StatusOK {
		t.Fatal(status, made)
	}
	id := made["id"].(string)
	script := "mkdir -p h; cd h\n"
	for _, text := range hostileTexts {
		name := strings.ReplaceAll(text, "/", "∕")
		script += fmt.Sprintf("printf '%%s' %s >%s\n", quoted(text), quoted(name))
		script += fmt.Sprintf("printf '%%s\\n' %s\n", quoted(text))
	}
	script += "curl -sS -A " + quoted(hostileTexts[0]) + " 'http://denied.example.com/" + `%3Cimg%20src=x%20onerror=alert(1)%3E?"><script>alert(2)</script>` + "' || true\n"
	// Escape sequences: the clipboard, a link, a title, notifications, and what asks the terminal to type.
	script += `printf '\033]52;c;cHduZWQ=\007\033]8;;javascript:alert(11)\007link\033]8;;\007\033]2;<img src=x onerror=alert(12)>\007\033]9;hello\007\033[21t\033[c\033]10;?\007\n'` + "\n"
	cli(t, v.Daemon, "exec", id, "--", "sh", "-c", script)
	cli(t, v.Daemon, "snapshot", id, "--label", hostileTexts[0])
	running := v.CLI("exec", id, "--", "sh", "-c", "printf '%s\\n' "+quoted(strings.Join(hostileTexts, " "))+"; sleep 600")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Wait() }()
	b.signIn(v.Key)
	b.fill("Search sandboxes", "onerror")
	b.says("<img src=x onerror=alert(1)>")
	for _, tab := range []string{"overview", "files?dir=%2Fhome%2Fuser%2Fh", "processes", "network", "timeline", "logs", "settings"} {
		b.open("/sandboxes/" + id + "/" + tab)
		b.says("Sandboxes")
		b.hides("Loading…")
		switch {
		case strings.HasPrefix(tab, "files"):
			b.says("<img src=x onerror=alert(1)>")
			b.says(`\u202egpj.exe`) // shown, and turns nothing around
			b.click("<img src=x onerror=alert(1)>")
			b.until("its content", `document.querySelector(".cm-content")?.innerText.includes("onerror")`)
		case tab == "processes":
			b.click("sh -c printf")
			b.says("javascript:alert(5)")
		case tab == "network":
			b.click("denied.example.com")
			b.says("Why it was denied")
		case tab == "timeline":
			b.click("<img src=x onerror=alert(1)>")
			b.says("Roll back…")
		}
		b.clean()
	}
	for _, path := range []string{"/?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "/%3Cscript%3Ealert(1)%3C/script%3E", "/sandboxes/%22%3E%3Csvg%20onload=alert(1)%3E/files", "/network?q=%3Cscript%3E", "/builds/%3Cimg%3E"} {
		b.open(path)
		b.until("a screen", `document.querySelector(".screen")`)
	}
	hostileTerminal(b, id)
	cli(t, v.Daemon, "kill", id)
}

// hostileTerminal prints escape sequences on a terminal: none of them does anything outside of it.
func hostileTerminal(b *browser, id string) {
	b.t.Helper()
	b.onNew(`window.__clip = 0; if (navigator.clipboard) navigator.clipboard.writeText = async () => { window.__clip++; };`)
	b.open("/sandboxes/" + id + "/terminal")
	b.until("a shell", `document.querySelector(".xterm-rows")?.innerText.includes("$")`)
	b.types(`printf '\033]52;c;cHduZWQ=\007\033]8;;http://evil.example.com/\007LINK\033]8;;\007\033]2;TITLE-OF-A-STRANGER\007\033[38;2;200;10;10mRED\033[0m\n'; echo e''nd` + "\r")
	b.until("the output", `document.querySelector(".xterm-rows")?.innerText.includes("LINK") && document.querySelector(".xterm-rows")?.innerText.includes("\nend")`)
	b.run(chromedp.Evaluate(`(() => { for (const s of document.querySelectorAll(".xterm-rows span")) s.click(); })()`, nil))
	var at struct{ X, Y float64 }
	b.run(chromedp.Evaluate(`(() => { const s = [...document.querySelectorAll(".xterm-rows span, .xterm-rows div")].filter((e) => e.innerText.includes("LINK")).at(-1); const r = s.getBoundingClientRect(); return {X: r.x + 6, Y: r.y + r.height / 2}; })()`, &at))
	b.run(chromedp.MouseClickXY(at.X, at.Y))
	b.until("nothing to have happened", `window.__clip === 0 && !document.title.includes("STRANGER") && location.pathname.startsWith("/console/sandboxes/") && !document.querySelector(".xterm-rows a")`)
}

// quoted makes one word for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// person signs in with a password, and works with a session: there is no key in the page.
func person(t *testing.T, v village, b *browser) {
	status, made := api(t, v, v.Key, "POST", "/carrel/v1/people", map[string]any{"name": "kim", "password": "a-long-password-1"})
	if status >= 300 {
		t.Fatal(status, made)
	}
	if status, made = api(t, v, v.Key, "PUT", "/carrel/v1/members/kim", map[string]any{"project": "default", "role": "run"}); status >= 300 {
		t.Fatal(status, made)
	}
	b.open("/network")
	b.click("Sign in as a person")
	b.run(chromedp.WaitVisible("#name"), chromedp.SendKeys("#name", "kim"), chromedp.SendKeys("#password", "a-long-password-1\r"))
	b.until("the screen that was asked for", `location.pathname === "/console/network" && document.querySelector(".me")?.innerText.includes("kim")`)
	b.click("Sandboxes")
	b.click("planner")
	b.click("Pause") // changes something, with the form token
	b.says("1 sandbox paused")
	b.click("Resume")
	b.says("1 sandbox resumed")
	b.until("no secret in the page", `!document.cookie && !sessionStorage.getItem("carrel.key")`)
	// A request without the form token, as another site could make it, changes nothing.
	var code int
	b.run(chromedp.Evaluate(`fetch("/carrel/v1/sandboxes", {method: "POST", body: "{}", headers: {"Content-Type": "application/json"}}).then((r) => r.status)`, &code, awaited))
	if code != http.StatusForbidden {
		t.Errorf("without the form token: %d", code)
	}
	b.click("Sign out")
	b.until("the sign-in", `location.pathname === "/login"`)
	b.open("/")
	b.says("Open the console")
}

// viewer tries everything with a key that may only read.
func viewer(t *testing.T, v village, b *browser) {
	_, key := api(t, v, v.Key, "POST", "/carrel/v1/keys", map[string]any{"name": "viewer", "scope": "read"})
	b.signIn(key["secret"].(string))
	b.says("worker-7")
	for _, path := range []string{"/", "/network", "/secrets", "/access", "/webhooks", "/templates", "/sandboxes/" + v.worker + "/overview", "/sandboxes/" + v.worker + "/timeline", "/sandboxes/" + v.worker + "/network", "/sandboxes/" + v.worker + "/settings"} {
		b.open(path)
		b.until("the screen", `document.querySelector(".screen h1")`)
		b.hides("Loading…")
		b.until("nothing to change with", `![...document.querySelectorAll(".screen button")].some((e) => /^(New |Kill|Pause|Resume|Fork|Snapshot|Allow|Take|Change|Delete|Revoke|Learn|Build|Promote|Create)/.test(e.innerText))`)
	}
	b.open("/sandboxes/" + v.worker + "/terminal")
	b.says("Not with this key")
	b.open("/sandboxes/" + v.worker + "/files")
	b.says("Not with this key")
	// The page only hides. The API refuses.
	var codes map[string]int
	b.run(chromedp.Evaluate(`(async () => { const out = {}, key = sessionStorage.getItem("carrel.key"), id = `+js(v.worker)+`;
	for (const [m, p] of [["POST", "/carrel/v1/sandboxes"], ["DELETE", "/carrel/v1/sandboxes/" + id], ["POST", "/carrel/v1/sandboxes/" + id + "/pause"], ["POST", "/carrel/v1/sandboxes/" + id + "/fork"], ["PUT", "/carrel/v1/sandboxes/" + id + "/network"],
		["POST", "/carrel/v1/secrets"], ["POST", "/carrel/v1/keys"], ["PUT", "/carrel/v1/quota"], ["POST", "/carrel/v1/webhooks"], ["POST", "/carrel/v1/inbox/q1"], ["POST", "/carrel/v1/builds"], ["GET", "/carrel/v1/sandboxes/" + id + "/processes"], ["GET", "/carrel/v1/pool"], ["GET", "/carrel/v1/trail"]])
		out[m + " " + p.replace(id, "ID")] = (await fetch(p, {method: m, headers: {"X-API-Key": key, "Content-Type": "application/json"}, body: m === "GET" ? undefined : "{}"})).status;
	return out; })()`, &codes, awaited))
	for what, code := range codes {
		if code != http.StatusForbidden {
			t.Errorf("%s: %d", what, code)
		}
	}
	if len(codes) < 14 {
		t.Errorf("only %d were tried", len(codes))
	}
}

// revoked is somebody whose key is revoked while they look.
func revoked(t *testing.T, v village, b *browser) {
	_, key := api(t, v, v.Key, "POST", "/carrel/v1/keys", map[string]any{"name": "leaving", "scope": "run"})
	b.signIn(key["secret"].(string))
	b.says("worker-7")
	api(t, v, v.Key, "DELETE", "/carrel/v1/keys/"+key["id"].(string), nil)
	b.says("You were signed out")
	b.hides("worker-7")
	b.until("no key", `!sessionStorage.getItem("carrel.key")`)
	b.run(chromedp.Reload())
	b.says("Open the console")
}

// origins are other sites that frame the page, call it, or give it another name.
func origins(t *testing.T, v village, b *browser) {
	for host, want := range map[string]int{"rebound.example.com": http.StatusMisdirectedRequest, "localhost": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:80": http.StatusOK,
		"127.0.0.1.example.com": http.StatusMisdirectedRequest, "localhost.example.com": http.StatusMisdirectedRequest} {
		for _, path := range []string{"/console/", "/console/session", "/console/assets/x"} {
			code, _ := api(t, v, "", "GET", path, nil, "Host", host)
			if path == "/console/assets/x" && want == http.StatusOK {
				want = http.StatusNotFound
			}
			if code != want {
				t.Errorf("%s at %s: %d, want %d", path, host, code, want)
			}
		}
	}
	for _, h := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"}} {
		if code, _ := api(t, v, "", "GET", "/console/session", nil, h...); code != http.StatusForbidden {
			t.Errorf("session for %v: %d", h, code)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if code, _ := api(t, v, "", method, "/console/", nil); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, code)
		}
	}
	// A page of another site frames the console, opens it, and reads what it can.
	evil := http.NewServeMux()
	evil.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `<!doctype html><iframe id=f src="%[1]s/console/"></iframe><script>
		window.result = (async () => { const out = [];
			try { await (await fetch("%[1]s/console/session", {credentials: "include"})).text(); out.push("read the session"); } catch (e) {}
			try { await (await fetch("%[1]s/carrel/v1/sandboxes", {credentials: "include"})).json().then((j) => j.sandboxes && out.push("read sandboxes")); } catch (e) {}
			try { new WebSocket("%[2]s/console/").onopen = () => out.push("opened a WebSocket"); } catch (e) {}
			await new Promise((r) => setTimeout(r, 700));
			try { if (document.getElementById("f").contentDocument) out.push("reached into the frame"); } catch (e) {}
			return out; })();</script>`, v.URL, strings.Replace(v.URL, "http", "ws", 1))
	})
	s := serve(t, evil)
	var out []string
	b.run(chromedp.Navigate(s), chromedp.Evaluate(`window.result`, &out, awaited))
	if len(out) > 0 {
		t.Errorf("another site %q", out)
	}
	b.until("a frame without the console", `document.getElementById("f").contentDocument === null && document.getElementById("f").contentWindow.length === 0`)
	b.mu.Lock()
	refused := strings.Join(b.faults, "\n")
	b.faults = nil // the browser says that it refused: that is what should happen here
	b.mu.Unlock()
	if !strings.Contains(refused, "frame") {
		t.Errorf("nothing refused to show the console in a frame: %q", refused)
	}
	b.open("/")
}

// fileLinks opens a signed link to a file that a program in a sandbox wrote. The file is a page on the
// console's own origin, and must not act as one.
func fileLinks(t *testing.T, v village, b *browser) {
	v.sh(t, `echo '<h1>a page</h1><script>window.ran = 1; try { sessionStorage.getItem("x"); window.reached = 1 } catch (e) {}</script>' >evil.html`)
	b.signIn(v.Key)
	b.open("/sandboxes/" + v.worker + "/files")
	b.says("evil.html")
	// The page makes the same link to save a file; here somebody follows it.
	_, box := api(t, v, v.Key, "GET", "/carrel/v1/sandboxes/"+v.worker, nil)
	var link string
	b.run(chromedp.Evaluate(`(async () => { const path = "/home/user/evil.html", ends = Math.floor(Date.now() / 1000) + 60;
	const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(path + ":read::" + `+js(box["accessToken"])+` + ":" + ends)));
	return "/files?" + new URLSearchParams({path, signature: "v1_" + btoa(String.fromCharCode(...sum)).replace(/=+$/, ""), signature_expiration: ends}); })()`, &link, awaited))
	b.run(chromedp.Navigate(v.URL + link))
	b.says("a page")
	var ran bool
	b.run(chromedp.Evaluate(`Boolean(window.ran || window.reached)`, &ran))
	if ran {
		t.Error("a file's script ran on the console's origin")
	}
	b.mu.Lock()
	b.faults = nil // the browser says that it blocked the script
	b.mu.Unlock()
	b.open("/")
}

// offline is a daemon that goes away and comes back.
func offline(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.says("live")
	b.until("live", `document.querySelector(".live.on")`)
	v.Kill9()
	b.until("offline", `!document.querySelector(".live.on")`)
	v.Restart()
	b.until("live again", `document.querySelector(".live.on")`)
	b.says("Sandboxes")
	b.mu.Lock()
	b.faults = nil
	b.mu.Unlock()
	testenv.EventuallyNil(t, "the key's file is there", func() error {
		_, err := os.Stat(filepath.Join(v.Dir, "api-key"))
		return err
	})
}
