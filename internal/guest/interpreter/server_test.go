package interpreter_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter"
	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// answerTime bounds every request of a test.
const answerTime = 60 * time.Second

// line is a line of an answer.
type line struct {
	Type, Text, Name, Value string
	Count                   int  `json:"execution_count"`
	Main                    bool `json:"is_main_result"`
}

// fixture is a server under test.
type fixture struct {
	*testing.T
	url string
}

// serve starts a server whose cells are of bash, which every machine has.
func serve(t *testing.T, cfg interpreter.Config) fixture {
	t.Helper()
	_, err := exec.LookPath("bash")
	testenv.Need(t, "bash", err)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s := interpreter.New(cfg)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); s.Close() })
	return fixture{t, srv.URL}
}

// ask makes a request and returns its status and body.
func (f fixture) ask(method, path, body string, header ...string) (int, string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), answerTime)
	defer cancel()
	resp := f.begin(ctx, method, path, body, header...)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// begin makes a request and returns its answer, whose body the caller closes.
func (f fixture) begin(ctx context.Context, method, path, body string, header ...string) *http.Response {
	f.Helper()
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.Fatal(err)
	}
	return resp
}

// run runs a cell and returns its lines. The last one must be the end.
func (f fixture) run(body map[string]any) []line {
	f.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		f.Fatal(err)
	}
	status, text := f.ask("POST", "/execute", string(raw))
	if status != http.StatusOK {
		f.Fatalf("%s: %d %s", raw, status, text)
	}
	var out []line
	for s := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			f.Fatalf("%q: %v", s, err)
		}
		if l.Type != "keepalive" {
			out = append(out, l)
		}
	}
	if len(out) == 0 || out[len(out)-1].Type != "end_of_execution" {
		f.Fatalf("%s: no end in %q", raw, text)
	}
	return out[:len(out)-1]
}

// bash runs a cell of bash, in a context if one is named, and returns what it printed.
func (f fixture) bash(code, id string) string {
	f.Helper()
	body := map[string]any{"code": code, "language": "bash"}
	if id != "" {
		body = map[string]any{"code": code, "context_id": id}
	}
	var out strings.Builder
	for _, l := range f.run(body) {
		if l.Type == "stdout" {
			out.WriteString(l.Text)
		}
	}
	return out.String()
}

// create makes a context and returns its ID.
func (f fixture) create() string {
	f.Helper()
	status, body := f.ask("POST", "/contexts", `{"language": "bash"}`)
	var c struct{ ID string }
	if err := json.Unmarshal([]byte(body), &c); status != http.StatusOK || err != nil || c.ID == "" {
		f.Fatalf("%d %s", status, body)
	}
	return c.ID
}

func TestExecute(t *testing.T) {
	f := serve(t, interpreter.Config{})
	got := f.run(map[string]any{"code": "echo out; echo err >&2; false", "language": "bash"})
	kinds := map[string]line{}
	for _, l := range got {
		kinds[l.Type] = l
	}
	if kinds["number_of_executions"].Count != 1 || kinds["stdout"].Text != "out\n" ||
		kinds["stderr"].Text != "err\n" || kinds["error"].Value != "1" {
		t.Errorf("%+v", got)
	}
}

func TestRefusals(t *testing.T) {
	f := serve(t, interpreter.Config{})
	id := f.create()
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		text                     string
		header                   []string
	}{
		{"no JSON", "POST", "/execute", "{", 400, "not JSON", nil},
		{"no code", "POST", "/execute", "{}", 400, "code: is missing", nil},
		{"code of a wrong type", "POST", "/execute", `{"code": 1}`, 400, "code", nil},
		{"both", "POST", "/execute", `{"code": "1", "context_id": "` + id + `", "language": "bash"}`, 400,
			"only one", nil},
		{"bad variable", "POST", "/execute", `{"code": "1", "env_vars": {"A=B": "c"}}`, 400, "env_vars", nil},
		{"unknown language", "POST", "/execute", `{"code": "1", "language": "cobol"}`, 400, "cobol", nil},
		{"path for a language", "POST", "/contexts", `{"language": "../../etc"}`, 400, "etc", nil},
		{"no such directory", "POST", "/contexts", `{"language": "bash", "cwd": "/dev/null/x"}`,
			400, "/dev/null/x", nil},
		{"unknown context", "POST", "/execute", `{"code": "1", "context_id": "x"}`, 404, "no such context",
			nil},
		{"remove unknown", "DELETE", "/contexts/x", "", 404, "no such context", nil},
		{"restart unknown", "POST", "/contexts/x/restart", "", 404, "no such context", nil},
		{"too long", "POST", "/execute", `{"code": "` + strings.Repeat("x", 17<<20) + `"}`, 413, "16 MiB",
			nil},
		{"form of a page", "POST", "/execute", `{"code": "1"}`, 415, "application/json",
			[]string{"Content-Type", "text/plain"}},
		{"restart by a page", "POST", "/contexts/" + id + "/restart", "", 415, "application/json",
			[]string{"Content-Type", "text/plain", "Origin", "https://evil.example.com"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := f.ask(c.method, c.path, c.body, c.header...)
			if status != c.status || !strings.Contains(body, c.text) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

func TestContexts(t *testing.T) {
	f := serve(t, interpreter.Config{})
	a, b := f.create(), f.create()
	f.bash("x=1", a)
	f.bash("x=2", b)
	if got := f.bash("echo $x", a) + f.bash("echo $x", b); got != "1\n2\n" {
		t.Errorf("contexts share state: %q", got)
	}
	if status, body := f.ask("POST", "/contexts/"+a+"/restart", ""); status != http.StatusOK {
		t.Errorf("restart: %d %s", status, body)
	}
	if got := f.bash("echo :$x", a); got != ":\n" {
		t.Errorf("state after a restart: %q", got)
	}
	if status, body := f.ask("DELETE", "/contexts/"+a, ""); status != http.StatusNoContent {
		t.Errorf("remove: %d %s", status, body)
	}
	if _, body := f.ask("GET", "/contexts", ""); strings.Contains(body, a) || !strings.Contains(body, b) {
		t.Errorf("list: %s", body)
	}
}

// TestDefaultContexts lists contexts before any cell, and makes one in a directory that is missing.
func TestDefaultContexts(t *testing.T) {
	f := serve(t, interpreter.Config{})
	for _, language := range []string{"python", "javascript"} {
		if _, body := f.ask("GET", "/contexts", ""); !strings.Contains(body, `"`+language+`"`) {
			t.Errorf("no default context of %s in %s", language, body)
		}
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	if status, body := f.ask("POST", "/contexts", `{"language": "bash", "cwd": "`+dir+`"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if i, err := os.Stat(dir); err != nil || !i.IsDir() {
		t.Errorf("%v, %v", i, err)
	}
}

// TestLeave has a client leave its cell, and another wait for its turn behind it.
func TestLeave(t *testing.T) {
	f := serve(t, interpreter.Config{})
	ctx, leave := context.WithTimeout(t.Context(), answerTime)
	resp := f.begin(ctx, "POST", "/execute", `{"code": "x=5; echo on; sleep 1000000", "language": "bash"}`)
	in := bufio.NewScanner(resp.Body)
	for in.Scan() && !strings.Contains(in.Text(), "on") {
	}
	leave()
	_ = resp.Body.Close()
	if got := f.bash("echo $x", ""); got != "5\n" {
		t.Errorf("after it: %q", got)
	}
}

// TestStubborn has a cell ignore every interrupt: its kernel is killed, and the next cell runs.
func TestStubborn(t *testing.T) {
	f := serve(t, interpreter.Config{})
	ctx, leave := context.WithTimeout(t.Context(), answerTime)
	resp := f.begin(ctx, "POST", "/execute",
		`{"code": "trap '' INT; echo on; while :; do sleep 1000; done", "language": "bash"}`)
	in := bufio.NewScanner(resp.Body)
	for in.Scan() && !strings.Contains(in.Text(), "on") {
	}
	leave()
	_ = resp.Body.Close()
	if got := f.bash("echo again", ""); got != "again\n" {
		t.Errorf("after it: %q", got)
	}
}

// TestSilentRunner has a kernel close what it should answer on.
func TestSilentRunner(t *testing.T) {
	f := serve(t, interpreter.Config{})
	got := f.run(map[string]any{"code": "exec sleep 1000000", "language": "bash"})
	if l := got[len(got)-1]; l.Name != "KernelDied" || !strings.Contains(l.Value, "closed its connection") {
		t.Errorf("%+v", got)
	}
}

func TestDeath(t *testing.T) {
	f := serve(t, interpreter.Config{})
	got := f.run(map[string]any{"code": "kill -9 $$", "language": "bash"})
	if l := got[len(got)-1]; l.Name != "KernelDied" || !strings.Contains(l.Value, "signal 9") {
		t.Errorf("%+v", got)
	}
	if got := f.bash("echo again", ""); got != "again\n" {
		t.Errorf("after it: %q", got)
	}
}

func TestKeepalive(t *testing.T) {
	testenv.Long(t, "waits for a line that comes after five seconds")
	f := serve(t, interpreter.Config{})
	_, body := f.ask("POST", "/execute", `{"code": "sleep 6", "language": "bash"}`)
	if !strings.Contains(body, `{"type":"keepalive"}`) {
		t.Errorf("%s", body)
	}
}

func TestToken(t *testing.T) {
	f := serve(t, interpreter.Config{
		Environ: func(_ context.Context, token string) (map[string]string, error) {
			switch token {
			case "right":
				return map[string]string{"SECRET": "s"}, nil
			case "broken":
				return nil, errors.New("the guest is away")
			}
			return nil, interpreter.ErrDenied
		}})
	body := `{"code": "echo $SECRET", "language": "bash"}`
	for token, want := range map[string]int{"": 401, "wrong": 401, "broken": 500, "right": 200} {
		status, text := f.ask("POST", "/execute", body, "X-Access-Token", token)
		if status != want || strings.Contains(text, `"s\n"`) != (want == 200) {
			t.Errorf("token %q: %d %s", token, status, text)
		}
	}
}

// TestPage checks what a browser is told before it sends a page's request.
func TestPage(t *testing.T) {
	f := serve(t, interpreter.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	resp := f.begin(ctx, "OPTIONS", "/execute", "", "Access-Control-Request-Method", "POST", "Origin",
		"https://page.example.com")
	defer resp.Body.Close()
	if h := resp.Header; resp.StatusCode != http.StatusNoContent ||
		h.Get("Access-Control-Allow-Credentials") != "" ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "X-Access-Token") {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
}

// TestWarm checks when the server is ready.
func TestWarm(t *testing.T) {
	s := interpreter.New(interpreter.Config{Dir: t.TempDir()})
	t.Cleanup(s.Close)
	warmed := s.Warm(t.Context(), "bash")
	if err := testenv.Within(t.Context(), answerTime, func() error {
		select {
		case err := <-warmed:
			return err
		default:
			return errors.New("it starts")
		}
	}); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	if w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	broken := interpreter.New(interpreter.Config{Dir: t.TempDir()})
	if err := <-broken.Warm(t.Context(), "cobol"); err == nil {
		t.Error("a language that is not there became warm")
	}
	w = httptest.NewRecorder()
	broken.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	if w.Code != http.StatusServiceUnavailable || !bytes.Contains(w.Body.Bytes(), []byte("start")) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// slowFinder fails to start a kernel once, as on a machine that is too busy.
type slowFinder struct {
	kernel.Finder
	failed atomic.Bool
}

func (f *slowFinder) Start(ctx context.Context, o kernel.Options) (kernel.Kernel, error) {
	if !f.failed.Swap(true) {
		return nil, context.DeadlineExceeded
	}
	return f.Finder.Start(ctx, o)
}

// TestWarmAgain has the first start of a kernel fail.
func TestWarmAgain(t *testing.T) {
	f := &slowFinder{}
	s := interpreter.New(interpreter.Config{Dir: t.TempDir(), Finder: f})
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	if err := <-s.Warm(ctx, "bash"); err != nil || !f.failed.Load() {
		t.Errorf("error %v; a start failed: %v", err, f.failed.Load())
	}
}
