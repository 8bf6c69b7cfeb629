package console

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// asked is the world of TestAsk: a daemon with real sandboxes, and outside a site and the daemon itself
// under a name.
type asked struct {
	*daemontest.Daemon
	site  atomic.Int64 // requests that the site has seen
	inner string       // a sandbox that may reach nothing, in which commands run
	outer string       // a sandbox whose policy asks about everything
}

// sdkDir has E2B's SDK as the registry has it.
const sdkDir = "../sdk/js"

// TestAsk lets E2B's own SDK wait for a person. First the SDK runs on this machine, and its command in a
// sandbox waits. Then the SDK itself runs in a sandbox, and its calls of the API wait. The person answers
// in the console.
func TestAsk(t *testing.T) {
	t.Parallel() // with TestBundle and TestReal: each mostly waits
	_, err := os.Stat(sdkDir + "/node_modules/e2b")
	testenv.Need(t, "node", err) // npm ci --prefix test/sdk/js
	a := newAsked(t)
	first := newBrowser(t, a.Daemon)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *browser)
	}{{"a command of the SDK waits", a.commandWaits}, {"the SDK waits inside", a.insideWaits}} {
		t.Run(c.name, func(t *testing.T) {
			b := first.tab(t)
			b.signIn(a.Key)
			b.says("asker")
			b.click("Inbox")
			b.says("Nobody waits")
			c.run(t, b)
			b.clean()
		})
	}
}

func newAsked(t *testing.T) *asked {
	t.Helper()
	a := &asked{}
	site := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.site.Add(1)
		_, _ = io.WriteString(w, "the content of "+r.URL.Path)
	}))
	var daemon atomic.Pointer[url.URL]
	api := serve(t, &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(daemon.Load()) }})
	table := filepath.Join(t.TempDir(), "table.json")
	write(t, table, js(map[string]any{
		"names": map[string][]string{"books.example.com": {"203.0.113.9"}, "carrel.example.com": {"203.0.113.10"}},
		"dial":  map[string]string{"203.0.113.9:80": strings.TrimPrefix(site, "http://"), "203.0.113.10:80": strings.TrimPrefix(api, "http://")},
	}))
	a.Daemon = daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t, "curl", "node"), "--default-tier", "gvisor", "--wire-table", table)
	at, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	daemon.Store(at)
	policy := filepath.Join(t.TempDir(), "ask.yaml")
	write(t, policy, "askSeconds: 300\nrules:\n  - ask: [books.example.com]\n    methods: [GET]\n  - ask: [carrel.example.com]\n")
	a.outer = cli(t, a.Daemon, "create", "--name", "asker", "--policy", policy)
	a.inner = cli(t, a.Daemon, "create", "--name", "worker")
	return a
}

// said is a line of the program that uses the SDK.
type said struct {
	Connected string `json:"connected"`
	Exit      int    `json:"exit"`
	Out       string `json:"out"`
	Err       string `json:"err"`
	Thrown    string `json:"thrown"`
	Message   string `json:"message"`
}

// start runs the program. The result gives its next line.
func start(t *testing.T, cmd *exec.Cmd) (next func() said) {
	t.Helper()
	var errs daemontest.Output
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := json.NewDecoder(out)
	return func() (s said) {
		t.Helper()
		if err := lines.Decode(&s); err != nil {
			t.Fatalf("the program with the SDK: %v\n%s", err, errs.String())
		}
		t.Logf("the program says %+v", s)
		return s
	}
}

// commandWaits has the SDK on this machine.
func (a *asked) commandWaits(t *testing.T, b *browser) {
	get := "curl -sS --fail-with-body -m 100 http://books.example.com"
	cmd := exec.Command("node", sdkDir+"/asking.mjs", a.outer, get+"/one", get+"/two")
	cmd.Env = append(os.Environ(), "E2B_API_URL="+a.URL, "E2B_SANDBOX_URL="+a.URL, "E2B_API_KEY="+a.Key)
	next := start(t, cmd)
	if s := next(); s.Connected != a.outer {
		t.Fatalf("%+v", s)
	}
	b.says("/one")
	if n := a.site.Load(); n != 0 {
		t.Errorf("%d requests left while nobody had answered", n)
	}
	b.shot("inbox-sdk")
	b.click("Allow once")
	if s := next(); s.Exit != 0 || s.Out != "the content of /one" || s.Thrown != "" {
		t.Errorf("after a yes: %+v", s)
	}
	b.says("/two")
	b.click("Deny")
	s := next()
	if s.Exit == 0 || s.Thrown != "CommandExitError" || strings.Contains(s.Out, "content") {
		t.Errorf("after a no: %+v", s)
	}
	if !strings.Contains(s.Out+s.Err, "books.example.com") || !strings.Contains(s.Out+s.Err, "said no") {
		t.Errorf("the program inside does not see why: %+v", s)
	}
	if n := a.site.Load(); n != 1 {
		t.Errorf("the site saw %d requests, of which one was allowed", n)
	}
	b.says("Nobody waits")
}

// insideWaits has the SDK in a sandbox. It works in another sandbox, if a person lets it.
func (a *asked) insideWaits(t *testing.T, b *browser) {
	// One file with the SDK in it, as agents' programs are packed: 1600 files take a while to bring in.
	program := filepath.Join(t.TempDir(), "asking.mjs")
	pack := exec.Command("../../console/node_modules/.bin/esbuild", sdkDir+"/asking.mjs", "--bundle", "--platform=node", "--format=esm", "--outfile="+program,
		`--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);`)
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cli(t, a.Daemon, "cp", program, a.outer+":/home/user/asking.mjs")
	start := func() func() said {
		cmd := a.CLI("exec", "--env", "E2B_API_URL=http://carrel.example.com", "--env", "E2B_SANDBOX_URL=http://carrel.example.com",
			"--env", "E2B_API_KEY="+a.Key, a.outer, "--", "node", "/home/user/asking.mjs", a.inner, "echo hello from the other one")
		return start(t, cmd)
	}
	next := start()
	b.says("carrel.example.com")
	b.click("Deny")
	if s := next(); s.Thrown == "" || !strings.Contains(s.Message, "said no") {
		t.Errorf("after a no, the SDK says %+v", s)
	}
	b.hides("carrel.example.com")
	next = start()
	b.says("carrel.example.com")
	b.click("For an hour")
	if s := next(); s.Connected != a.inner {
		t.Errorf("after a yes: %+v", s)
	}
	if s := next(); s.Out != "hello from the other one\n" {
		t.Errorf("after a yes: %+v", s)
	}
}

// write makes a file that only this user reads.
func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
