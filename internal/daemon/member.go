package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/member"
	"github.com/carrel-dev/carrel/internal/gateway"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/version"
)

// openFleet makes the daemon a node, if its configuration says so. Its sandboxes are held until a
// front has said which of them are still its own.
func (d *Daemon) openFleet() error {
	cfg := d.cfg.Fleet
	if len(cfg.Join) == 0 {
		return nil
	}
	token, err := ReadToken(cfg.TokenFile)
	if err != nil {
		return err
	}
	name := cfg.Name
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return &carrel.Error{Op: "join fleet", Kind: carrel.Internal, Field: "node-name", Err: err, Hint: "give this node a name with --node-name"}
		}
		name = strings.ToLower(host)
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return &carrel.Error{Op: "listen for fronts", Kind: carrel.Unavailable, Field: "fleet-listen", Err: err,
			Hint: "another program has this address; choose one with --fleet-listen"}
	}
	d.own.add(l.Addr().String())
	d.undo.Add(func() { _ = l.Close() })
	url := cfg.URL
	if url == "" {
		if url, err = ownURL(l.Addr(), cfg.Join[0]); err != nil {
			return err
		}
	}
	d.tether = service.TetherOf(d.parts.Service)
	locals := &locals{d: d, movement: service.MovementOf(d.parts.Service)}
	d.member, err = member.New(member.Options{Fronts: cfg.Join, Name: name, Token: token, Dir: filepath.Join(d.cfg.DataDir, "fleet"),
		URL: url, Key: d.key, Version: version.Version, Taints: cfg.Taints, Sandboxes: locals, Log: d.log})
	if err != nil {
		return err
	}
	d.fleetListener = l
	d.tether.Use(d.member)
	d.tether.Hold(errors.New("the node has not joined its fleet yet"))
	return nil
}

// ReadToken reads a join token. Error: Invalid.
func ReadToken(file string) (string, error) {
	raw, err := os.ReadFile(file)
	token := strings.TrimSpace(string(raw))
	if err == nil && strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		err = errors.New("it holds more than one word of printable characters")
	}
	if err != nil {
		return "", &carrel.Error{Op: "read join token", Kind: carrel.Invalid, Field: "join-token-file", Err: err,
			Hint: "openssl rand -hex 32 makes one; fronts and nodes need the same"}
	}
	return token, nil
}

// ownURL is how fronts reach a listener: on the address from which this machine reaches them.
func ownURL(addr net.Addr, front string) (string, error) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("%v is no TCP address", addr)
	}
	ip := tcp.IP
	if ip.IsUnspecified() {
		host := strings.TrimSuffix(strings.TrimPrefix(front, "https://"), "/")
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(host, "443")
		}
		c, err := net.Dial("udp", host) // sends nothing: it only chooses a route
		if err != nil {
			return "", &carrel.Error{Op: "join fleet", Kind: carrel.Unavailable, Field: "fleet-url", Err: err,
				Hint: "say with --fleet-url how fronts reach this node"}
		}
		ip = c.LocalAddr().(*net.UDPAddr).IP
		_ = c.Close()
	}
	return "https://" + net.JoinHostPort(ip.String(), fmt.Sprint(tcp.Port)), nil
}

// flushTime bounds how long a daemon that stops publishes what is paused. "carrel drain" before the
// end of a pod pauses everything, and the machine may never come back.
const flushTime = 20 * time.Second

// enterFleet keeps the membership in a goroutine of wg until leave is called.
func (d *Daemon) enterFleet(ctx context.Context, wg *sync.WaitGroup) (leave func()) {
	if d.member == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { d.runFleet(ctx) })
	return sync.OnceFunc(func() {
		defer cancel()
		if !d.member.Alive() {
			return
		}
		fctx, stop := context.WithTimeout(ctx, flushTime)
		defer stop()
		if left, err := d.member.Flush(fctx); err != nil {
			d.log.Warn("some paused sandboxes can't be resumed on other nodes until this one is back", "sandboxes", left, "err", err)
		}
	})
}

// runFleet keeps the membership and serves fronts until ctx ends.
func (d *Daemon) runFleet(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); d.member.Run(ctx) }()
	srv := newServer(http.HandlerFunc(d.server.Handler.ServeHTTP), d.log)
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	l := newTLSListener(d.fleetListener, d.member.ServerConfig())
	if err := srv.Serve(gateway.StrictListener(l)); err != nil && ctx.Err() == nil {
		d.log.Error("serve fronts", "err", err)
	}
	<-done
}

// locals are the daemon's sandboxes as its membership sees them.
type locals struct {
	d        *Daemon
	movement carrel.Movement
}

var _ member.Sandboxes = (*locals)(nil)

// All implements member.Sandboxes.
func (l *locals) All(ctx context.Context) (out []member.Local, err error) {
	ctx = carrel.WithCaller(ctx, carrel.Local())
	for o := (carrel.ListOptions{Builds: true}); ; {
		p, err := l.d.parts.Service.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, sb := range p.Sandboxes {
			out = append(out, localOf(sb))
		}
		if o.Cursor = p.Next; o.Cursor == "" {
			return out, nil
		}
	}
}

// localOf is a sandbox as its membership sees it. Only a settled pause is one: while it is under
// way in either direction, there is an instance.
func localOf(sb carrel.Sandbox) member.Local {
	s := fleet.Running
	if sb.State == carrel.Paused {
		s = fleet.Paused
	}
	return member.Local{ID: sb.ID, Project: sb.Project, State: s, Load: quota.LoadOf(sb)}
}

// Find implements member.Sandboxes.
func (l *locals) Find(ctx context.Context, id carrel.ID) (member.Local, bool, error) {
	sb, err := l.d.parts.Service.Get(carrel.WithCaller(ctx, carrel.Local()), id)
	switch {
	case carrel.KindOf(err) == carrel.NotFound:
		return member.Local{}, false, nil
	case err != nil:
		return member.Local{}, false, err
	}
	return localOf(sb), true, nil
}

// changes are the events after which a sandbox's home may be another.
var changes = map[string]bool{"sandbox.created": true, "sandbox.ended": true, "sandbox.adopted": true, "sandbox.paused": true,
	"sandbox.resumed": true, "sandbox.snapshot": true, "sandbox.rolled_back": true, "sandbox.reclaimed": true,
	"sandbox.promoted": true, "sandbox.arrived": true, "sandbox.updated": true}

// Follow implements member.Sandboxes.
func (l *locals) Follow(ctx context.Context, change func(carrel.ID)) error {
	for e, err := range l.d.parts.Service.Events(carrel.WithCaller(ctx, carrel.Local()), 0) {
		if err != nil {
			return err
		}
		if changes[e.Type] && e.ID != "" {
			change(e.ID)
		}
	}
	return nil
}

// Passport implements member.Sandboxes. A running sandbox has one of its last automatic snapshot, if
// it takes such.
func (l *locals) Passport(ctx context.Context, id carrel.ID) ([]byte, error) {
	ctx = carrel.WithCaller(ctx, carrel.Local())
	sb, err := l.d.parts.Service.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	of := string(id)
	switch {
	case sb.State == carrel.Paused:
	case sb.Lifecycle.Checkpoints.Every > 0 && sb.Snapshot != "":
		of = string(sb.Snapshot)
	default:
		return nil, nil
	}
	p, err := l.movement.Publish(ctx, of)
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// Release implements member.Sandboxes.
func (l *locals) Release(ctx context.Context, id carrel.ID) error {
	return l.movement.Release(carrel.WithCaller(ctx, carrel.Local()), id)
}

// Hold implements member.Sandboxes.
func (l *locals) Hold(why error) { l.d.tether.Hold(why) }

// Unhold implements member.Sandboxes.
func (l *locals) Unhold() { l.d.tether.Unhold() }
