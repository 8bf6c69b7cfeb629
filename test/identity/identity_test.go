// Package identity tests identity and secrets in real daemons: tokens for a program inside, a
// relying party that verifies them with a library that is not ours, sandboxes that end, daemons
// that die.
package identity

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

const audience = "https://sts.example.com/a?b"

// connect returns a client of a daemon.
func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// inside runs a shell line in a sandbox.
func inside(t *testing.T, svc carrel.Service, id carrel.ID, line string) *carrel.Result {
	t.Helper()
	c, err := svc.Computer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), carrel.Command{Shell: line})
	if err != nil {
		t.Fatal(line, err)
	}
	return res
}

// verify acts as a relying party that knows the issuer's URL.
func verify(t *testing.T, d *daemontest.Daemon, token string) *oidc.IDToken {
	t.Helper()
	p, err := oidc.NewProvider(t.Context(), d.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Verifier(&oidc.Config{ClientID: audience}).Verify(t.Context(), strings.TrimSpace(token))
	if err != nil {
		t.Fatalf("%q: %v", token, err)
	}
	return got
}

// active asks the daemon whether a token is valid.
func active(t *testing.T, d *daemontest.Daemon, token string) bool {
	t.Helper()
	form := url.Values{"token": {strings.TrimSpace(token)}}
	req, err := http.NewRequest(http.MethodPost, d.URL+"/carrel/v1/identity/introspect", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-API-KEY", d.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct{ Active *bool }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out.Active == nil {
		t.Fatal(resp.Status, err)
	}
	return *out.Active
}

// TestTokens follows tokens from inside a sandbox to a relying party, through the deaths of daemons
// to the sandbox's end.
func TestTokens(t *testing.T) {
	d := daemontest.Start(t)
	svc, ctx := connect(t, d), t.Context()
	given := map[string]carrel.TokenSpec{"cloud": {Audience: audience, Scopes: []string{"read"}}}
	var tokens []string
	var boxes []carrel.ID
	for _, tier := range []carrel.Tier{carrel.Sim, ""} { // "" is the strongest there is
		sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: tier, Tokens: given, Metadata: map[string]string{"task": "t1"}})
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, sb.ID)
		for _, how := range []string{"--name cloud", "--audience '" + audience + "'"} {
			res := inside(t, svc, sb.ID, "carrel-guest token "+how)
			if res.ExitCode != 0 {
				t.Fatalf("%s: %s %s", sb.Tier, how, res.Stderr)
			}
			got := verify(t, d, string(res.Stdout))
			if got.Subject != "spiffe://127.0.0.1/org/default/project/default/sandbox/"+string(sb.ID)+"/task/t1" {
				t.Error(got.Subject)
			}
			tokens = append(tokens, string(res.Stdout))
		}
		for _, other := range []string{"--name other", "--audience https://other.example.com"} {
			if res := inside(t, svc, sb.ID, "carrel-guest token "+other); res.ExitCode != 1 || len(res.Stdout) > 0 || !strings.Contains(string(res.Stderr), "no such token") {
				t.Errorf("%s: %s: %s %s", sb.Tier, other, res.Stdout, res.Stderr)
			}
		}
		if tier != carrel.Sim {
			var missing error
			if sb.Tier == carrel.Sim {
				missing = errors.New("a tier with real walls")
			}
			testenv.Need(t, "gvisor", missing)
			metadata(t, d, svc, sb.ID)
		}
	}
	d.Kill9()
	d.Restart()
	for i, token := range tokens {
		verify(t, d, token)
		// Simulated sandboxes end with their daemon; real ones run on.
		if _, err := svc.Get(ctx, boxes[i/2]); active(t, d, token) != (err == nil) {
			t.Errorf("of sandbox %d, which is %v: active is %v", i/2, err, err != nil)
		}
	}
	for _, id := range boxes {
		if err := svc.Kill(ctx, id); err != nil && carrel.KindOf(err) != carrel.NotFound {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, token := range tokens {
			if active(t, d, token) {
				t.Error("a sandbox that has ended has a token")
			}
		}
		d.Kill9()
		d.Restart()
	}
}

// metadata asks as programs for other clouds do, and as a program that an attacker tricked.
func metadata(t *testing.T, d *daemontest.Daemon, svc carrel.Service, id carrel.ID) {
	t.Helper()
	ask := func(args string) string {
		t.Helper()
		return string(inside(t, svc, id, "curl -sS -m 60 "+args+" 2>&1").Stdout)
	}
	const base = "http://169.254.169.254/carrel/v1/"
	answer := ask("-G -H 'Metadata-Flavor: Carrel' --data-urlencode 'audience=" + audience + "' " + base + "identity/token")
	var token carrel.Token
	if err := json.Unmarshal([]byte(answer), &token); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	if got := verify(t, d, token.Value); !got.Expiry.Equal(token.Expires) {
		t.Error(got.Expiry, token.Expires)
	}
	if answer := ask("-H 'Metadata-Flavor: Carrel' " + base + "sandbox"); !strings.Contains(answer, string(id)) || !strings.Contains(answer, audience) {
		t.Error(answer)
	}
	for _, trick := range []string{"", "-H 'Metadata-Flavor: Carrel' -H 'X-Forwarded-For: 192.0.2.1'", "-H 'Metadata-Flavor: Carrel' -H 'Host: evil.example.com'"} {
		if answer := ask(trick + " '" + base + "identity/token?name=cloud'"); !strings.Contains(answer, `"code":403`) {
			t.Errorf("%s: %s", trick, answer)
		}
	}
}

// TestSecretsKept shows that secrets survive the death of a daemon. A daemon whose key is gone must
// report that and not make another key.
func TestSecretsKept(t *testing.T) {
	const canary = "sk-canary-9d2c"
	d := daemontest.Start(t, "--default-tier", "sim")
	ctx, secrets := context.Background(), connect(t, d).(carrel.Secrets)
	s, err := secrets.CreateSecret(ctx, carrel.NewSecret{Name: "a", Value: canary})
	if err != nil {
		t.Fatal(err)
	}
	d.Kill9()
	d.Restart()
	if got, err := secrets.GetSecret(ctx, "a"); err != nil || got.ID != s.ID {
		t.Error(got, err)
	}
	d.Kill9()
	err = filepath.WalkDir(d.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, 64<<20))
		if strings.Contains(string(raw), canary) {
			t.Error(path, "has the value")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	key := filepath.Join(d.Dir, "secrets", "key")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	out, err := d.CLI("serve", "--listen", "127.0.0.1:0", "--default-tier", "sim").CombinedOutput()
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 2 || !strings.Contains(string(out), "key") || !strings.Contains(string(out), "\nhint: ") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(key); err == nil {
		t.Error("another key was made")
	}
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	d.Restart()
	if got, err := secrets.GetSecret(ctx, "a"); err != nil || got.ID != s.ID {
		t.Error(got, err)
	}
}
