package service_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/service"
)

// networks records the policies that the wire is told.
type networks struct {
	mu   sync.Mutex
	told map[carrel.ID][]*policy.Policy
}

func (n *networks) Traffic(carrel.ID) (sent, received int64) { return 70, 7 }

func (n *networks) SetNetwork(id carrel.ID, p *policy.Policy) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told == nil {
		n.told = map[carrel.ID][]*policy.Policy{}
	}
	n.told[id] = append(n.told[id], p)
	return nil
}

// of returns the policy that the wire applies. It allows nothing before the wire is told of a
// sandbox.
func (n *networks) of(id carrel.ID) *policy.Policy {
	all := n.all(id)
	if len(all) == 0 {
		return &policy.Policy{}
	}
	return all[len(all)-1]
}

// all returns all policies that the wire was told for a sandbox.
func (n *networks) all(id carrel.ID) []*policy.Policy {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told[id])
}

// opens reports whether a policy allows a connection to any address.
func opens(p *policy.Policy) bool {
	return p.Judge(policy.Flow{Addr: netip.MustParseAddr("203.0.113.9"), Port: 22}).Allow
}

func TestNetwork(t *testing.T) {
	n := &networks{}
	h := newHouse(t, func(o *service.Options) { o.Networks = n })
	sb := h.create(t, carrel.CreateOptions{Network: carrel.Network{Internet: true}})
	if !opens(n.of(sb.ID)) {
		t.Error("the wire was told that nothing gets out")
	}
	got, err := h.SetNetwork(t.Context(), sb.ID, carrel.Network{DenyOut: []string{"10.0.0.0/8"}})
	if err != nil || got.Network.Internet || len(got.Network.DenyOut) != 1 || opens(n.of(sb.ID)) {
		t.Errorf("%+v, %v, the wire was told that all gets out: %v", got, err, opens(n.of(sb.ID)))
	}
}

// TestNetworkSecrets shows that the secret parts of a request reach the wire and nobody else.
func TestNetworkSecrets(t *testing.T) {
	n := &networks{}
	h := newHouse(t, func(o *service.Options) { o.Networks = n })
	proxy := &carrel.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: "hunter2"}
	sb := h.create(t, carrel.CreateOptions{Network: carrel.Network{Internet: true, EgressProxy: proxy}})
	got, err := h.Get(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	page, err := h.List(t.Context(), carrel.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []carrel.Sandbox{sb, got, page.Sandboxes[0]} {
		if p := s.Network.EgressProxy; p == nil || p.Username != "u" || p.Password != "" {
			t.Errorf("a caller is told %+v", p)
		}
	}
	if p := n.of(sb.ID).Proxy(); p == nil || p.Password != "hunter2" {
		t.Errorf("the wire is told %+v", p)
	}
	proxy.Address = "elsewhere.example.com:1"
	got.Network.EgressProxy.Address = "elsewhere.example.com:1"
	if again, _ := h.Get(t.Context(), sb.ID); again.Network.EgressProxy.Address != "proxy.example.com:1080" {
		t.Error("a caller changed the rules through what it was given")
	}
}

// TestNetworkTellsTheGuest shows that a policy that opens TLS gives the guest the authority to
// trust and the placeholders, also when it is set on a running sandbox. The sandbox's own variables
// win.
func TestNetworkTellsTheGuest(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.Authority = "the authority" })
	inject := &carrel.Policy{
		Rules:  []carrel.Rule{{Allow: []string{"api.example.com"}}},
		Inject: []carrel.Injection{{Host: "api.example.com", Bearer: "key", Env: map[string]string{"API_KEY": "placeholder", "OWN": "no"}}},
	}
	plain := h.create(t, carrel.CreateOptions{Network: carrel.Network{Internet: true}})
	if req := h.drv.get(plain.ID).inits()[0]; req.Authority != "" || req.EnvVars["API_KEY"] != "" {
		t.Errorf("without need the guest is told %+v", req)
	}
	sb := h.create(t, carrel.CreateOptions{Env: map[string]string{"OWN": "mine"}, Network: carrel.Network{Policy: inject}})
	check := func(id carrel.ID, own string) {
		t.Helper()
		all := h.drv.get(id).inits()
		if req := all[len(all)-1]; req.Authority != "the authority" || req.EnvVars["API_KEY"] != "placeholder" || req.EnvVars["OWN"] != own {
			t.Errorf("the guest is told %+v", req)
		}
	}
	check(sb.ID, "mine")
	if _, err := h.SetNetwork(t.Context(), plain.ID, carrel.Network{Policy: inject}); err != nil {
		t.Fatal(err)
	}
	check(plain.ID, "no")
	if _, err := h.SetNetwork(t.Context(), plain.ID, carrel.Network{}); err != nil {
		t.Fatal(err)
	}
	all := h.drv.get(plain.ID).inits()
	if req := all[len(all)-1]; req.EnvVars["API_KEY"] != "" {
		t.Errorf("after the rules were taken back the guest is told %+v", req)
	}
}

// issuer signs nothing, but records its calls.
type issuer struct {
	mu      sync.Mutex
	revoked []carrel.ID
}

func (i *issuer) Mint(_ context.Context, sb carrel.Sandbox, spec carrel.TokenSpec) (carrel.Token, error) {
	return carrel.Token{Value: string(sb.ID) + " for " + spec.Audience}, nil
}

func (i *issuer) Revoke(_ context.Context, id carrel.ID) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revoked = append(i.revoked, id)
	return nil
}

// vault has one secret, of the project "" and for one host.
type vault struct{}

func (vault) Reveal(_ context.Context, project, ref, host string) (string, error) {
	if project != carrel.DefaultProject || ref != "key" {
		return "", &carrel.Error{Kind: carrel.NotFound}
	}
	if host != "api.example.com" {
		return "", &carrel.Error{Kind: carrel.Forbidden}
	}
	return "the value", nil
}

func TestCredentials(t *testing.T) {
	iss := &issuer{}
	h := newHouse(t, func(o *service.Options) { o.Issuer, o.Vault = iss, vault{} })
	ctx := t.Context()
	sb := h.create(t, carrel.CreateOptions{Tokens: map[string]carrel.TokenSpec{"aws": {Audience: "sts.example.com", Scopes: []string{"read"}}}})
	want := string(sb.ID) + " for sts.example.com"
	if got, err := h.Token(ctx, sb.ID, "aws"); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := h.MintToken(ctx, sb.ID, "", "sts.example.com"); err != nil || got.Value != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range [][2]string{{"other", ""}, {"", "other.example.com"}, {"", ""}} {
		if _, err := h.MintToken(ctx, sb.ID, c[0], c[1]); !errors.Is(err, carrel.NotFound) {
			t.Errorf("token %q for %q: %v", c[0], c[1], err)
		}
	}
	if got, err := h.Secret(ctx, sb.ID, "key", "api.example.com"); err != nil || got != "the value" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := h.Secret(ctx, sb.ID, "key", "evil.example.com"); !errors.Is(err, carrel.Forbidden) {
		t.Errorf("for another host: %v", err)
	}
	if err := h.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(iss.revoked, sb.ID) {
		t.Error("the killed sandbox's tokens are not revoked")
	}
	if _, err := h.Token(ctx, sb.ID, "aws"); !errors.Is(err, carrel.NotFound) {
		t.Errorf("of a killed sandbox: %v", err)
	}
	if _, err := h.Secret(ctx, sb.ID, "key", "api.example.com"); !errors.Is(err, carrel.NotFound) {
		t.Errorf("of a killed sandbox: %v", err)
	}
}

func TestBadTokens(t *testing.T) {
	h := newHouse(t, nil)
	for name, tokens := range map[string]map[string]carrel.TokenSpec{
		"no name":     {"": {Audience: "a"}},
		"braces":      {"a}": {Audience: "a"}},
		"no audience": {"a": {}},
		"line":        {"a": {Audience: "a\nb"}},
		"scope":       {"a": {Audience: "a", Scopes: []string{"a b"}}},
	} {
		if _, err := h.Create(t.Context(), carrel.CreateOptions{Tokens: tokens}); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileGuestDelaysNothing shows that a restriction is in force before the guest is told of
// it. A hostile guest may never answer.
func TestHostileGuestDelaysNothing(t *testing.T) {
	n := &networks{}
	var told, held atomic.Bool
	h := newHouse(t, func(o *service.Options) { o.Networks, o.Authority = n, "the authority" })
	h.drv.InitFn = func(id carrel.ID) int {
		if told.Load() {
			held.Store(!opens(n.of(id)))
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	}
	sb := h.create(t, carrel.CreateOptions{Network: carrel.Network{Policy: &carrel.Policy{Default: "allow",
		Inject: []carrel.Injection{{Host: "api.example.com", Bearer: "key"}}}}})
	told.Store(true)
	if _, err := h.SetNetwork(t.Context(), sb.ID, carrel.Network{}); err == nil {
		t.Error("a guest that was not told is no error")
	}
	if !held.Load() {
		t.Error("the guest was asked before the wire was told")
	}
	if got, err := h.Get(t.Context(), sb.ID); err != nil || got.Network.Policy != nil {
		t.Errorf("the rules are not remembered: %+v, %v", got.Network, err)
	}
}
