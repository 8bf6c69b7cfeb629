package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// village is a daemon with simulated sandboxes, for what needs no wall.
type village struct {
	*daemontest.Daemon
	worker string // a sandbox with files, denials and snapshots
}

func newVillage(t *testing.T) village {
	t.Helper()
	v := village{Daemon: daemontest.StartSim(t)}
	v.worker = cli(t, v.Daemon, "create", "--name", "worker-7", "-m", "team=search", "-m", "task=crawl-42", "--allow", "api.example.com")
	for _, name := range []string{"planner", "reviewer", "crawler"} {
		cli(t, v.Daemon, "create", "--name", name, "-m", "team=search")
	}
	v.sh(t, "mkdir src; echo 'print(1)' >src/main.py; echo '# Notes' >notes.md")
	cli(t, v.Daemon, "snapshot", v.worker, "--label", "first draft")
	v.sh(t, "echo 'more' >>notes.md; echo x >results.csv; curl -sS http://denied.example.com/ || true")
	cli(t, v.Daemon, "snapshot", v.worker, "--label", "with results")
	v.sh(t, "rm -r src")
	cli(t, v.Daemon, "rollback", v.worker, "--keep", "-n", "1")
	v.sh(t, "echo 'again' >>notes.md")
	cli(t, v.Daemon, "snapshot", v.worker, "--label", "second try")
	return v
}

// sh runs a script in the worker.
func (v village) sh(t testing.TB, script string) {
	t.Helper()
	cli(t, v.Daemon, "exec", v.worker, "--", "sh", "-c", script)
}

// TestConsole drives each screen in Chromium.
func TestConsole(t *testing.T) {
	v := newVillage(t)
	first := newBrowser(t, v.Daemon)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, v village, b *browser)
	}{
		{"first steps", firstSteps}, {"fleet", fleet}, {"files", files}, {"large tree", largeTree}, {"processes", processes}, {"network", network},
		{"timeline", timeline}, {"others", others}, {"nodes", nodes}, {"palette", palette}, {"accessible", accessible}, {"narrow", narrow},
		{"many", many}, {"names", names}, {"hostile", hostile}, {"person", person}, {"viewer", viewer}, {"revoked", revoked},
		{"origins", origins}, {"file links", fileLinks}, {"offline", offline},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := first.tab(t)
			c.run(t, v, b)
			b.clean()
		})
	}
}

// firstSteps is a walk of somebody who never saw the console: each of three tasks takes three clicks
// at most.
func firstSteps(t *testing.T, v village, b *browser) {
	b.open("/")
	b.says("API key")
	b.shot("login")
	b.signIn(v.Key)
	b.says("worker-7")
	clicks := 0
	click := func(name string) { t.Helper(); clicks++; b.click(name) }
	task := func(name string, do func()) {
		t.Helper()
		b.open("/")
		b.says("planner")
		clicks = 0
		do()
		if clicks > 3 {
			t.Errorf("%s took %d clicks", name, clicks)
		}
		t.Logf("%s: %d clicks", name, clicks)
	}
	task("to find a denied request and allow it", func() {
		click("Network")
		b.says("denied.example.com")
		click("Allow…")
		b.says("no rule names it") // why it was denied
		b.says("+   - allow: [denied.example.com]")
		b.shot("rule")
		click("Add rule")
		b.says("The policy is changed")
	})
	if out := cli(t, v.Daemon, "policy", "show", v.worker); !strings.Contains(out, "denied.example.com") {
		t.Errorf("the rule is not there: %s", out)
	}
	task("to fork", func() {
		click("reviewer")
		click("Fork")
		b.says("How many")
		click("Fork")
		b.hides("How many")
		b.until("the fork's own page", `/sandboxes\/i[a-z0-9]{20}$/.test(location.pathname)`)
	})
	task("to open a terminal", func() {
		click("worker-7")
		click("Terminal")
		b.until("a shell", `document.querySelector(".xterm-rows")?.innerText.includes("$")`)
		b.types("echo $((40+2)) lines of $(id -un)\r")
		b.until("its answer", `document.querySelector(".xterm-rows")?.innerText.includes("42 lines of user")`)
	})
	b.shot("terminal")
	// Another screen and back: the shell lives on. A second one is another shell.
	b.click("Files")
	b.says("notes.md")
	b.click("Terminal")
	b.until("the same shell", `document.querySelector(".xterm-rows")?.innerText.includes("42 lines of user")`)
	b.click("New shell")
	b.says("Shell 2")
	b.until("an empty shell", `!document.querySelector(".xterm-rows")?.innerText.includes("42 lines")`)
	b.click("Close shell 2")
	b.click("Close shell 1")
}

// fleet searches, filters, chooses many, and undoes.
func fleet(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.says("crawler")
	b.shot("fleet")
	b.fill("Search sandboxes", "task=crawl")
	b.hides("planner")
	b.until("the search in the address", `location.search === "?q=task%3Dcrawl"`)
	b.run(chromedp.Reload())
	b.says("worker-7")
	b.hides("planner")
	b.fill("Search sandboxes", "planner")
	b.says("planner")
	b.until("one row", `document.querySelectorAll(".grid .body [role=row]").length === 1`)
	b.click("Choose all")
	b.says("1 chosen")
	b.click("Pause")
	b.says("1 sandbox paused")
	b.until("the state", `document.querySelector(".grid .body .state")?.innerText === "paused"`)
	b.click("Undo")
	b.until("the state", `document.querySelector(".grid .body .state")?.innerText === "running"`)
	b.click("Label…")
	b.fill("Labels", "team=index old- stray")
	b.click("Label")
	b.says(`"stray" is neither NAME=VALUE nor NAME-`)
	b.fill("Labels", "team=index phase=2 old-")
	b.click("Label")
	b.says("1 sandbox labelled")
	b.says("phase=2")
	b.hides("team=search")
	b.click("Undo")
	b.says("team=search")
	b.hides("phase=2")
	b.click("Kill")
	b.says("in 5 seconds")
	b.click("Undo")
	b.fill("Search sandboxes", "")
	// What others do shows by itself, without loading.
	id := cli(t, v.Daemon, "create", "--name", "newcomer")
	b.says("newcomer")
	cli(t, v.Daemon, "pause", id)
	b.until("its state", `[...document.querySelectorAll(".grid .body [role=row]")].some((r) => r.innerText.includes("newcomer") && r.innerText.includes("paused"))`)
	b.fill("State", "paused")
	b.hides("reviewer")
	b.says("newcomer")
	cli(t, v.Daemon, "kill", id)
	b.hides("newcomer")
	b.open("/")
	b.says("planner")
	// By the keyboard alone.
	b.run(chromedp.Focus(".grid"), chromedp.KeyEvent("jjkx"))
	b.says("1 chosen")
	b.run(chromedp.KeyEvent("\x1b"))
	b.hides("1 chosen")
	// A sandbox is made here.
	b.run(chromedp.KeyEvent("n"))
	b.says("New sandbox")
	b.fill("Name", "Not A Name")
	b.click("Create")
	b.says("is not lower-case letters") // an error reads as in the command line
	b.fill("Name", "made-here")
	b.fill("Labels", "team=console task=1")
	b.click("Create")
	b.until("its page", `location.pathname.startsWith("/console/sandboxes/i")`)
	b.says("made-here")
	b.says("task=1")
	cli(t, v.Daemon, "kill", "made-here")
	b.says("This sandbox is gone")
}

// files lists, edits, uploads and sees changes.
func files(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.open("/sandboxes/" + v.worker + "/files")
	b.click("notes.md")
	b.until("the editor", `document.querySelector(".cm-content")?.innerText.includes("Notes")`)
	b.run(chromedp.Focus(".cm-content"), chromedp.KeyEvent("written in the console\r"))
	b.shot("files")
	b.click("Save")
	b.says("Saved notes.md")
	if out := cli(t, v.Daemon, "exec", v.worker, "cat", "notes.md"); !strings.Contains(out, "written in the console") {
		t.Errorf("the file has %q", out)
	}
	b.click("Close the file")
	v.sh(t, "echo fresh >appeared.txt")
	b.says("appeared.txt")
	up := filepath.Join(t.TempDir(), "uploaded.bin")
	if err := os.WriteFile(up, []byte("\x00\x01binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.SetUploadFiles(`input[type=file]`, []string{up}, chromedp.ByQuery))
	b.says("Uploaded uploaded.bin")
	b.click("uploaded.bin")
	b.says("This is no text")
	b.click("Delete appeared.txt")
	b.click("Delete")
	b.hides("appeared.txt")
	b.click("New directory")
	b.fill("Name", "drafts")
	b.click("Create")
	b.says("drafts/")
	b.click("drafts/")
	b.says("Nothing here")
	b.open("/sandboxes/" + v.worker + "/files?dir=%2Fnot%2Fthere")
	b.until("an error", `document.querySelector(".fault")`)
}

// processes shows what runs, and its output, and ends it.
func processes(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	cmd := v.CLI("exec", v.worker, "--", "sh", "-c", "while true; do echo tick; sleep 1; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.open("/sandboxes/" + v.worker + "/processes")
	b.until("the process", `!!`+find("sh -c while"))
	b.click("sh -c while")
	b.says("tick")
	b.shot("processes")
	b.click("Kill process")
	b.says("Sent SIGKILL")
	_ = cmd.Wait()
	b.open("/sandboxes/" + v.worker + "/logs")
	b.says("sandbox.created")
	b.open("/sandboxes/" + v.worker + "/settings")
	b.click("Change…")
	b.fill("Snapshot every", "10m")
	b.click("Change")
	b.says("10 min")
	b.open("/sandboxes/" + v.worker + "/overview")
	b.says("carrel shell " + v.worker)
}

// network reads the ledger, and answers for a connection that is held.
func network(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	policy := filepath.Join(t.TempDir(), "ask.yaml")
	if err := os.WriteFile(policy, []byte("rules:\n  - ask: [203.0.113.9]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asker := cli(t, v.Daemon, "create", "--name", "asker", "--policy", policy)
	ask := func() (wait func()) {
		cmd := v.CLI("exec", asker, "--", "curl", "-sS", "-m", "20", "http://203.0.113.9/books")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() { _ = cmd.Wait() }
	}
	wait := ask()
	b.click("Inbox")
	b.says("203.0.113.9")
	b.shot("inbox")
	b.click("Deny")
	b.says("203.0.113.9: denied once")
	wait()
	wait = ask()
	b.says("connection, refused in")
	b.click("For ever…")
	b.says("+   - allow: [203.0.113.9]")
	b.click("Allow for ever")
	b.says("allowed for ever")
	wait()
	if out := cli(t, v.Daemon, "policy", "show", asker); !strings.Contains(out, "allow") {
		t.Errorf("the answer is no rule: %s", out)
	}
	if out := cli(t, v.Daemon, "audit", "ls"); !strings.Contains(out, "inbox") {
		t.Errorf("the audit trail does not say who answered: %s", out)
	}
	b.open("/sandboxes/" + v.worker + "/network")
	b.says("denied.example.com")
	b.click("denied.example.com")
	b.says("Why it was denied")
	v.sh(t, "curl -sS http://another.example.com/ || true")
	b.says("another.example.com") // live
	b.shot("network")
	b.click("Allow…")
	b.click("For all ") // of the template; each kind of policy is shown once
	b.says("Change what may leave")
	b.until("two kinds of policies", `document.querySelectorAll("dialog[open] pre.diff").length >= 2`)
	b.click("Add rule to all")
	b.says("sandboxes is changed")
	for _, name := range []string{"planner", v.worker} {
		if out := cli(t, v.Daemon, "policy", "show", name); !strings.Contains(out, "another.example.com") {
			t.Errorf("%s has no rule: %s", name, out)
		}
	}
	b.click("Undo")
	testenv.Eventually(t, "the rule is gone everywhere", func() bool {
		return !strings.Contains(cli(t, v.Daemon, "policy", "show", "planner")+cli(t, v.Daemon, "policy", "show", v.worker), "another.example.com")
	})
	b.fill("Verdict", "allowed")
	b.hides("another.example.com")
	b.click("Learn a policy…")
	b.says("earn")
	b.click("Close")
	cli(t, v.Daemon, "kill", asker)
}

// timeline draws the tree, compares, forks and goes back.
func timeline(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.open("/sandboxes/" + v.worker + "/timeline")
	b.says("first draft")
	b.click("first draft")
	b.says("Roll back…")
	b.click("with results")
	b.says("From A to B")
	b.says("results.csv")
	b.click("notes.md")
	b.says("+ more")
	b.until("one added line, and one that stays", `(() => { const l = [...document.querySelectorAll(".changes .diff div")]; return l.length === 2 && l.filter((x) => x.className === "added").length === 1; })()`)
	b.until("the command line's equivalent", `[...document.querySelectorAll(".how")].some((h) => h.innerText.includes("--file /home/user/notes.md"))`)
	b.shot("timeline")
	b.click("first draft") // no longer chosen
	b.hides("From A to B")
	b.click("Fork…")
	b.fill("How many", "3")
	b.click("Fork")
	b.says("3 sandboxes forked")
	b.click("with results")
	b.click("Roll back…")
	b.click("Roll back")
	b.says("Rolled back to with results")
	if out := cli(t, v.Daemon, "exec", v.worker, "ls"); !strings.Contains(out, "results.csv") {
		t.Errorf("after the rollback there is %q", out)
	}
	b.click("Take snapshot")
	b.fill("Label", "from the console")
	b.click("Take snapshot")
	b.says("from the consol")
	b.click("with results")
	b.click("Create from…")
	b.fill("Name", "from-then")
	b.click("Create")
	b.says("from-then")
	b.until("its page", `location.pathname.startsWith("/console/sandboxes/i") && !location.pathname.includes(`+js(v.worker)+`)`)
	cli(t, v.Daemon, "kill", "from-then")
}

// palette finds by the keyboard.
func palette(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.says("reviewer")
	b.types("?")
	b.until("the palette", `document.activeElement?.matches("dialog.palette[open] input")`)
	b.run(chromedp.KeyEvent("terminal work"))
	b.says("Terminal of worker-7")
	b.shot("palette")
	b.run(chromedp.KeyEvent("\x1b"))
	b.until("no palette", `!document.querySelector("dialog.palette")`) // a closed one is still there until it has told so
	b.types("?")
	b.until("the palette", `document.activeElement?.matches("dialog.palette[open] input")`)
	b.run(chromedp.KeyEvent("secr\r"))
	b.until("the screen", `location.pathname === "/console/secrets"`)
	b.run(chromedp.KeyEvent("gs"))
	b.until("the screen", `location.pathname === "/console/"`)
	b.click("Light or dark")
	b.until("dark", `document.documentElement.dataset.theme === "dark"`)
	b.shot("dark")
	b.click("Light or dark")
}

// accessible runs axe over each screen, for WCAG 2.2 AA.
func accessible(t *testing.T, v village, b *browser) {
	raw, err := os.ReadFile("../../console/node_modules/axe-core/axe.min.js")
	testenv.Need(t, "node", err) // npm ci --prefix console
	b.signIn(v.Key)
	paths := []string{"/", "/inbox", "/network", "/templates", "/pools", "/secrets", "/access", "/budgets", "/people", "/usage", "/audit", "/webhooks"}
	for _, tab := range []string{"overview", "terminal", "files", "processes", "ports", "network", "timeline", "logs", "settings"} {
		paths = append(paths, "/sandboxes/"+v.worker+"/"+tab)
	}
	rules := []string{"wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"}
	check := func(what string) {
		t.Helper()
		var found []string
		b.run(chromedp.Evaluate(`axe.run(document, {runOnly: `+js(rules)+`}).then((r) => r.violations.flatMap((x) => x.nodes.map((n) => x.id + ": " + n.target.join(" ") + " " + n.html.slice(0, 160) + " " + n.failureSummary.slice(0, 200))))`, &found, chromedp.EvalAsValue, awaited))
		for _, f := range found {
			t.Errorf("%s: %s", what, f)
		}
	}
	b.run(chromedp.Evaluate(string(raw), nil))
	for _, theme := range []string{"light", "dark"} {
		if theme == "dark" { // only colours differ
			rules = []string{"color-contrast"}
		}
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
		for _, path := range paths {
			b.run(chromedp.Evaluate(`history.pushState(null, "", `+js("/console"+path)+`); dispatchEvent(new PopStateEvent("popstate"))`, nil))
			b.until("the screen "+path, `!document.body.innerText.includes("Loading…") && document.querySelector(".screen h1") && !document.querySelector(".timeline:not(:has(.node))")`)
			check(theme + " " + path)
		}
		b.run(chromedp.Evaluate(`history.pushState(null, "", "/console/"); dispatchEvent(new PopStateEvent("popstate"))`, nil))
		b.click("New sandbox")
		b.says("Timeout")
		check(theme + " dialog")
		b.click("Close")
	}
}

// narrow is a telephone.
func narrow(t *testing.T, v village, b *browser) {
	b.run(chromedp.EmulateViewport(390, 780))
	b.signIn2(v.Key)
	b.says("worker-7")
	b.until("no sideways scrolling", `document.documentElement.scrollWidth <= 390`)
	b.click("Menu")
	b.click("Network")
	b.says("denied.example.com")
	b.until("no sideways scrolling", `document.documentElement.scrollWidth <= 390`)
	b.shot("narrow")
}

// many is a fleet of 10,000: the page has the rows that can be seen, and no others. The sandboxes
// are made up: the page's requests for them are answered in the page.
func many(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.run(chromedp.Evaluate(`sessionStorage.setItem("many", "1")`, nil))
	b.onNew(`if (sessionStorage.getItem("many")) {
	const real = window.fetch, box = (i) => ({id: "i" + String(i).padStart(20, "a"), name: "made-up-" + i, project: "default", template: "sim", alias: "sim", tier: "sim", state: i % 7 ? "running" : "paused",
		limits: {cpus: 1, memoryMB: 512, diskMB: 100, pids: 10}, metadata: {task: String(i)}, network: {internet: false}, started: new Date(1.7e12 + i * 1000).toISOString(), ends: new Date(2e12).toISOString(), accessToken: "x"});
	window.fetch = async (path, init) => {
		if (!String(path).startsWith("/carrel/v1/sandboxes?")) return real(path, init);
		const at = Number(new URLSearchParams(String(path).split("?")[1]).get("cursor") ?? 0);
		return new Response(JSON.stringify({sandboxes: Array.from({length: 100}, (_, i) => box(at + i)), next: at + 100 < 10000 ? String(at + 100) : ""}));
	}; }`)
	b.open("/")
	b.says("made-up-99")
	var ready float64
	b.run(chromedp.Evaluate(`performance.now()`, &ready))
	t.Logf("the first rows were there after %.0f ms", ready)
	b.until("10,000 sandboxes", `document.querySelector("h1")?.innerText.replace(/\D/g, "") === "10000"`)
	var frames []float64
	b.run(chromedp.Evaluate(`new Promise((done) => {
		const grid = document.querySelector(".grid"), took = [];
		let last = performance.now(), n = 0;
		const step = (now) => { took.push(now - last); last = now; grid.scrollTop = n * 977; if (++n < 120) requestAnimationFrame(step); else done(took); };
		requestAnimationFrame(step); })`, &frames, chromedp.EvalAsValue, awaited))
	slow := 0
	for _, f := range frames {
		if f > 34 {
			slow++
		}
	}
	t.Logf("%d frames while scrolling, %d of them late", len(frames), slow)
	b.until("few rows in the document", `document.querySelectorAll(".grid .body [role=row]").length < 80`)
	b.until("the last rows", `(() => { const g = document.querySelector(".grid"); g.scrollTop = g.scrollHeight; return g.innerText.includes("made-up-3") || g.innerText.includes("made-up-0"); })()`)
	b.fill("Search sandboxes", "made-up-9999")
	b.until("one row", `document.querySelectorAll(".grid .body [role=row]").length === 1`)
	b.run(chromedp.Evaluate(`sessionStorage.removeItem("many")`, nil))
}

// names are commands that the console shows: each must be one of the command line's.
func names(t *testing.T, v village, _ *browser) {
	seen := map[string]bool{}
	sources, err := filepath.Glob("../../console/src/*.tsx")
	if err != nil || len(sources) == 0 {
		t.Fatal("no sources", err)
	}
	for _, s := range sources {
		raw, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commands.FindAllStringSubmatch(string(raw), -1) {
			seen[strings.TrimSpace(m[1])] = true
		}
	}
	if len(seen) < 15 {
		t.Fatalf("found only %v", seen)
	}
	for words := range seen {
		args := append(strings.Fields(words), "--help")
		out, err := v.CLI(args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "carrel "+strings.Fields(words)[0]) {
			t.Errorf("carrel %s: %v %s", words, err, fmt.Sprintf("%.200s", out))
		}
	}
}
