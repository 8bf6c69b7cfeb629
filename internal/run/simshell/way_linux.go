package simshell

import (
	"context"
	"crypto/x509"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/carrel-dev/carrel/internal/run/wired"
	"github.com/carrel-dev/carrel/internal/wire"
	"github.com/carrel-dev/carrel/shell/outside"
)

// way is the machine's network: a box's wire, with a network stack of its own at the other end.
type way struct {
	*outside.HTTP
	undo cleanup.Stack
}

// wayOut makes the network, and the variables that hold placeholders for secrets.
func wayOut(o Options) (*way, []string, error) {
	fail := func(err error) (*way, []string, error) {
		return nil, nil, &carrel.Error{Op: "make the way out", Kind: carrel.Internal, Err: err}
	}
	w := &way{}
	decided := func(d carrel.Decision) {
		if !d.Allowed && o.Denied != nil {
			o.Denied(d)
		}
	}
	outer, err := wired.Open(run.WireOptions{Policy: *o.Policy, Table: o.Table, Lookup: os.LookupEnv, Decided: decided})
	if err != nil {
		return nil, nil, err
	}
	w.undo.Add(func() { _ = outer.Close() })
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		w.undo.Run()
		return fail(os.NewSyscallError("socketpair", err))
	}
	inside, err := wire.NewInside(os.NewFile(uintptr(fds[1]), "inside"), tap.DefaultMTU)
	if err != nil {
		_ = unix.Close(fds[0])
		w.undo.Run()
		return fail(err)
	}
	w.undo.Add(func() { _ = inside.Close() })
	if err := outer.Attach(context.Background(), os.NewFile(uintptr(fds[0]), "link")); err != nil {
		w.undo.Run()
		return fail(err)
	}
	w.HTTP = outside.New(outside.Options{Dial: inside.DialContext, UserAgent: "carrel-sim", Roots: func() *x509.CertPool { return roots(o, outer.Authority()) }})
	var env []string
	for name, value := range outer.Env() {
		env = append(env, name+"="+value)
	}
	return w, env, nil
}

// roots returns the certificates that the machine's programs trust: this host's, and the wire's own
// authority.
func roots(o Options, authority []byte) *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if o.Table != "" {
		if t, err := wire.LoadTable(o.Table); err == nil && t.Roots != nil {
			pool = t.Roots.Clone()
		}
	}
	pool.AppendCertsFromPEM(authority)
	return pool
}

// Close ends it.
func (w *way) Close() {
	w.HTTP.Close()
	w.undo.Run()
}
