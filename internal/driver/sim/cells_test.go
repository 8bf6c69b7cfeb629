package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/tools/script/pywasm"
)

// cellLine is a line of an answer.
type cellLine struct {
	Type, Text, Name, Value string
	Main                    bool `json:"is_main_result"`
	Count                   int  `json:"execution_count"`
}

// interpreterOf returns a function that asks the code interpreter of a sandbox.
func interpreterOf(t *testing.T, in driver.Instance) func(method, path, body string, header ...string) (int, string) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return in.Dial(ctx, carrel.InterpreterPort)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://sandbox"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
}

// runCell runs a cell and returns its output in one text: each line's type and what it says.
func runCell(t *testing.T, ask func(method, path, body string, header ...string) (int, string), body map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	status, text := ask("POST", "/execute", string(raw))
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", raw, status, text)
	}
	var out strings.Builder
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		var l cellLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		switch l.Type {
		case "stdout", "stderr":
			fmt.Fprintf(&out, "%s:%s", l.Type[3:], l.Text)
		case "result":
			fmt.Fprintf(&out, "=%s\n", l.Text)
		case "error":
			fmt.Fprintf(&out, "!%s: %s\n", l.Name, l.Value)
		}
	}
	return out.String()
}

// TestCells runs cells in a simulated sandbox: state, streams, results, errors, contexts, variables, and
// what is not there.
func TestCells(t *testing.T) {
	in, c := box(t, small)
	ask := interpreterOf(t, in)
	js := func(code string) string {
		return runCell(t, ask, map[string]any{"code": code, "language": "js"})
	}
	for _, k := range []struct{ code, want string }{
		{"const x = 1; console.log('hi'); x + 1", "out:hi\n=2\n"},
		{"const y = await Promise.resolve(20);\ny + x", "=21\n"},
		{"y + x; nope()", "!ReferenceError: nope is not defined\n"},
		{"console.error('e'); [1, {a: 2}]", "err:e\n=[ 1, { a: 2 } ]\n"},
		{"require('child_process').execSync('echo below', {stdio: 'inherit'}); 1", "out:below\n=1\n"},
		{"process.cwd()", "=/home/user\n"},
		{"syntax error here", "!SyntaxError: "},
	} {
		if got := js(k.code); !strings.HasPrefix(got, k.want) {
			t.Errorf("%s: %q, want %q", k.code, got, k.want)
		}
	}
	env := map[string]any{"code": "process.env.A ?? 'none'", "language": "js"}
	if got := runCell(t, ask, env); got != "=none\n" {
		t.Errorf("a variable before: %q", got)
	}
	env["env_vars"] = map[string]string{"A": "b"}
	if got := runCell(t, ask, env); got != "=b\n" {
		t.Errorf("a cell's variable: %q", got)
	}
	testContexts(t, ask)
	// The kernel's files are the cells' user's own, and the guest sees its process.
	if out := sh(t, c, "ls -d /tmp/.carrel-kernel-* | wc -l"); strings.TrimSpace(out) != "1" {
		t.Errorf("%s kernels", out)
	}
	// A cell that ends its process loses the state, and the next one runs.
	if got := js("process.exit(3)"); !strings.HasPrefix(got, "!KernelDied: ") || !strings.Contains(got, "status 3") {
		t.Errorf("a dead kernel: %q", got)
	}
	if got := js("typeof x"); got != "=undefined\n" {
		t.Errorf("after it: %q", got)
	}
	status, text := ask("POST", "/execute", `{"code": "1", "language": "r"}`)
	if status != 400 || !strings.Contains(text, "python and javascript") {
		t.Errorf("another language: %d %s", status, text)
	}
}

func testContexts(t *testing.T, ask func(method, path, body string, header ...string) (int, string)) {
	t.Helper()
	status, text := ask("POST", "/contexts", `{"language": "javascript", "cwd": "/tmp/own"}`)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(text), &made); status != 200 || err != nil {
		t.Fatalf("%d %s", status, text)
	}
	own := map[string]any{"code": "typeof x + process.cwd()", "context_id": made.ID}
	if got := runCell(t, ask, own); got != "=undefined/tmp/own\n" {
		t.Errorf("another context: %q", got)
	}
	if status, text = ask("GET", "/contexts", ""); status != 200 || !strings.Contains(text, made.ID) ||
		!strings.Contains(text, `"python"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text = ask("DELETE", "/contexts/"+made.ID, ""); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if status, text = ask("POST", "/contexts", `{"language": "js", "cwd": "/etc/passwd/x"}`); status != 400 {
		t.Errorf("%d %s", status, text)
	}
}

// TestPythonCells does the same with Python, which takes seconds to compile.
func TestPythonCells(t *testing.T) {
	testenv.Long(t, "compiles Python")
	if _, err := pywasm.Code(); err != nil {
		testenv.Need(t, "pywasm", err)
	}
	in, _ := box(t, small)
	ask := interpreterOf(t, in)
	for _, k := range []struct{ code, want string }{
		{"x = 1; print('hi'); x + 1", "out:hi\n=2\n"},
		{"import asyncio\nawait asyncio.sleep(0.01)\nx", "=1\n"},
		{"1/0", "!ZeroDivisionError: division by zero\n"},
		{"import sys; print('e', file=sys.stderr)", "err:e\n"},
		{"import subprocess; subprocess.run(['echo', 'below']); None", "out:below\n"},
		{"import os; os.getcwd()", "=/home/user\n"},
		{"class P:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'p'\nP()", "=p\n"},
		{"display(5)", "=5\n"},
		{"input()", "!EOFError: "},
	} {
		if got := runCell(t, ask, map[string]any{"code": k.code}); !strings.HasPrefix(got, k.want) {
			t.Errorf("%s: %q, want %q", k.code, got, k.want)
		}
	}
}

// TestCellLeft has a client leave a cell that would never end. The kernel ends, and the sandbox goes on.
func TestCellLeft(t *testing.T) {
	in, _ := box(t, small)
	ask := interpreterOf(t, in)
	runCell(t, ask, map[string]any{"code": "1", "language": "js"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return in.Dial(ctx, carrel.InterpreterPort)
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://sandbox/execute", strings.NewReader(`{"code": "while (true);", "language": "js"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if resp, err := (&http.Client{Transport: tr}).Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if got := runCell(t, ask, map[string]any{"code": "6 * 7", "language": "js"}); got != "=42\n" {
		t.Errorf("after it: %q", got)
	}
}
