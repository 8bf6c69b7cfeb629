package pod_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pod"
	_ "github.com/carrel-dev/carrel/local" // the service
)

// service opens simulated sandboxes.
func service(t *testing.T) carrel.Service {
	t.Helper()
	svc, err := carrel.Open(t.Context(), carrel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// open opens a keeper and serves its protocol.
func open(t *testing.T, svc carrel.Service, dir string) (*pod.Keeper, string) {
	t.Helper()
	k, err := pod.Open(t.Context(), pod.Options{Service: svc, Dir: dir, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(k.Handler())
	t.Cleanup(server.Close)
	return k, server.URL
}

// call makes a request and returns the status and the body.
func call(t *testing.T, method, url, kind, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// execute runs a command line over the protocol.
func execute(t *testing.T, base, line string) (stdout, stderr string, code int) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		t.Fatal(err)
	}
	status, text := call(t, "POST", base+"/execute", "application/json", string(body))
	if status != http.StatusOK {
		t.Fatalf("execute %q: %d %s", line, status, text)
	}
	var out struct {
		Stdout, Stderr string
		ExitCode       int `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out.Stdout, out.Stderr, out.ExitCode
}

// form is an upload of one file.
func form(t *testing.T, field, name, text string) (kind, body string) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	part, err := w.CreateFormFile(field, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(part, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), out.String()
}

// TestProtocol uses each call as a client would, with and without a working directory of its own.
func TestProtocol(t *testing.T) {
	for _, dir := range []string{"", "/tmp"} {
		t.Run("dir="+dir, func(t *testing.T) {
			_, base := open(t, service(t), dir)
			if status, body := call(t, "GET", base+"/", "", ""); status != 200 || !strings.Contains(body, `"ok"`) {
				t.Errorf("probe: %d %s", status, body)
			}
			stdout, stderr, code := execute(t, base, `echo "a  b"; echo no >&2; exit 3`)
			if stdout != "a  b\n" || stderr != "no\n" || code != 3 {
				t.Errorf("got %q, %q, %d", stdout, stderr, code)
			}
			kind, body := form(t, "file", "deep/down/file.txt", "words\x00of\xffbytes")
			if status, text := call(t, "POST", base+"/upload", kind, body); status != 200 {
				t.Fatalf("upload: %d %s", status, text)
			}
			name := url.PathEscape("deep/down/file.txt")
			if status, text := call(t, "GET", base+"/download/"+name, "", ""); status != 200 || text != "words\x00of\xffbytes" {
				t.Errorf("download: %d %q", status, text)
			}
			if stdout, _, _ := execute(t, base, "cat deep/down/file.txt | wc -c"); strings.TrimSpace(stdout) != "14" {
				t.Errorf("the command does not find the upload: %q", stdout)
			}
			status, text := call(t, "GET", base+"/list/deep", "", "")
			var list []struct {
				Name, Type string
				Modified   float64 `json:"mod_time"`
			}
			if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 || len(list) != 1 ||
				list[0].Name != "down" || list[0].Type != "directory" || list[0].Modified < 1e9 {
				t.Errorf("list: %d %s %v", status, text, err)
			}
			for path, want := range map[string]string{name: `"exists":true`, "deep": `"exists":true`, ".": `"exists":true`,
				"nothing": `"exists":false`} {
				if status, text := call(t, "GET", base+"/exists/"+path, "", ""); status != 200 || !strings.Contains(text, want) {
					t.Errorf("exists %s: %d %s", path, status, text)
				}
			}
		})
	}
}

// TestHostile sends what no client should.
func TestHostile(t *testing.T) {
	_, base := open(t, service(t), "/tmp")
	outside, outsideBody := form(t, "file", "../../etc/passwd", "x")
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		"no JSON":           {"POST", "/execute", "application/json", "{", 400, `"field":"body"`},
		"no command":        {"POST", "/execute", "application/json", "{}", 400, `"field":"command"`},
		"wrong type":        {"POST", "/execute", "application/json", `{"command": 7}`, 400, `"field":"body"`},
		"long command":      {"POST", "/execute", "application/json", `{"command":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "command"},
		"wrong method":      {"PUT", "/execute", "application/json", `{}`, 405, ""},
		"write by download": {"POST", "/download/x", "", "", 405, "use GET"},
		"no form":           {"POST", "/upload", "text/plain", "x", 400, `"field":"body"`},
		"broken form":       {"POST", "/upload", "multipart/form-data; boundary=x", "--x\r\n", 400, `"field":"file"`},
		"up and out":        {"GET", "/download/..%2F..%2Fetc%2Fpasswd", "", "", 403, `"field":"path"`},
		"plainly out":       {"GET", "/list/a/%2e%2e/%2e%2e/etc", "", "", 403, `"field":"path"`},
		"upload outside":    {"POST", "/upload", outside, outsideBody, 403, `"field":"path"`},
		"zero byte":         {"GET", "/exists/a%00b", "", "", 400, `"field":"path"`},
		"no UTF-8":          {"GET", "/exists/%ff", "", "", 400, `"field":"path"`},
		"a directory":       {"GET", "/download/.", "", "", 404, "no regular file"},
		"missing":           {"GET", "/download/nothing", "", "", 404, ""},
		"list of a missing": {"GET", "/list/nothing", "", "", 404, ""},
		"no route":          {"GET", "/sandboxes", "", "", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := call(t, c.method, base+c.path, c.kind, c.body)
			if status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	// An absolute path begins at the working directory.
	if status, text := call(t, "GET", base+"/exists/"+url.PathEscape("/etc/passwd"), "", ""); status != 200 || !strings.Contains(text, "false") {
		t.Errorf("%d %s", status, text)
	}
	stdout, stderr, code := execute(t, base, "head -c 20000000 /dev/zero | tr '\\0' a")
	if len(stdout) > 8<<20 || code != 0 || !strings.Contains(stderr, "were dropped") {
		t.Errorf("a flood: %d bytes, %q, %d", len(stdout), stderr, code)
	}
}

// TestLife shows that a second keeper finds the sandbox of the first one, with its files, and that
// a sandbox that has ended is reported.
func TestLife(t *testing.T) {
	svc := service(t)
	first, base := open(t, svc, "")
	execute(t, base, "echo kept >file")
	id, resumed := first.Sandbox()
	if resumed {
		t.Error("a new sandbox is resumed")
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Errorf("close again: %v", err)
	}
	if status, text := call(t, "GET", base+"/", "", ""); status != 503 || !strings.Contains(text, "paused") {
		t.Errorf("the probe of a paused one: %d %s", status, text)
	}
	second, base := open(t, svc, "")
	if again, resumed := second.Sandbox(); again != id || !resumed {
		t.Errorf("%s, resumed %v; want %s", again, resumed, id)
	}
	if stdout, _, _ := execute(t, base, "cat file"); stdout != "kept\n" {
		t.Errorf("the file says %q", stdout)
	}
	if err := svc.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/live"} {
		if status, text := call(t, "GET", base+path, "", ""); status != 503 {
			t.Errorf("%s of a dead one: %d %s", path, status, text)
		}
	}
	if err := second.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("close a dead one: %v", err)
	}
}
