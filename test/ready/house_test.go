package ready

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// told is the report of the template's server.
type told struct {
	Args                                        []string
	PID, Asked                                  int
	Born, Drawn, UUID, Hostname, ID, Generation string
	Now                                         time.Time
	Env                                         []string
}

// house is a daemon with a client.
type house struct {
	*daemontest.Daemon
	svc carrel.Service
}

func open(t *testing.T, extra ...string) *house {
	t.Helper()
	h := &house{Daemon: daemontest.Start(t, extra...)}
	h.connect(t)
	return h
}

// connect makes a client for the daemon that runs now.
func (h *house) connect(t *testing.T) {
	t.Helper()
	svc, err := client.New(h.URL, h.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	h.svc = svc
}

// root makes the directory of a small template: the server, and a shell with the files that it
// needs from this machine.
func root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin", "server"), "./testdata/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, program := range []string{"/bin/sh", "/bin/cat", "/bin/sleep"} {
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", program, err)
		}
		files := []string{program}
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				files = append(files, word)
			}
		}
		for _, name := range files {
			raw, err := os.ReadFile(name)
			if err == nil {
				err = os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), raw, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", "etc/group": "root:x:0:\nuser:x:1000:\n", "home/user/.profile": "", "tmp/.keep": ""} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// cli runs the command line. It must succeed.
func (h *house) cli(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.CLI(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("carrel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// state returns the state of a template's own start.
func (h *house) state(t *testing.T, name string) string {
	t.Helper()
	tpl, err := h.svc.GetTemplate(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return tpl.Golden
}

// ripe asks for a template's own start and waits until its snapshot exists.
func (h *house) ripe(t *testing.T, name string) {
	t.Helper()
	daemontest.Eventually(t, 4*time.Minute, "the template's own start is kept", func() bool {
		switch st := h.state(t, name); st {
		case "ready":
			return true
		case "", "making":
		default:
			t.Fatal(st)
		}
		return false
	})
}

func (h *house) create(t *testing.T, opts carrel.CreateOptions) carrel.Sandbox {
	t.Helper()
	opts.Tier, opts.Timeout = carrel.GVisor, time.Hour
	sb, err := h.svc.Create(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// kill ends sandboxes.
func (h *house) kill(t *testing.T, list ...carrel.Sandbox) {
	t.Helper()
	for _, sb := range list {
		if err := h.svc.Kill(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
	}
}

// started returns how a sandbox got its first process.
func (h *house) started(t *testing.T, id carrel.ID) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range h.svc.Events(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.ID == id && e.Type == "sandbox.created" {
			return e.Fields["start"]
		}
	}
	t.Fatalf("no event tells how %s was started", id)
	return ""
}

// get asks a sandbox's server once.
func (h *house) get(t *testing.T, id carrel.ID) (told, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("E2b-Sandbox-Id", string(id))
	req.Header.Set("E2b-Sandbox-Port", "8000")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return told{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return told{}, err
	}
	var out told
	if resp.StatusCode != http.StatusOK {
		return out, &carrel.Error{Op: "ask the server", Kind: carrel.Unavailable, Err: &statusError{resp.Status, string(raw)}}
	}
	return out, json.Unmarshal(raw, &out)
}

type statusError struct{ status, body string }

// Error implements error.
func (e *statusError) Error() string { return e.status + ": " + e.body }

// at asks a sandbox's server, which must be running.
func (h *house) at(t *testing.T, sb carrel.Sandbox) told {
	t.Helper()
	x, err := h.get(t, sb.ID)
	if err != nil {
		t.Fatalf("right after its creation: %v", err)
	}
	return x
}

// run runs a line in a sandbox and returns its output.
func (h *house) run(t *testing.T, sb carrel.Sandbox, line string) string {
	t.Helper()
	c, err := h.svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", line}})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %v, %+v", line, err, res)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// kept counts the ready kinds of a template in the pool.
func (h *house) kept(t *testing.T, name string) (golden, other int) {
	t.Helper()
	st, err := h.svc.(carrel.Pools).Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range st.Kinds {
		switch {
		case k.Template != name:
		case k.Golden:
			golden += k.Ready
		default:
			other += k.Ready
		}
	}
	return golden, other
}

// siblings compares sandboxes that go on from one moment. The server's state from before that
// moment must be the same in all; their identities must differ.
func siblings(t *testing.T, since time.Time, boxes []carrel.Sandbox, all []told) {
	t.Helper()
	var own []string
	for i, x := range all {
		if x.Born != all[0].Born || x.PID != all[0].PID || x.Asked != all[0].Asked {
			t.Errorf("%+v does not go on from where %+v does", x, all[0])
		}
		if id := string(boxes[i].ID); x.Hostname != id || x.ID != id {
			t.Errorf("%s takes itself for %s, on %s", id, x.ID, x.Hostname)
		}
		if x.Now.Before(since) || x.Now.After(time.Now()) {
			t.Errorf("its clock says %v, between %v and %v", x.Now, since, time.Now())
		}
		if x.Generation == "" {
			t.Error("it was not told that it is a copy")
		}
		for _, v := range x.Env {
			if strings.Contains(v, "of one") {
				t.Errorf("the server, which was started before, has a creation's secret: %s", v)
			}
		}
		own = append(own, boxes[i].AccessToken, x.Drawn, x.UUID, x.Hostname)
	}
	slices.Sort(own)
	if same := slices.Compact(slices.Clone(own)); len(same) != len(own) || slices.Contains(own, "") {
		t.Errorf("tokens, random numbers, UUIDs and names are not all different: %q", own)
	}
}
