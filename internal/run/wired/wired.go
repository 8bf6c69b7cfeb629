// Package wired gives the box of "carrel run" its network: the same wire with the same policy as
// for the daemon's sandboxes, in the runner's process.
//
// The secrets that a policy names are variables of the caller's environment. The box gets
// placeholders in their place. The wire puts the values into the requests that the policy names.
package wired

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/carrel-dev/carrel/internal/wire"
)

// id is the box's ID on its own wire.
const id = carrel.ID("run")

// Parts are the parts of this package for reexec.Run: the process that carries a box's network
// beside a runner that can't.
func Parts() reexec.Parts { return reexec.Parts{run.CarrierName: func() { run.Carry(Open) }} }

// way is one box's.
type way struct {
	wire *wire.Wire
	ca   *pki.CA
	env  map[string]string
}

var _ run.Wire = (*way)(nil)

// Open makes the network of one box.
func Open(o run.WireOptions) (run.Wire, error) {
	compiled, err := policy.Compile(carrel.Network{Policy: &o.Policy})
	if err != nil {
		return nil, err
	}
	if field := policy.AskField(o.Policy); field != "" {
		return nil, &carrel.Error{Op: "open network", Kind: carrel.Unsupported, Field: field,
			Err:  errors.New("nobody is asked here: only the sandboxes of carrel serve have an inbox"),
			Hint: "write allow or deny"}
	}
	opts := wire.Options{Egress: func(carrel.ID) *policy.Policy { return compiled }, Audit: o.Decided, Credentials: secrets(o.Lookup), HostService: hostService}
	w := &way{env: compiled.Env()}
	if compiled.Opens() {
		// It lives as long as the box, and only the box trusts it.
		if w.ca, err = pki.New("Carrel run"); err != nil {
			return nil, err
		}
		opts.Authority = w.ca
	}
	if err := missing(compiled, o.Lookup); err != nil {
		return nil, err
	}
	if o.Table != "" {
		t, err := wire.LoadTable(o.Table)
		if err != nil {
			return nil, err
		}
		opts.Resolver, opts.Dialer, opts.Roots = t, t, t.Roots
	}
	w.wire = wire.New(opts)
	return w, nil
}

// Authority implements run.Wire.
func (w *way) Authority() []byte {
	if w.ca == nil {
		return nil
	}
	return w.ca.CertPEM()
}

// Env implements run.Wire.
func (w *way) Env() map[string]string { return w.env }

// Attach implements run.Wire.
func (w *way) Attach(ctx context.Context, link *os.File) error {
	_, err := w.wire.Attach(ctx, driver.LinkSpec{ID: id, MTU: tap.DefaultMTU}, link)
	return err
}

// Close implements run.Wire.
func (w *way) Close() error { return w.wire.Close() }

// secrets are the caller's variables.
type secrets func(string) (string, bool)

// Secret implements wire.Credentials.
func (s secrets) Secret(_ context.Context, _ carrel.ID, name, _ string) (string, error) {
	if v, ok := s(name); ok && v != "" {
		return v, nil
	}
	return "", &carrel.Error{Op: "put in secret", Kind: carrel.NotFound, Err: fmt.Errorf("there is no variable %s in the environment of carrel run", name)}
}

// Token implements wire.Credentials. A box has no identity, so it has no tokens.
func (secrets) Token(_ context.Context, _ carrel.ID, name string) (string, error) {
	return "", &carrel.Error{Op: "put in token", Kind: carrel.NotFound, Err: fmt.Errorf("carrel run has no identity tokens, and so no %q", name),
		Hint: "identity tokens are for sandboxes of carrel serve"}
}

// missing returns an error with the first secret that the policy injects and the caller's
// environment lacks. It is better to report that now than at the first request.
func missing(p *policy.Policy, lookup func(string) (string, bool)) error {
	for _, in := range p.Injections() {
		names := []string{in.Bearer}
		if in.Basic != nil {
			names = append(names, in.Basic.Secret)
		}
		for _, name := range slices.Compact(names) {
			if name == "" {
				continue
			}
			if v, ok := lookup(name); !ok || v == "" {
				return &carrel.Error{Op: "run", Kind: carrel.Invalid, Field: "inject",
					Err:  errors.New("the policy puts the secret " + name + " into requests to " + in.Host + ", and there is no such variable"),
					Hint: "set it: " + name + "=… carrel run …"}
			}
		}
	}
	return nil
}
