// Package front is the stateless process before many nodes: "carrel front". It speaks the same API
// as a daemon. What must last is in PostgreSQL (package state/postgres): projects, keys and people,
// the nodes, and where each sandbox lives. So any number of fronts may run, and one that dies loses
// nothing.
//
// Calls about sandboxes go through package access to the engine, and from there to the sandbox's
// node. Requests for ports of sandboxes are passed on unchanged to the gateway of that node. Nodes
// come in through a door of their own (package fleet/door).
package front

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/certs"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/certificate"
	"github.com/carrel-dev/carrel/internal/fleet/door"
	"github.com/carrel-dev/carrel/internal/gateway"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/sshdoor"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/version"
)

// Config has the settings of a front.
type Config struct {
	Listen      string // for clients, host:port
	SSHListen   string // for SSH, host:port; "" is none
	NodesListen string // for nodes, host:port
	// State is the database's URL; StatePlain allows connections over a network without TLS.
	State      string
	StatePlain bool
	// TokenFile holds the fleet's join token, and KeyFile the administrator's API key, which is made
	// if the file is missing. All fronts have the same.
	TokenFile, KeyFile string
	// TLSCert and TLSKey are PEM files; both or neither.
	TLSCert, TLSKey string
	// Lease is how long a node is a member without a word from it; 0 is fleet.Lease. All fronts have
	// the same.
	Lease time.Duration
	// SignIn says how people sign in. All fronts have the same.
	SignIn config.SignIn
	// TrailDir is where this front keeps its audit trail; "" is no trail.
	TrailDir string
	Trail    config.Trail
	// AllowWebhooks are hosts that webhooks may be sent to wherever they are. All fronts have the same.
	AllowWebhooks []string
	// Tolerate are the taints that projects tolerate, PROJECT=TAINT.
	Tolerate            []string
	LogFormat, LogLevel string
}

// Front is a front. New makes it, Serve runs it, Close ends it.
type Front struct {
	cfg  Config
	log  *slog.Logger
	key  string
	made bool // the key, at this start
	url  string

	store     *postgres.Store
	registry  fleet.Registry
	authority fleet.Authority
	directory *access.Directory
	callers   *access.Authenticator
	door      *door.Door
	nodes     *nodes
	engine    *engine.Engine
	core      *core
	builds    *builds
	hooks     *hooks
	proxy     *proxy
	certs     certs.Source // nil without TLS

	trail   *trail.Trail // nil without a directory
	sshKeys *sshdoor.SharedKeys
	sshDoor *sshdoor.Door // nil without an address
	hostKey string        // the fingerprint of the SSH host key

	listener, nodesListener net.Listener
	sshListener             net.Listener
	server                  *http.Server
	ready                   atomic.Bool
	stopping                chan struct{}
	stopOnce                sync.Once
	undo                    cleanup.Stack
}

// New opens everything that a front needs. On an error nothing is left open.
func New(ctx context.Context, cfg Config, log *slog.Logger) (_ *Front, err error) {
	f := &Front{cfg: cfg, log: log, stopping: make(chan struct{})}
	defer func() {
		if err != nil {
			f.undo.Run()
		}
	}()
	usual, s := config.Default().SignIn, &f.cfg.SignIn
	s.Browser, s.Idle, s.Token = cmp.Or(s.Browser, usual.Browser), cmp.Or(s.Idle, usual.Idle), cmp.Or(s.Token, usual.Token)
	if f.cfg.Lease == 0 {
		f.cfg.Lease = fleet.Lease
	}
	if f.cfg.Lease < fleet.ShortestLease || f.cfg.Lease > time.Hour {
		return nil, &carrel.Error{Op: "start front", Kind: carrel.Invalid, Field: "node-lease",
			Err: fmt.Errorf("%v: a lease lasts %v to an hour", cfg.Lease, fleet.ShortestLease)}
	}
	token, err := daemon.ReadToken(cfg.TokenFile)
	if err != nil {
		return nil, err
	}
	if f.key, f.made, err = adminKey(cfg.KeyFile); err != nil {
		return nil, err
	}
	if f.listener, err = f.listen("listen", cfg.Listen); err != nil {
		return nil, err
	}
	if f.nodesListener, err = f.listen("nodes-listen", cfg.NodesListen); err != nil {
		return nil, err
	}
	if cfg.SSHListen != "" {
		if f.sshListener, err = f.listen("ssh-listen", cfg.SSHListen); err != nil {
			return nil, err
		}
	}
	if err := f.openTrail(ctx); err != nil {
		return nil, err
	}
	if err := f.openStore(ctx, token); err != nil {
		return nil, err
	}
	if err := f.openEngine(); err != nil {
		return nil, err
	}
	return f, f.openDoors()
}

// listen opens a listener.
func (f *Front) listen(flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Field: flag, Err: err,
			Hint: "another program has this address; choose one with --" + flag}
	}
	f.undo.Add(func() { _ = l.Close() })
	return l, nil
}

// adminKey reads the administrator's key, or makes it.
func adminKey(file string) (key string, made bool, err error) {
	bad := func(err error) error {
		return &carrel.Error{Op: "read API key", Kind: carrel.Invalid, Field: "api-key-file", Err: err,
			Hint: "it holds one key: e2b_ and 40 hexadecimal digits. Remove it to have one made"}
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		if key = strings.TrimSpace(string(raw)); len(key) < 20 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return "", false, bad(fmt.Errorf("%s does not hold a key of 20 or more printable characters", file))
		}
		return key, false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", false, bad(err)
	}
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	key = "e2b_" + hex.EncodeToString(b[:])
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", false, bad(err)
	}
	if err := atomicfile.Write(file, []byte(key+"\n"), 0o600); err != nil {
		return "", false, bad(err)
	}
	return key, true, nil
}

// stateTime bounds a call of the database: a front whose database is away says so soon.
const stateTime = 3 * time.Second

// openStore opens the database, and what of it this front keeps in memory.
func (f *Front) openStore(ctx context.Context, token string) (err error) {
	if f.store, err = postgres.Open(ctx, postgres.Options{URL: f.cfg.State, Plain: f.cfg.StatePlain,
		Timeout: stateTime}); err != nil {
		return err
	}
	f.undo.Add(func() { _ = f.store.Close() })
	if f.directory, err = access.OpenDirectory(ctx, f.store, f.log); err != nil {
		return err
	}
	f.directory.Share()
	f.undo.Add(func() { _ = f.directory.Close() })
	f.callers = access.NewAuthenticator(access.Key{Name: "api-key", Secret: f.key, Role: carrel.RoleAdmin})
	f.callers.Use(f.directory)

	shared := f.store.Fleet().Under(f.directory.Quotas)
	f.registry, f.sshKeys = shared, sshdoor.NewSharedKeys(shared, f.log)
	registry := f.registry
	first, err := certificate.NewAuthority()
	if err != nil {
		return err
	}
	if f.authority, err = registry.Authority(ctx, first); err != nil {
		return err
	}
	issuer, err := certificate.NewIssuer(f.authority)
	if err != nil {
		return err
	}
	f.nodes = newNodes(registry, issuer, f.log)
	f.door, err = door.New(door.Options{Registry: registry, Issuer: issuer, Token: token, Changed: f.nodes.soon,
		Lease: f.cfg.Lease, Log: f.log})
	if err != nil {
		return err
	}
	f.nodes.own = f.door.Certificate
	f.undo.Add(f.nodes.close)
	return f.nodes.read(ctx)
}

// openEngine opens the engine over the nodes.
func (f *Front) openEngine() (err error) {
	tolerates := map[string]bool{}
	for _, t := range f.cfg.Tolerate {
		tolerates[t] = true
	}
	tolerate := func(project, taint string) bool { return tolerates[project+"="+taint] }
	registry := f.registry
	homes := newHomes(registry, f.nodes, f.log)
	f.nodes.behalf = behalf(f.directory.Ceilings, homes)
	f.engine, err = engine.New(engine.Options{Nodes: f.nodes, Dial: f.nodes.dial, Owners: homes, Log: f.log,
		Tolerates: tolerate})
	if err != nil {
		return err
	}
	f.undo.Add(func() { _ = f.engine.Close() })
	f.nodes.engine, f.nodes.lost = f.engine, homes.lives.endAll
	f.core = &core{Engine: f.engine, homes: homes, nodes: f.nodes, events: f.store,
		templates: newTemplates(f.engine, f.nodes, f.log), vault: newVault(registry, f.nodes, f.authority.Key, f.log)}
	f.core.shares = &shares{registry: registry, quotas: f.directory.Quotas, limits: config.Default().Limits, find: f.core.templates.get,
		engine: f.engine, events: f.store, log: f.log, held: map[int64]holding{}}
	f.builds = newBuilds(f.nodes, f.core.templates, tolerate, f.log)
	f.proxy = newProxy(homes, f.nodes, f.callers)
	f.undo.Add(f.proxy.close)
	return nil
}

// openDoors makes the handlers for clients.
func (f *Front) openDoors() (err error) {
	f.url = "http://" + reachable(f.listener.Addr())
	if f.cfg.TLSCert != "" {
		f.url = "https://" + reachable(f.listener.Addr())
	}
	service := access.New(access.Options{Core: f.core, Builds: f.builds, Usage: f.ledgers(), SSHKeys: f.sshKeys, Secrets: f.core.vault.of, Ceilings: f.directory.Ceilings})
	if err := f.openSSH(service); err != nil {
		return err
	}
	if err := f.openHooks(); err != nil {
		return err
	}
	people := access.NewPeople(service, f.directory)
	overseer := access.NewOverseer(f.directory, carrel.NoMetering{}, host{f.core}, f.log)
	allowances := access.NewAllowances(people, overseer, func(carrel.Holder) int { return 0 }, false)
	defaults := config.Default()
	persons, pages, err := f.openSignIns(people)
	if err != nil {
		return err
	}
	control := api.New(api.Options{
		Service: service, Builds: service, UploadKey: derived(f.authority.Key, "carrel fleet uploads"), Callers: f.callers, Version: version.Version, Limits: defaults.Limits, MaxTimeout: defaults.MaxTimeout,
		People: countedPeople{people}, Persons: persons, Trails: f.trails(service), Journal: f.journal(), Webhooks: access.Webhooks{Service: service, Of: f.hooks.view.For}, Allowances: allowancesOf{Allowances: allowances}, Nodes: access.Nodes{Service: service, Core: fleetNodes{f.core}},
		Ready: f.ready.Load, Done: f.stopping, Log: f.log,
	})
	if f.cfg.TLSCert != "" {
		if f.certs, err = certs.Files(f.cfg.TLSCert, f.cfg.TLSKey, f.log); err != nil {
			return err
		}
		f.undo.Add(func() { _ = f.certs.Close() })
	}
	f.server = daemon.NewServer(request.Wrap(f.proxy.Wrap(pages(control))), f.log)
	return nil
}

// ledgers are the ledgers of the nodes.
func (f *Front) ledgers() ledgers { return ledgers{f.registry, f.nodes, f.log} }

// reachable is an address under which this machine reaches a listener.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
	}
	return addr.String()
}

// URL is where clients on this machine reach the front.
func (f *Front) URL() string { return f.url }

// NodesURL is where nodes on this machine reach the front.
func (f *Front) NodesURL() string { return "https://" + reachable(f.nodesListener.Addr()) }

// Key is the administrator's API key. Made says that it was made at this start.
func (f *Front) Key() (key string, made bool) { return f.key, f.made }

// drainTime bounds how long running requests may take after the front was told to stop.
const drainTime = 10 * time.Second

// Serve serves requests until ctx ends, then drains, and returns nil.
func (f *Front) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait
	for _, run := range []func(context.Context){f.nodes.run, f.core.templates.run, f.builds.run, f.core.vault.run, f.core.shares.run, f.ledgers().run, f.directory.Tend, fleetNodes{f.core}.undertake, f.followPeople, f.hooks.run} {
		wg.Go(func() { run(ctx) })
	}
	if f.certs != nil {
		wg.Go(func() {
			if err := f.certs.Run(ctx); err != nil && ctx.Err() == nil {
				f.log.Error("keep the certificate", "err", err)
			}
		})
	}
	if f.sshDoor != nil {
		wg.Go(func() { f.serveSSH(ctx) })
	}
	failed := make(chan error, 2)
	go func() { failed <- f.door.Serve(ctx, f.nodesListener) }()
	served := make(chan struct{})
	go func() {
		defer close(served)
		failed <- f.server.Serve(f.strict())
	}()
	f.ready.Store(true)
	f.log.Info("ready", "url", f.URL(), "nodes", f.NodesURL())
	select {
	case err := <-failed:
		return &carrel.Error{Op: "serve", Kind: carrel.Internal, Err: err}
	case <-ctx.Done():
	}
	f.ready.Store(false)
	f.stopOnce.Do(func() { close(f.stopping) })
	dctx, done := context.WithTimeout(context.Background(), drainTime)
	defer done()
	if f.server.Shutdown(dctx) != nil {
		_ = f.server.Close() // streams to sandboxes never end by themselves
	}
	<-served
	return nil
}

// strict is the listener for clients, with TLS if it is served, and the check of requests.
func (f *Front) strict() net.Listener {
	l := f.listener
	if f.certs != nil {
		l = daemon.NewTLSListener(l, f.certs.TLSConfig())
	}
	return gateway.StrictListener(l)
}

// peopleEvery is how often a front looks for changes of other fronts to projects, keys and people.
const peopleEvery = time.Second

// followPeople takes over what other fronts changed, until ctx ends.
func (f *Front) followPeople(ctx context.Context) {
	tick := time.NewTicker(peopleEvery)
	defer tick.Stop()
	var last int64 = -1
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := f.store.PeopleVersion(ctx)
		if err == nil && now != last {
			if err = f.directory.Reload(ctx); err == nil {
				last = now
			}
		}
		if err != nil && ctx.Err() == nil {
			f.log.Warn("read projects, keys and people", "err", err)
		}
	}
}

// Close ends the front. Nodes and sandboxes live on.
func (f *Front) Close() error {
	f.stopOnce.Do(func() { close(f.stopping) })
	_ = f.server.Close()
	f.undo.Run()
	return nil
}
