package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
)

// elsewhere is the real Linux, except that the sandbox's own files are in a directory of the test.
type elsewhere struct {
	*oshost.System
	dir string
}

func (e *elsewhere) at(name string) string {
	if strings.HasPrefix(name, "/run") || strings.HasPrefix(name, "/etc/carrel") {
		return filepath.Join(e.dir, name)
	}
	return name
}

func (e *elsewhere) Mkdir(name string, _ agent.User) error { return os.MkdirAll(e.at(name), 0o755) }
func (e *elsewhere) Create(name string, u agent.User) (agent.File, error) {
	return e.System.Create(e.at(name), u)
}
func (e *elsewhere) Rename(from, to string) error { return e.System.Rename(e.at(from), e.at(to)) }
func (e *elsewhere) ReadDir(name string) ([]agent.Entry, error) {
	return e.System.ReadDir(e.at(name))
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newRestorable returns a guest that may write a sandbox's own files.
func newRestorable(t testing.TB) (g *guestUnderTest, dir string, log *syncBuffer) {
	t.Helper()
	dir, log = t.TempDir(), &syncBuffer{}
	g = newGuest(t, trustAll, func(c *agent.Config) {
		c.System = &elsewhere{c.System.(*oshost.System), dir}
		c.Announce = true
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	return g, dir, log
}

// init sends an /init from a connection of its own, as a daemon does after a restore.
func (g *guestUnderTest) init(t testing.TB, req guest.InitRequest) {
	t.Helper()
	body, _ := json.Marshal(req)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Post(g.URL+"/init", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 204 {
		t.Fatal(resp.Status, string(text))
	}
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(data))
}

// TestRestored shows that a restore ends open requests and replaces the identity, while processes
// run on.
func TestRestored(t *testing.T) {
	g, dir, _ := newRestorable(t)
	now := time.Now()
	g.init(t, guest.InitRequest{AccessToken: "old", SandboxID: "iold", TemplateID: "base", Timestamp: now.Add(time.Hour), EnvVars: map[string]string{"A": "old"}})
	g.ask(t, "GET", "/envs", "", "X-Access-Token", "old") // waits until all is written
	if _, err := os.Stat(filepath.Join(dir, guest.GenerationFile)); err == nil {
		t.Error("a sandbox that was never restored has a generation")
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.Dir(guest.GenerationFile))); err != nil {
		t.Errorf("nobody can watch for the first restore: %v", err)
	}
	client := func(token string) *guestUnderTest {
		c := &http.Client{Transport: withToken{g.Client().Transport, token}}
		return &guestUnderTest{g.Server, processconnect.NewProcessClient(c, g.URL, connect.WithProtoJSON())}
	}
	old := client("old")
	s := old.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh",
		Args: []string{"-c", "echo first; while read line; do echo got-$line; done"}}})
	s.until(t, "first")
	idle, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()

	// This machine's clock is behind the clock of the machine before. The request must count
	// anyway.
	restored := guest.InitRequest{AccessToken: "new", SandboxID: "inew", Timestamp: now, EnvVars: map[string]string{"A": "new"}, Restored: true, Generation: 3}
	g.init(t, restored)
	if code, _, _ := g.ask(t, "GET", "/envs", "", "X-Access-Token", "old"); code != 401 {
		t.Errorf("the old token still works: %d", code)
	}
	for s.Receive() {
	}
	if s.Err() == nil {
		t.Error("the old stream ended as if all were well")
	}
	_ = idle.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an old connection is open: %v", err)
	}
	for name, want := range map[string]string{guest.GenerationFile: "3", "/run/e2b/.E2B_SANDBOX_ID": "inew", "/run/e2b/.E2B_TEMPLATE_ID": "base"} {
		if want == "base" {
			continue // the first /init named it, and no other did
		}
		g.ask(t, "GET", "/envs", "", "X-Access-Token", "new") // waits until all is written
		if got := read(t, dir, name); got != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	at, err := time.Parse(time.RFC3339Nano, read(t, dir, guest.RestoredFile))
	if err != nil || time.Since(at).Abs() > time.Minute {
		t.Error(at, err)
	}
	fresh := client("new")
	if _, err := fresh.client.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(s.pid),
		Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("after\n")}}})); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.client.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(s.pid)})); err != nil {
		t.Fatal(err)
	}
	e, err := fresh.connectTo(t, byPID(s.pid))
	if err != nil || !strings.Contains(e.stdout.String(), "got-after") || e.end == nil {
		t.Errorf("%v: %q", err, e.stdout.String())
	}
	if e := fresh.mustRun(t, sh("echo $A $E2B_SANDBOX_ID")); e.stdout.String() != "new inew\n" {
		t.Errorf("environment %q", e.stdout.String())
	}
	// A repeat is an ordinary /init: it ends no request and is no new restore.
	other := fresh.start(t, sh("sleep 600"))
	restored.Timestamp = now.Add(time.Second)
	g.init(t, restored)
	if fresh.mustRun(t, sh("true")); read(t, dir, guest.RestoredFile) != at.Format(time.RFC3339Nano) {
		t.Error("a repeat counts as a restore")
	}
	if _, err := fresh.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(other.pid), Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	if e := other.finish(t); e.end == nil {
		t.Error("a repeat cut a stream")
	}
}

// withToken adds an access token.
type withToken struct {
	http.RoundTripper
	token string
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("X-Access-Token", w.token)
	return w.RoundTripper.RoundTrip(r)
}

// TestFilesOnlyRestore shows that a guest that boots from a snapshot's files knows its generation.
func TestFilesOnlyRestore(t *testing.T) {
	g, dir, _ := newRestorable(t)
	g.init(t, guest.InitRequest{SandboxID: "inew", Timestamp: time.Now(), Generation: 2})
	g.mustRun(t, sh("true"))
	if got := read(t, dir, guest.GenerationFile); got != "2" {
		t.Error(got)
	}
}

// TestHooks shows that hooks run in order, before anything else is served, and without delaying the
// answer to /init. A hook that fails is only a warning.
func TestHooks(t *testing.T) {
	g, dir, log := newRestorable(t)
	hooks, out := filepath.Join(dir, guest.HookDir), filepath.Join(dir, "out")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(dir, "gate")
	for name, text := range map[string]string{
		"20-second": "echo second >> " + out,
		"10-first":  "while ! test -e " + gate + "; do sleep 0.01; done; echo first $CARREL_GENERATION $CARREL_SANDBOX_ID >> " + out,
		"30-fails":  "echo alas; exit 3",
		"40-fourth": "echo fourth >> " + out + "; sleep 600 & exit 0",
	} {
		if err := os.WriteFile(filepath.Join(hooks, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(hooks, "15-not-executable"), []byte("#!/bin/sh\necho no >> "+out), 0o644); err != nil {
		t.Fatal(err)
	}
	g.init(t, guest.InitRequest{SandboxID: "inew", Timestamp: time.Now(), Restored: true, Generation: 4}) // answers although a hook waits
	ran := make(chan string, 1)
	go func() {
		e, err := g.run(context.Background(), sh("cat "+out))
		if err != nil {
			ran <- err.Error()
			return
		}
		ran <- e.stdout.String()
	}()
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 1 && a.Processes == 0 }) // not held up itself
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-ran; got != "first 4 inew\nsecond\nfourth\n" {
		t.Errorf("the first command saw %q", got)
	}
	if l := log.String(); !strings.Contains(l, "30-fails") || !strings.Contains(l, "alas") || strings.Contains(l, "10-first") {
		t.Errorf("log: %s", l)
	}
}

// TestCheckpointBefore shows that commands that match a pattern start after a checkpoint, or not at
// all.
func TestCheckpointBefore(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	var answer error
	hold := make(chan struct{})
	close(hold)
	g := newGuest(t, trustAll, func(c *agent.Config) {
		c.Checkpoint = func(ctx context.Context, req guest.CheckpointRequest) (guest.CheckpointReply, error) {
			mu.Lock()
			asked = append(asked, req.Command)
			err, wait := answer, hold
			mu.Unlock()
			select {
			case <-wait:
			case <-ctx.Done():
				err = ctx.Err()
			}
			return guest.CheckpointReply{SnapshotID: "s1"}, err
		}
	})
	for body, want := range map[string]string{
		`{"checkpointBefore":["ok","(bad"]}`:                           `checkpointBefore[1]: \"(bad\"`,
		`{"checkpointBefore":["` + strings.Repeat("x", 2000) + `"]}`:   "checkpointBefore[0]: longer",
		`{"checkpointBefore":[` + strings.Repeat(`"x",`, 64) + `"x"]}`: "checkpointBefore: 65",
	} {
		if code, _, text := g.ask(t, "POST", "/init", body); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%.40s: %d %s", body, code, text)
		}
	}
	g.init(t, guest.InitRequest{CheckpointBefore: []string{`^rm\b`, `echo danger$`}})
	dir := t.TempDir()
	line := func(s string) *process.StartRequest {
		return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", s}, Envs: map[string]string{"HOME": dir}}}
	}
	g.mustRun(t, line("rm -f nothing"))
	g.mustRun(t, line("true; rm -f nothing"))
	g.mustRun(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "echo", Args: []string{"danger"}}})
	g.mustRun(t, sh("echo safe"))
	g.mustRun(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "sh", Args: []string{"-ec", "rm -f other"}}})
	g.mustRun(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "sh", Args: []string{"-e", "/dev/null", "-c", "rm"}}})
	if got := strings.Join(asked, "|"); got != "rm -f nothing|echo danger|rm -f other" {
		t.Errorf("asked for %q", got)
	}
	mu.Lock()
	answer = errors.New("no room")
	mu.Unlock()
	witness := filepath.Join(dir, "witness")
	_, err := g.run(t.Context(), line("rm -f nothing; touch "+witness))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "checkpoint before the command failed: no room") {
		t.Error(err)
	}
	// If a copy is restored while it waits, the command does not start there, whatever the old host
	// would have answered.
	mu.Lock()
	answer, hold = nil, make(chan struct{})
	mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		_, err := g.run(context.Background(), line("rm -f nothing; touch "+witness))
		ended <- err
	}()
	g.activity(t, func(a guest.Activity) bool { // the host is being asked
		mu.Lock()
		defer mu.Unlock()
		return a.Streams == 1 && len(asked) == 5
	})
	g.init(t, guest.InitRequest{SandboxID: "icopy", Restored: true, Generation: 1})
	if err := <-ended; err == nil {
		t.Error("the command ran in the copy")
	}
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 0 })
	mu.Lock()
	close(hold)
	mu.Unlock()
	if e := g.mustRun(t, sh("ls "+dir)); e.stdout.String() != "" {
		t.Errorf("the command started: %q", e.stdout.String())
	}
	g.init(t, guest.InitRequest{}) // without patterns
	g.mustRun(t, line("rm -f nothing"))
	if len(asked) != 5 {
		t.Errorf("asked %q", asked)
	}
}

// TestCheckpointWithoutHost shows the error of a guest that has no host to ask.
func TestCheckpointWithoutHost(t *testing.T) {
	g := newGuest(t, trustAll)
	g.init(t, guest.InitRequest{CheckpointBefore: []string{"."}})
	if _, err := g.run(t.Context(), sh("true")); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Error(err)
	}
}
