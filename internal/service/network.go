package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/state"
)

// Networks receives the policies of sandboxes; package wire implements it. NotFound means that a
// sandbox has no link, which is no error.
type Networks interface {
	SetNetwork(id carrel.ID, p *policy.Policy) error
	// Traffic returns how many bytes a sandbox has sent and received on its present link.
	Traffic(id carrel.ID) (sent, received int64)
}

// Vault reveals secrets to the wire; package vault implements it.
type Vault interface {
	// Reveal returns the value of a project's secret for a request to host. Errors: NotFound;
	// Forbidden when the secret is not for this host.
	Reveal(ctx context.Context, project, ref, host string) (string, error)
}

// Issuer signs identity tokens; package identity implements it.
type Issuer interface {
	Mint(ctx context.Context, sb carrel.Sandbox, spec carrel.TokenSpec) (carrel.Token, error)
	// Revoke revokes the tokens of a sandbox that has ended.
	Revoke(ctx context.Context, id carrel.ID) error
}

const opNetwork = "set network"

// refusedTime bounds the message to a guest about one refusal. The wire does not wait for all of
// it.
const refusedTime = 10 * time.Second

// networks gives sandboxes their rules, and answers the wire's requests about sandboxes.
type networks struct {
	opts    *Options
	log     *slog.Logger
	table   *table
	rules   *rules
	journal *journal
	records *records
	greeter *greeter
	inbox   *inbox.Inbox
}

// SetNetwork implements carrel.Sandboxes. It changes the wire's rules first, so that a hostile or
// slow guest can't delay a restriction.
func (ne *networks) SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	return ne.change(ctx, id, n, func(carrel.Network) error { return nil })
}

// change is SetNetwork if may agrees with the rules that the sandbox has at that moment.
func (ne *networks) change(ctx context.Context, id carrel.ID, n carrel.Network, may func(now carrel.Network) error) (carrel.Sandbox, error) {
	egress, err := compileNetwork(opNetwork, n)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	b, err := ne.table.find(opNetwork, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	had := b.record()
	if err := ceiling.Network(opNetwork, ne.rules.bounds(ctx, had.Sandbox.Project, had.KeyID), n); err != nil {
		return carrel.Sandbox{}, err
	}
	var before *policy.Policy
	sb, err := ne.records.updateRules(ctx, opNetwork, b, egress, func(r *state.Record) error {
		if err := may(r.Sandbox.Network); err != nil {
			return err
		}
		before = b.rules()
		r.Sandbox.Network = cloneNetwork(n)
		switch {
		case !n.PrivateTraffic:
			r.Sandbox.TrafficToken = ""
		case r.Sandbox.TrafficToken == "":
			r.Sandbox.TrafficToken = newToken()
		}
		return nil
	})
	if err != nil {
		return carrel.Sandbox{}, err
	}
	if err := ne.applyNetwork(opNetwork, b); err != nil {
		return carrel.Sandbox{}, err
	}
	if ne.greeter.told(before) || ne.greeter.told(egress) {
		if err := ne.greeter.init(ctx, b, false); err != nil {
			return carrel.Sandbox{}, &carrel.Error{Op: opNetwork, ID: id, Kind: carrel.KindOf(err),
				Err: fmt.Errorf("the rules hold, but the sandbox was not told what to trust: %w", err), Hint: "try again"}
		}
	}
	ne.journal.tell(updatedEvent(sb, "has new rules for its network", "network"))
	return sb, nil
}

// applyNetwork tells the wire a sandbox's rules. It reads the rules afresh, so that of two calls at
// once, the last rules are applied last.
func (ne *networks) applyNetwork(op string, b *box) error {
	if ne.opts.Networks == nil {
		return nil
	}
	b.save.Lock()
	defer b.save.Unlock()
	err := ne.opts.Networks.SetNetwork(b.id, ne.now(b))
	if err == nil || errors.Is(err, carrel.NotFound) { // no link: nothing gets out
		return nil
	}
	return &carrel.Error{Op: op, ID: b.id, Kind: carrel.KindOf(err), Err: err}
}

// Egress returns the policy that a sandbox has at this moment. It is nil, which allows nothing, for
// an unknown sandbox. The wire asks when it makes a link. The link of a simulated sandbox is made
// only when it is needed.
func (ne *networks) Egress(id carrel.ID) *policy.Policy {
	b, err := ne.table.find(opNetwork, id)
	if err != nil {
		return nil
	}
	return ne.now(b)
}

// now is the policy that holds for a sandbox at this moment. While its project has sent all that it
// may send in a day, nothing gets out.
func (ne *networks) now(b *box) *policy.Policy {
	rec := b.record()
	if ne.opts.Allowances.Muted(rec.Sandbox.Project, rec.KeyID) {
		return policy.Closed("the quota " + string(carrel.LimitEgress))
	}
	return b.rules()
}

// Secret reveals a secret for a sandbox's request to host. Only the wire may call it.
func (ne *networks) Secret(ctx context.Context, id carrel.ID, name, host string) (string, error) {
	const op = "reveal secret"
	b, err := ne.table.find(op, id)
	if err != nil {
		return "", err
	}
	if ne.opts.Vault == nil {
		return "", &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: fmt.Errorf("no secret %s: this service keeps none", clip(name))}
	}
	return ne.opts.Vault.Reveal(ctx, b.record().Sandbox.Project, name, host)
}

// Token mints one of a sandbox's identity tokens, for a request of this sandbox.
func (ne *networks) Token(ctx context.Context, id carrel.ID, name string) (string, error) {
	t, err := ne.MintToken(ctx, id, name, "")
	return t.Value, err
}

// MintToken mints one of a sandbox's identity tokens. It finds the token by its name or, when name
// is "", by its audience. Error: NotFound when the sandbox has no such token.
func (ne *networks) MintToken(ctx context.Context, id carrel.ID, name, audience string) (carrel.Token, error) {
	const op = "mint token"
	b, err := ne.table.find(op, id)
	if err != nil {
		return carrel.Token{}, err
	}
	sb := b.public()
	spec, ok := sb.Tokens[name]
	if name == "" {
		for _, k := range slices.Sorted(maps.Keys(sb.Tokens)) {
			if t := sb.Tokens[k]; t.Audience == audience {
				spec, ok = t, true
				break
			}
		}
	}
	switch {
	case !ok:
		return carrel.Token{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: fmt.Errorf("the sandbox has no token %s", clip(name+audience)),
			Hint: "tokens are given when the sandbox is created: carrel create --token NAME=AUDIENCE"}
	case ne.opts.Issuer == nil:
		return carrel.Token{}, &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: id, Err: errors.New("this service signs no tokens")}
	case sb.State == carrel.Stopping:
		return carrel.Token{}, &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Err: errors.New("the sandbox is ending")}
	}
	return ne.opts.Issuer.Mint(ctx, sb, spec)
}

// revoke revokes a sandbox's tokens. They end by themselves within the hour, so a failure is only
// reported.
func (ne *networks) revoke(ctx context.Context, sb carrel.Sandbox) {
	if ne.opts.Issuer == nil || len(sb.Tokens) == 0 {
		return
	}
	if err := ne.opts.Issuer.Revoke(ctx, sb.ID); err != nil {
		ne.log.Error("revoke tokens", "sandbox", sb.ID, "err", err)
	}
}

// Refused tells a sandbox that the wire refused its request. It returns the program that made the
// request, if the guest could find out. If the sandbox can't be told, only the audit log has the
// refusal.
func (ne *networks) Refused(ctx context.Context, id carrel.ID, r guest.Refusal) guest.RefusalReply {
	b, err := ne.table.find("tell refusal", id)
	if err != nil {
		return guest.RefusalReply{}
	}
	b.mu.Lock()
	conn, egress := b.conn, b.egress
	b.mu.Unlock()
	if conn == nil || egress.IsSilent() {
		return guest.RefusalReply{}
	}
	ctx, cancel := context.WithTimeout(ctx, refusedTime)
	defer cancel()
	reply, err := conn.Refused(ctx, r)
	if err != nil {
		ne.log.Debug("tell refusal", "sandbox", id, "err", err)
	}
	return reply
}

// Bounds on network rules and tokens.
const (
	maxOut       = 1000    // allow rules of E2B, and as many deny rules
	maxRuleHosts = 1000    // hosts for which E2B's rules change requests
	maxPorts     = 1000    // that speak TLS
	maxTokens    = 32      // of one sandbox
	maxName      = 128     // bytes of a token's name
	maxAudience  = 2 << 10 // bytes
	maxScopes    = 32
)

// compileNetwork checks network rules and compiles them. It checks their number first, because that
// bounds the work. Package policy checks each rule.
func compileNetwork(op string, n carrel.Network) (*policy.Policy, error) {
	for _, c := range []struct {
		field, what string
		got, most   int
	}{
		{"allowOut", "network rules", len(n.AllowOut), maxOut},
		{"denyOut", "network rules", len(n.DenyOut), maxOut},
		{"rules", "hosts", len(n.Rules), maxRuleHosts},
		{"httpsPorts", "ports", len(n.HTTPSPorts), maxPorts},
	} {
		if c.got > c.most {
			return nil, invalid(op, c.field, "%d %s are more than the %d that a sandbox may have", c.got, c.what, c.most)
		}
	}
	p, err := policy.Compile(n)
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		e.Op = op
	}
	return p, err
}

// checkTokens checks the identity tokens of a request.
func checkTokens(op string, tokens map[string]carrel.TokenSpec) error {
	if len(tokens) > maxTokens {
		return invalid(op, "tokens", "%d tokens, at most %d may be", len(tokens), maxTokens)
	}
	for name, t := range tokens {
		switch {
		case name == "" || len(name) > maxName || strings.ContainsFunc(name, func(c rune) bool { return isControl(c) || c == '{' || c == '}' }):
			return invalid(op, "tokens", "%s is no name for a token", clip(name))
		case t.Audience == "" || len(t.Audience) > maxAudience || strings.ContainsFunc(t.Audience, isControl):
			return invalid(op, "tokens."+name+".audience", "%s is no audience", clip(t.Audience))
		case len(t.Scopes) > maxScopes:
			return invalid(op, "tokens."+name+".scopes", "%d scopes, at most %d may be", len(t.Scopes), maxScopes)
		}
		for _, sc := range t.Scopes {
			if sc == "" || len(sc) > maxName || strings.ContainsFunc(sc, func(c rune) bool { return c <= ' ' || c == '"' || c == '\\' || c >= 0x7f }) {
				return invalid(op, "tokens."+name+".scopes", "%s is no scope", clip(sc))
			}
		}
	}
	return nil
}

// cloneNetwork copies rules, so that no caller can change rules that were checked.
func cloneNetwork(n carrel.Network) carrel.Network {
	n.AllowOut, n.DenyOut, n.HTTPSPorts = slices.Clone(n.AllowOut), slices.Clone(n.DenyOut), slices.Clone(n.HTTPSPorts)
	if n.EgressProxy != nil {
		p := *n.EgressProxy
		n.EgressProxy = &p
	}
	if n.Rules != nil {
		rules := make(map[string][]carrel.NetworkRule, len(n.Rules))
		for host, list := range n.Rules {
			list = slices.Clone(list)
			for i, r := range list {
				if r.Transform != nil {
					list[i].Transform = &carrel.NetworkTransform{Headers: maps.Clone(r.Transform.Headers)}
				}
			}
			rules[host] = list
		}
		n.Rules = rules
	}
	if n.Policy != nil {
		p := clonePolicy(*n.Policy)
		n.Policy = &p
	}
	return n
}

func clonePolicy(p carrel.Policy) carrel.Policy {
	p.Presets, p.Rules, p.Inject = slices.Clone(p.Presets), slices.Clone(p.Rules), slices.Clone(p.Inject)
	for i := range p.Rules {
		r := &p.Rules[i]
		for _, list := range []*[]string{&r.Allow, &r.Deny, &r.Ask, &r.Ports, &r.Methods, &r.Paths} {
			*list = slices.Clone(*list)
		}
	}
	for i := range p.Inject {
		in := &p.Inject[i]
		in.Methods, in.Paths = slices.Clone(in.Methods), slices.Clone(in.Paths)
		in.Headers, in.Query, in.Env = maps.Clone(in.Headers), maps.Clone(in.Query), maps.Clone(in.Env)
		if in.Basic != nil {
			b := *in.Basic
			in.Basic = &b
		}
	}
	return p
}

func cloneTokens(tokens map[string]carrel.TokenSpec) map[string]carrel.TokenSpec {
	tokens = maps.Clone(tokens)
	for k, t := range tokens {
		t.Scopes = slices.Clone(t.Scopes)
		tokens[k] = t
	}
	return tokens
}
