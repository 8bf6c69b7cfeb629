package net

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// install runs a command unless its result exists.
func install(t *testing.T, makes, name string, args ...string) {
	t.Helper()
	if _, err := os.Stat(makes); err == nil {
		return
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func randomKey(prefix string) string {
	b := make([]byte, 20)
	_, _ = rand.Read(b)
	return prefix + hex.EncodeToString(b)
}

// The names of the models' endpoints, and the text that the sandbox has in place of a key.
const (
	anthropicHost = "api.anthropic.example.com"
	openaiHost    = "api.openai.example.com"
	placeholder   = "sk-ant-placeholder-0123456789"
)

// models are the two endpoints, and the settings that a sandbox needs to use them.
type models struct {
	anthropic, openai *model
	policy            *carrel.Policy
	keys              []needle
}

// newModels puts the endpoints outside. keep must store their secrets.
func newModels(t *testing.T, o *outside) *models {
	m := &models{anthropic: newModel(randomKey("sk-ant-real-")), openai: newModel(randomKey("sk-real-"))}
	m.keys = []needle{newNeedle(m.anthropic.key), newNeedle(m.openai.key)}
	o.serve(t, anthropicHost, "203.0.113.20", m.anthropic)
	o.serve(t, openaiHost, "203.0.113.21", m.openai)
	m.policy = &carrel.Policy{
		Rules: []carrel.Rule{{Name: "models", Allow: []string{anthropicHost, openaiHost}, Ports: []string{"443"}}},
		Inject: []carrel.Injection{
			// Older SDKs of this vendor use one header, newer ones the other.
			{Host: anthropicHost, Headers: map[string]string{"X-Api-Key": "${secrets.anthropic}", "Authorization": "Bearer ${secrets.anthropic}"},
				Env: map[string]string{"ANTHROPIC_API_KEY": placeholder}},
			{Host: openaiHost, Bearer: "openai", Env: map[string]string{"OPENAI_API_KEY": ""}},
		},
	}
	return m
}

func (m *models) keep(t *testing.T, svc carrel.Service) {
	t.Helper()
	secrets, ok := svc.(carrel.Secrets)
	if !ok {
		t.Fatal("the client has no secrets")
	}
	for name, s := range map[string]carrel.NewSecret{
		"anthropic": {Value: m.anthropic.key, Hosts: []string{anthropicHost}},
		"openai":    {Value: m.openai.key, Hosts: []string{openaiHost}},
	} {
		s.Name = name
		if _, err := secrets.CreateSecret(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInjection has vendors' SDKs use models while the wire injects the keys. Then it searches for
// the keys in all places where they must not be.
func TestInjection(t *testing.T) {
	t.Parallel() // with TestClients: each has a daemon of its own and mostly waits
	o := newOutside(t)
	m := newModels(t, o)
	h := open(t, o)
	m.keep(t, h.svc)
	d := h.desk(t, m.policy)
	d.env = map[string]string{"ANTHROPIC_BASE_URL": "https://" + anthropicHost, "OPENAI_BASE_URL": "https://" + openaiHost + "/v1"}
	var seen strings.Builder // by anybody in the sandbox
	defer func() {
		for _, k := range m.keys {
			if k.inText(seen.String()) {
				t.Error("a program in the sandbox saw a key")
			}
		}
	}()
	t.Run("node", func(t *testing.T) {
		_, err := exec.LookPath("npm")
		testenv.Need(t, "node", err)
		install(t, "js/node_modules/@anthropic-ai/sdk", "npm", "ci", "--prefix", "js", "--silent")
		d.bring("js", "/home/user/js")
		out := d.must(t, "cd /home/user/js && node agent.mjs", "")
		seen.WriteString(out)
		checkAgent(t, out)
	})
	t.Run("python", func(t *testing.T) {
		testenv.Long(t, "its packages are megabytes; node has the same requests")
		_, err := exec.LookPath("/usr/bin/python3") // what the sandbox has, too
		testenv.Need(t, "python", err)
		install(t, "python/.site/anthropic", "/usr/bin/python3", "-m", "pip", "install", "--quiet", "--target", "python/.site", "-r", "python/requirements.txt")
		d.bring("python", "/home/user/py")
		out := d.must(t, "cd /home/user/py && PYTHONPATH=.site /usr/bin/python3 agent.py", "")
		seen.WriteString(out)
		checkAgent(t, out)
	})
	t.Run("a stream is not held back", func(t *testing.T) { seen.WriteString(d.checkStream(t, m.anthropic)) })
	t.Run("echoes", func(t *testing.T) {
		for _, path := range []string{"/echo", "/echo-slowly"} {
			for _, how := range []string{"--http1.1", "--http2", "--compressed"} {
				out := d.must(t, fmt.Sprintf("curl -sS -i %s https://%s%s", how, anthropicHost, path), "200")
				seen.WriteString(out)
			}
		}
	})
	t.Run("another host gets nothing", func(t *testing.T) {
		// The right server with other requests, and the wrong server.
		for _, script := range []string{
			"curl -sS -m 20 -H 'Host: " + openaiHost + "' https://" + anthropicHost + "/v1/messages",
			"curl -sS -m 20 --connect-to " + anthropicHost + ":443:denied.example.net:443 https://" + anthropicHost + "/v1/messages",
			"curl -sS -m 20 -H 'X: ${secrets.anthropic}' https://denied.example.net/",
			"curl -sS -m 20 http://" + anthropicHost + "/v1/messages",
		} {
			_, out := d.try(t, script)
			seen.WriteString(out)
		}
		if n := o.strays.Load(); n > 0 {
			t.Errorf("%d requests reached a server that is not allowed", n)
		}
	})
	for _, m := range []*model{m.anthropic, m.openai} {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.served) == 0 || len(m.wrong) > 0 {
			t.Errorf("requests with the right key: %v, with others: %q", m.served, m.wrong)
		}
	}
	t.Run("files and processes", func(t *testing.T) { d.checkInside(t, m) })
	t.Run("the daemon", func(t *testing.T) { checkDaemon(t, h, d, m) })
}

// checkAgent checks an agent's output.
func checkAgent(t *testing.T, out string) {
	t.Helper()
	for _, vendor := range []string{"anthropic", "openai"} {
		for _, text := range []string{"Hello from the model", "Hello from the stream"} {
			if !strings.Contains(out, vendor+" "+text) {
				t.Errorf("no %q of %s in:\n%s", text, vendor, out)
			}
		}
	}
	_, keys, _ := strings.Cut(out, "keys ")
	fields := strings.Fields("keys " + keys)
	if len(fields) != 3 || fields[1] != placeholder || len(fields[2]) < 8 {
		t.Errorf("the placeholders are %q", fields)
	}
}

// checkStream checks that an event arrives before the server sends the next.
func (d *desk) checkStream(t *testing.T, m *model) string {
	m.gate = make(chan struct{})
	defer func() { m.gate = nil }()
	out := &daemontest.Output{}
	body := `{"model":"m","stream":true,"max_tokens":10,"messages":[]}`
	p, err := d.Start(t.Context(), carrel.Command{Args: []string{"curl", "-sSN", "-d", body, "https://" + anthropicHost + "/v1/messages"}, Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	out.Until(t, "message_start")
	if strings.Contains(out.String(), "content_block_start") {
		t.Error("the second event came before it was sent")
	}
	<-m.gate
	out.Until(t, "message_stop")
	if r, err := p.Wait(t.Context()); err != nil || r.ExitCode != 0 {
		t.Error(r, err)
	}
	return out.String()
}

// checkInside searches all files written inside, and every process.
func (d *desk) checkInside(t *testing.T, m *models) {
	r, err := d.Run(t.Context(), carrel.Command{User: "root", Shell: lines(
		"cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline",
		"find /home /tmp /run /etc /root /var -xdev -type f -size -1M -newermt '-2 hours' -not -path '*/node_modules/*' -not -path '*/.site/*' -print0 | xargs -0 cat",
		"env", "set"), Env: d.env})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range m.keys {
		if k.inText(string(r.Stdout) + string(r.Stderr)) {
			t.Error("a key is in a file or a process of the sandbox")
		}
	}
	if !newNeedle(placeholder).inText(string(r.Stdout)) {
		t.Error("not even the placeholder was found: the search is broken")
	}
}

// checkDaemon takes a snapshot with the sandbox's memory. It searches for the keys in the snapshot,
// in all other files of the daemon, and in its output.
func checkDaemon(t *testing.T, h *house, d *desk, m *models) {
	ctx := t.Context()
	// A process with the key's placeholder in its memory.
	if _, err := d.Start(ctx, carrel.Command{Shell: "exec sleep 1000", Env: d.env}); err != nil {
		t.Fatal(err)
	}
	snap, err := h.svc.Snapshot(ctx, d.id, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !snap.Memory {
		t.Fatal("the snapshot has no memory in it")
	}
	if _, err := h.svc.Pause(ctx, d.id, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	var told []any
	sb, err := h.svc.Get(ctx, d.id)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := h.svc.Logs(ctx, d.id, carrel.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told = append(told, sb, snap, logs)
	secrets, err := h.svc.(carrel.Secrets).ListSecrets(ctx)
	if err != nil || len(secrets) != 2 {
		t.Fatal(secrets, err)
	}
	told = append(told, secrets)
	injected := false
	for decision, err := range h.svc.(carrel.Audits).Audit(ctx, carrel.AuditOptions{ID: d.id}) {
		if err != nil {
			t.Fatal(err)
		}
		injected = injected || len(decision.Secrets) > 0
		told = append(told, decision)
	}
	if !injected {
		t.Error("the audit log tells of no secret that was put in")
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	h.Terminate() // all is written now
	defer h.Restart()
	for i, k := range m.keys {
		if where := k.below(t, h.Dir); len(where) > 0 {
			t.Errorf("key %d is in %v", i, where)
		}
		if k.inText(h.Log()) {
			t.Errorf("key %d is in the daemon's log", i)
		}
		if k.inText(string(text)) {
			t.Errorf("key %d is in what the API says", i)
		}
	}
	where := newNeedle(placeholder).below(t, filepath.Join(h.Dir, "snapshots"))
	if len(where) < 2 {
		t.Errorf("the placeholder is in %v only: the search is broken, or the snapshots hold no memory", where)
	}
}
