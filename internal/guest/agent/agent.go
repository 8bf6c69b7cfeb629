package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

// Config holds the parts and settings of an [Agent].
type Config struct {
	// System is the operating system to serve. Required.
	System System
	// Logger takes errors from inside; nil discards them.
	Logger *slog.Logger
	// Trusted reports whether a peer is the host's end of the link. Only such a peer may call /init
	// and the tunnel. nil trusts nobody.
	Trusted func(remote net.Addr) bool
	// KeepAlive is how often an idle stream sends a keepalive event if the client asks for no
	// interval of its own; 0 means 30 s.
	KeepAlive time.Duration
	// DefaultUser runs requests that name no user, until /init sets another; "" means "user".
	DefaultUser string
	// DefaultWorkdir is where processes start and relative paths begin, until /init sets another;
	// "" means the user's home.
	DefaultWorkdir string
	// EnvVars are the sandbox's environment until /init sets another.
	EnvVars map[string]string
	// Announce writes the ids of the sandbox and its template to /run/e2b at /init, where E2B's
	// templates look for them. Only for a System that belongs to the sandbox alone.
	Announce bool
	// Denials records refused traffic in guest.DeniedFile. Only for a System that belongs to the
	// sandbox alone.
	Denials bool
	// OwnerLimit bounds the search for the program of a refusal, while the refusal waits; 0 is 15
	// ms.
	OwnerLimit time.Duration
	// Setup, if given, makes the System ready for work; it may be called again. Every route but
	// /health and /init waits for it.
	Setup func()
	// Phases records the phases of the start for the answer to /init; nil records none.
	Phases *guest.Phases
	// Checkpoint asks the host for a snapshot of this sandbox (see guest.Host); nil if there is no
	// host to ask.
	Checkpoint func(context.Context, guest.CheckpointRequest) (guest.CheckpointReply, error)
	// Machine is the kernel of a sandbox that has one of its own, else nil.
	Machine Machine
	// Revive, if given, says of a process that is started whether the agent starts it again whenever
	// it ends: it was killed, or exited with a status above 1.
	Revive func(tag, cmd string, args []string) bool
	// Kept bounds what is kept of processes' output.
	Kept KeptLimits
}

// Agent serves the guest's protocol for one System. It is safe for concurrent use.
type Agent struct {
	cfg Config
	sys System
	log *slog.Logger

	// ctx ends at Close, and streams and watchers end with it. Goroutines that outlive a request
	// are started with spawn, so that Close can wait for them.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// admission is held for reading while a request is admitted, and for writing while the identity
	// changes. It is taken before any other lock.
	admission sync.RWMutex
	exchanges exchanges
	conns     conns

	uptime   uptime
	procs    processes
	shelf    shelf
	reverse  reverse
	identity identity
	settling settling
	refusals refusals
	trust    trust
	uploads  uploads
	handler  http.Handler
}

// New makes an agent. The caller serves [Agent.Handler] and calls [Agent.Close].
func New(cfg Config) *Agent {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = 30 * time.Second
	}
	if cfg.OwnerLimit <= 0 {
		cfg.OwnerLimit = ownerLimit
	}
	if cfg.DefaultUser == "" {
		cfg.DefaultUser = "user"
	}
	if cfg.Trusted == nil {
		cfg.Trusted = func(net.Addr) bool { return false }
	}
	a := &Agent{cfg: cfg, sys: cfg.System, log: cfg.Logger}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.identity.reset(cfg)
	a.uptime = uptime{ctx: a.ctx, spawn: a.spawn, now: time.Now}
	a.procs.init()
	a.shelf.init(cfg.Kept)
	a.handler = a.routes()
	return a
}

// Handler returns the HTTP handler of the whole protocol.
func (a *Agent) Handler() http.Handler { return a.handler }

// Close kills every process that the agent started, ends all streams and
// watchers, and returns when their goroutines have ended.
func (a *Agent) Close() {
	a.cancel()
	a.procs.killAll()
	a.wg.Wait()
}

// spawn runs fn in a goroutine that Close waits for. fn must end soon after a.ctx ends.
func (a *Agent) spawn(fn func()) {
	a.wg.Add(1)
	go func() {
		defer a.wg.Done()
		fn()
	}()
}
