package settings_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/settings"
)

// kept lists the variables that a box keeps.
func kept(b *settings.Box) map[string]string {
	out := map[string]string{}
	for _, v := range b.Env {
		if v.Kept {
			out[v.Name] = v.Value
		}
	}
	return out
}

// TestSecretVariables checks variables that are stripped and variables that stay.
func TestSecretVariables(t *testing.T) {
	p := newPlace(t)
	strip := []string{
		"AWS_ACCESS_KEY_ID=x", "AWS_PROFILE=x", "GITHUB_TOKEN=x", "GH_TOKEN=x", "NPM_TOKEN=x", "OPENAI_API_KEY=x", "ANTHROPIC_API_KEY=x", "MY_SECRET=x", "DB_PASSWORD=x", "db_password=x", "PGPASSWORD=x", "SSH_AUTH_SOCK=/tmp/agent", "DBUS_SESSION_BUS_ADDRESS=x", "XDG_RUNTIME_DIR=/run/user/1000",
		"DOCKER_HOST=x", "KUBECONFIG=x", "LD_PRELOAD=x", "BASH_ENV=x", "BASH_FUNC_x%%=() { :; }", "GIT_ASKPASS=x", "VAULT_ADDR=x", "DISPLAY=:0", "CARREL_TOKEN=x", "PROMPT_COMMAND=x", "SIGNING_KEY=x", "TOKEN=x", "GOOGLE_APPLICATION_CREDENTIALS=/x", "TMUX=x", "VSCODE_GIT_IPC_HANDLE=x", "NOTIFY_SOCKET=x",
		"DATABASE_URL=postgres://me:pw@example.com/x", "HTTPS_PROXY=http://me:pw@proxy.example.com", "ANYTHING=ghp_0123456789abcdefghij", "MIRROR=a,https://u:p@example.com/", "CERT=-----BEGIN PRIVATE KEY-----", "TMPDIR=/var/folders/x", "TMP=" + p.home,
	}
	keep := []string{"PATH=/bin", "HOME=" + p.home, "LANG=C", "LC_ALL=C", "TERM=xterm", "USER=ann", "SHELL=/bin/sh", "EDITOR=vi", "GOPATH=/go", "NODE_ENV=test", "CI=true", "MONKEY=x", "KEYBOARD=x", "TOKENIZERS_PARALLELISM=false", "DATABASE_URL2=postgres://example.com/x", "HTTP_PROXY=http://proxy.example.com:80", "LD_LIBRARY_PATH=/x", "DEBUG=1", "EMPTY=", "TZ=UTC", "JAVA_HOME=/x", "GITHUB_ACTIONS=true", "TEMP=/tmp"}
	b := p.resolve(func(r *settings.Request) { r.Env = append(slices.Clone(strip), keep...) })
	got := kept(b)
	for _, e := range strip {
		name, _, _ := strings.Cut(e, "=")
		if _, there := got[name]; there {
			t.Errorf("%s is kept", e)
		}
	}
	for _, e := range keep {
		name, value, _ := strings.Cut(e, "=")
		if v, there := got[name]; !there || v != value {
			t.Errorf("%s is not kept", e)
		}
	}
	for _, v := range b.Env {
		if !v.Kept && v.Value != "" {
			t.Errorf("%s: the value of a stripped variable is in the box", v.Name)
		}
	}
}

// TestVariableRules checks the rules of several layers.
func TestVariableRules(t *testing.T) {
	p := newPlace(t)
	p.file(".config/carrel/run.yaml", "env: {pass: [A_TOKEN, '*_KEY'], strip: [PLAIN, B_KEY], set: {C: user, D: user}}\n")
	env := func(r *settings.Request) {
		r.Env = []string{"PATH=/bin", "A_TOKEN=1", "A_KEY=1", "B_KEY=1", "PLAIN=1", "OTHER=1", "DUP=1", "DUP=2", "broken", "=x"}
	}
	if got := kept(p.resolve(env)); !maps.Equal(got, map[string]string{"PATH": "/bin", "A_TOKEN": "1", "A_KEY": "1", "OTHER": "1", "C": "user", "D": "user", "DUP": "2"}) {
		t.Errorf("%v", got)
	}
	flags := func(r *settings.Request) {
		r.Flags.Env = settings.EnvRules{Pass: []string{"PLAIN"}, Strip: []string{"A_TOKEN", "D"}, Set: map[string]string{"C": "flag", "X_TOKEN": "given"}}
	}
	if got := kept(p.resolve(env, flags)); !maps.Equal(got, map[string]string{"PATH": "/bin", "A_KEY": "1", "PLAIN": "1", "OTHER": "1", "C": "flag", "X_TOKEN": "given", "DUP": "2"}) {
		t.Errorf("%v", got)
	}
	if got := kept(p.resolve(env, func(r *settings.Request) { r.Flags.Env = settings.EnvRules{Clear: true, Pass: []string{"OTHER"}} })); !maps.Equal(got, map[string]string{"PATH": "/bin", "OTHER": "1", "C": "user", "D": "user"}) {
		t.Errorf("%v", got)
	}
	b := p.resolve(func(r *settings.Request) {
		r.Env = []string{"SSH_AUTH_SOCK=" + p.file("agent.sock", "x")}
		r.Flags.Network.Sockets = []string{"~/agent.sock"}
	})
	if got := kept(b); got["SSH_AUTH_SOCK"] == "" || !slices.Equal(b.Sockets, []string{p.home + "/agent.sock"}) {
		t.Errorf("%v, %v", got, b.Sockets)
	}
}

// TestNetwork checks how the layers add up to a policy.
func TestNetwork(t *testing.T) {
	p := newPlace(t)
	b := p.resolve()
	if !b.Closed || b.Host || !b.Bind || len(b.Policy.Rules) > 0 {
		t.Errorf("%+v", b)
	}
	p.file(".config/carrel/run.yaml", "network: {allow: [a.example.com], deny: [bad.example.com], policy: {rules: [{allow: [p.example.com]}, {allow: [bad.example.com]}], presets: [github]}}\n")
	judge := func(b *settings.Box, name string, port uint16) bool {
		t.Helper()
		compiled, err := policy.Compile(carrel.Network{Policy: &b.Policy})
		if err != nil {
			t.Fatal(err)
		}
		return compiled.Judge(policy.Flow{Addr: netip.MustParseAddr("93.184.216.34"), Port: port, Names: []string{name}, App: policy.AppTLS, Name: name}).Allow
	}
	b = p.resolve(func(r *settings.Request) { r.Flags.Network.Allow = []string{"c.example.com", "a.example.com"} })
	for name, want := range map[string]bool{"a.example.com": true, "c.example.com": true, "p.example.com": true, "bad.example.com": false, "github.com": true, "other.example.com": false} {
		if judge(b, name, 443) != want {
			t.Errorf("%s: not %t", name, want)
		}
	}
	noted(t, b, "left out")
	// A destination denied in one layer is denied in all.
	b = p.resolve(func(r *settings.Request) { r.Flags.Network.Allow = []string{"bad.example.com", "*.example.com"} })
	if judge(b, "bad.example.com", 443) || !judge(b, "x.example.com", 443) {
		t.Errorf("%+v", b.Policy.Rules)
	}
	// None is not nothing said.
	b = p.resolve(func(r *settings.Request) { r.Flags.Network.Allow = []string{} })
	if !b.Closed {
		t.Errorf("%+v", b.Policy)
	}
	b = p.resolve(func(r *settings.Request) { r.NoFiles, r.Flags.Network.PolicyRef = true, "deny" })
	if !b.Closed {
		t.Errorf("%+v", b.Policy)
	}
	b = p.resolve(func(r *settings.Request) {
		r.NoFiles, r.Flags.Network = true, settings.NetworkRules{PolicyRef: "allow", Deny: []string{"x.example.com"}}
	})
	if judge(b, "x.example.com", 443) || !judge(b, "y.example.com", 443) {
		t.Errorf("%+v", b.Policy)
	}
	// The path of a policy file is relative to the settings file that names it.
	p.file("conf/policy.yaml", "rules: [{allow: [f.example.com]}]\n")
	file := p.file("conf/run.yaml", "network: {policy: ./policy.yaml}\n")
	if b = p.resolve(func(r *settings.Request) { r.File = file }); !judge(b, "f.example.com", 443) || judge(b, "p.example.com", 443) {
		t.Errorf("%+v", b.Policy)
	}
	for _, bad := range []settings.NetworkRules{{Allow: []string{"https://example.com/x"}}, {Allow: []string{""}}, {PolicyRef: "nosuchpreset"}, {PolicyRef: "./missing.yaml"}, {Publish: []string{"x"}}, {Allow: []string{"a.example.com"}, Deny: []string{"a.example.com"}}} {
		if text := p.fails(func(r *settings.Request) { r.Flags.Network = bad }); !strings.Contains(text, "--") && !strings.Contains(text, "flags: network.") {
			t.Error(text)
		}
	}
}

// TestExplain searches the text for facts that a person needs.
func TestExplain(t *testing.T) {
	p := newPlace(t)
	p.file(".ssh/id", "x")
	p.file("project/.env", "x")
	p.file("project/.git/config", "x")
	p.file("data/x", "x")
	p.file(".config/carrel/run.yaml", "write: {allow: [~/data]}\nenv: {strip: [PLAIN]}\n")
	limit := 100
	b := p.resolve(func(r *settings.Request) {
		r.Env = append(r.Env, "MY_TOKEN=hidden-value", "PLAIN=x")
		r.Flags.Network.Allow = []string{"example.com:443"}
		r.Flags.Limits.Pids = &limit
		r.Flags.Profiles = []string{"node"}
	})
	for _, c := range []struct {
		sources bool
		want    []string
	}{
		{false, []string{"working directory: ~/project", "tier: ns", "profiles: node", "reads everything but:", "  ~/.ssh  (ssh keys)", "  ~/project/.env  (environment files)", "writes only:", "  ~/data", "~/project/.git/config  (git configuration)", ".mcp.json", "network:", "allow example.com ports 443", "deny the rest", "stripped: MY_TOKEN PLAIN", "processes 100"}},
		{true, []string{"settings, weakest first: built-in, profile node, ~/.config/carrel/run.yaml, flags", "~/data  (~/.config/carrel/run.yaml: write.allow[0])", "stripped: PLAIN  (~/.config/carrel/run.yaml: env.strip[0])", "MY_TOKEN  (built-in: looks like a secret)", "--allow example.com:443"}},
	} {
		text := strings.Join(b.Explain(c.sources), "\n")
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
		if strings.Contains(text, "hidden-value") {
			t.Error("a secret's value is shown")
		}
	}
}
