package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/driver"
)

// TestDefaultPolicy sends requests without network fields, through E2B's routes and ours, and
// checks the resulting rules. Any network field in a request wins over the default.
func TestDefaultPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "house.yaml")
	if err := os.WriteFile(file, []byte("rules: [{allow: [example.com]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing, internet, rules := "nothing", "internet", "rules"
	tell := func(n carrel.Network) string {
		switch {
		case n.Policy != nil && len(n.Policy.Rules) == 1 && !n.Internet:
			return rules
		case n.Internet:
			return internet
		}
		return nothing
	}
	for _, c := range []struct{ flag, e2b, ours string }{
		{"", internet, nothing}, {"deny", nothing, nothing}, {"allow", internet, internet}, {file, rules, rules},
	} {
		t.Run(c.flag, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Wire.DefaultPolicy = c.flag
			d := run(t, cfg, Options{Drivers: []driver.Driver{newFakeDriver()}, KillOnClose: true})
			svc, err := client.New(d.URL(), d.Key())
			if err != nil {
				t.Fatal(err)
			}
			defer svc.Close()
			if sb, err := svc.Create(t.Context(), carrel.CreateOptions{}); err != nil || tell(sb.Network) != c.ours {
				t.Errorf("ours: %+v, %v, want %s", sb.Network, err, c.ours)
			}
			if sb, err := svc.Create(t.Context(), carrel.CreateOptions{Network: carrel.Network{Internet: true}}); err != nil || tell(sb.Network) != internet {
				t.Errorf("ours in so many words: %+v, %v", sb.Network, err)
			}
			for body, want := range map[string]string{
				`{"templateID":"base"}`:                                                              c.e2b,
				`{"templateID":"base","allow_internet_access":true}`:                                 internet,
				`{"templateID":"base","allow_internet_access":false}`:                                nothing,
				`{"templateID":"base","network":{"allowOut":["192.0.2.1"],"denyOut":["0.0.0.0/0"]}}`: nothing,
				`{"templateID":"base","network":{}}`:                                                 internet,
			} {
				var made struct{ SandboxID carrel.ID }
				if code := d.post(t, "/v2/sandboxes", body, &made); code != 201 {
					t.Fatalf("%s: %d", body, code)
				}
				if sb, err := svc.Get(t.Context(), made.SandboxID); err != nil || tell(sb.Network) != want {
					t.Errorf("%s: %+v, %v, want %s", body, sb.Network, err, want)
				}
			}
		})
	}
}

func TestBadDefaultPolicy(t *testing.T) {
	cfg := testConfig(t)
	cfg.Wire.DefaultPolicy = filepath.Join(t.TempDir(), "nowhere.yaml")
	_, err := New(t.Context(), cfg, Options{Drivers: []driver.Driver{newFakeDriver()}})
	if err == nil || !strings.Contains(err.Error(), "default-policy") {
		t.Errorf("%v", err)
	}
}
