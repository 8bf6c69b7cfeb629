// Command carrel-guest is the first process inside a sandbox. It serves the envd protocol (package
// agent) for the real Linux (package oshost) and reaps orphans. It also prepares an image without
// users, /tmp or resolv.conf for work.
//
// A program inside can run it as "carrel-guest checkpoint". It then asks the host for a snapshot of
// the sandbox. Like fork, this returns in each copy that is made from the snapshot: the sandbox
// that asked gets the snapshot's id, a restored one its generation.
//
// As "carrel-guest bundle" it packs and unpacks files for a build (package bundle).
//
// As "carrel-guest interpreter" it runs cells of code on port 49999 (package interpreter).
//
// As "carrel-guest token" it asks the host for one of the sandbox's identity tokens and prints it.
//
// It listens before it does anything else. The host may connect from the first millisecond, and its
// first request waits for the rest of the start.
//
//go:debug decoratemappings=0
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/bundle"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/rest"
	"github.com/carrel-dev/carrel/internal/version"
)

// Memory limits of the guest, because it uses the sandbox's memory. memoryLimit is soft: near it
// the collector works harder.
//
// Memory that the guest allocates while it starts mostly stays in use. So it does not collect in
// the first seconds: a collection would delay the first command of the sandbox's new owner. The end
// of the rest (package rest) must not do that either. Go's runtime keeps a third of restRoom. The
// collector begins at 70 % of the remaining room and the memory in use together, which is after
// some forty commands.
const (
	gcPercent    = 50
	startPercent = 400
	memoryLimit  = 48 << 20
	startTime    = 3 * time.Second
	restRoom     = 3 << 20
)

// options are the command line.
type options struct {
	listen  string
	gateway []netip.Addr
	setup   bool
	machine bool
	log     *slog.Logger
}

func main() {
	runtime.MemProfileRate = 0 // nobody reads the profile; its tables cost 1.4 MB
	debug.SetGCPercent(startPercent)
	debug.SetMemoryLimit(memoryLimit)
	var (
		listen  = flag.String("listen", ":49983", "address to serve on")
		gateway = flag.String("gateway", "", "comma-separated addresses of the host's end of the link, which alone may call /init and the tunnel; the first IPv4 one is also the name server")
		machine = flag.Bool("machine", false, "the kernel is the sandbox's own: a virtual machine's")
		noSetup = flag.Bool("no-setup", false, "run as an ordinary process: change nothing on this machine")
		_       = flag.String("mark", "", "means nothing: by it the host tells its processes apart")
		show    = flag.Bool("version", false, "print the version and exit")
	)
	if asksForModule(os.Args) {
		if err := modprobe(os.Args[3]); err != nil {
			report(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "checkpoint" {
		if err := checkpoint(os.Args[2:], os.Stdout); err != nil {
			report(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "token" {
		if err := token(os.Args[2:], os.Stdout); err != nil {
			report(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "interpreter" {
		err := interpret(os.Args[2:], os.Stdout, os.Stderr)
		if errors.Is(err, errSignalled) {
			os.Exit(statusSignalled)
		}
		if err != nil {
			report(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "bundle" {
		if err := bundle.Carry(context.Background(), os.Args[2], os.Stdout); err != nil {
			report(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if *show {
		fmt.Println(version.Version)
		return
	}
	opt := options{listen: *listen, setup: !*noSetup, machine: *machine, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	err := errors.New("unexpected arguments: " + strings.Join(flag.Args(), " "))
	if flag.NArg() == 0 {
		if opt.gateway, err = parseAddrs(*gateway); err == nil {
			err = run(opt)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "carrel-guest:", err)
		os.Exit(1)
	}
}

// parseAddrs reads a list of IP addresses with commas.
func parseAddrs(list string) ([]netip.Addr, error) {
	var out []netip.Addr
	for s := range strings.SplitSeq(list, ",") {
		if s == "" {
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("-gateway: %w", err)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// run serves until a signal stops it.
func run(opt options) error {
	var phases guest.Phases
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go rest.Run(rest.Options{First: startTime, Young: true, Percent: gcPercent, Room: restRoom})
	phases.End("main")
	if err := oshost.CloseOnExec(); err != nil {
		opt.log.Warn("inherited descriptors", "err", err)
	}
	l, err := net.Listen("tcp", opt.listen)
	if err != nil {
		return err
	}
	phases.End("listen")
	syscall.Umask(0o022)
	sys := oshost.New(oshost.Options{Own: opt.setup, Logger: opt.log})
	setup := sync.OnceFunc(func() {
		if !opt.setup {
			return
		}
		if err := sys.Setup(nameServer(opt.gateway)); err != nil {
			opt.log.Warn("setup", "err", err) // most things work without it; the rest returns an error
		}
	})
	cfg := agent.Config{System: sys, Logger: opt.log, Trusted: trust(opt.gateway), Announce: opt.setup, Denials: opt.setup, Setup: setup, Phases: &phases, Checkpoint: hostDoor(opt.gateway), Revive: isInterpreter}
	if opt.machine {
		cfg.Machine = oshost.Machine{}
	}
	a := agent.New(cfg)
	phases.End("agent")
	srv := newServer(a.Handler(), opt.log)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(a.Listen(l)) }()
	phases.End("serve")
	setup()
	phases.End("setup")
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
	}
	a.Close()
	if os.Getpid() == 1 {
		oshost.KillAll()
	}
	_ = srv.Close() // its streams ended with the agent
	<-done
	return sys.Close()
}

// newServer returns the HTTP server, with HTTP/1 and HTTP/2 without TLS on one port. The link is
// private, and clients' TLS ends at the gateway.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ConnContext:       agent.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		// Longer than the gateway's own timeout, so that the gateway closes idle connections.
		IdleTimeout:    640 * time.Second,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// trust returns the function that recognises the host: a peer with one of its addresses. No process
// inside can have one, because the link carries only the host's packets.
func trust(gateway []netip.Addr) func(net.Addr) bool {
	return func(remote net.Addr) bool {
		tcp, ok := remote.(*net.TCPAddr)
		if !ok {
			return false
		}
		peer := tcp.AddrPort().Addr().Unmap().WithZone("")
		for _, g := range gateway {
			if peer == g {
				return true
			}
		}
		return false
	}
}

// hostDoor returns the function that asks the host for a checkpoint, nil without a host.
func hostDoor(gateway []netip.Addr) func(context.Context, guest.CheckpointRequest) (guest.CheckpointReply, error) {
	if len(gateway) == 0 {
		return nil
	}
	return guest.Host{Dial: dialHost(netip.AddrPortFrom(gateway[0], guest.HostPort).String())}.Checkpoint
}

// nameServer returns the address of the name server, "" for none.
func nameServer(gateway []netip.Addr) string {
	for _, g := range gateway {
		if g.Is4() {
			return g.String()
		}
	}
	return ""
}
