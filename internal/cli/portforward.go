package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

const (
	forwardMost = 512              // connections at once
	forwardWait = 2 * time.Minute  // bounds the wake-up of a sandbox and a port's answer
	keepAlive   = 30 * time.Second // of the local connections
)

// portForwardCommand is "carrel port-forward".
func (a *app) portForwardCommand() *cobra.Command {
	var reverse []string
	c := &cobra.Command{
		Use:   "port-forward ID [LOCAL:]REMOTE… [-R GUESTPORT:HOST:PORT]…",
		Short: "Reach a sandbox's TCP ports on this machine's loopback, or the other way round",
		Long: `Listens on 127.0.0.1 and carries each connection to a port of the sandbox,
through the daemon: whatever protocol it is, and whether the program inside listens
on all of its addresses or on its loopback. LOCAL is the port here (0: a free one;
default: the same as REMOTE). A paused sandbox that resumes by itself is woken by
the first connection. It runs until it is interrupted.

With -R it listens in the sandbox, on 127.0.0.1:GUESTPORT (0: a free one), and carries each
connection to HOST:PORT as this machine knows it. Programs in the sandbox so reach what
only this machine reaches, whatever the sandbox's policy says, until the command ends.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 1 && len(reverse) == 0 {
				return errors.New("name a sandbox and a port of it, or give -R")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			id, err := carrel.ParseID(args[0])
			if err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				return reverseCommands{a}.both(c.Context(), svc, id, args[1:], reverse)
			})
		},
	}
	c.Flags().StringArrayVarP(&reverse, "reverse", "R", nil, "GUESTPORT:HOST:PORT: listen in the sandbox, and lead to HOST:PORT here (repeat)")
	return c
}

// forwarding forwards one port.
type forwarding struct {
	listener net.Listener
	remote   uint16
}

// portForward listens until ctx ends.
func (a *app) portForward(ctx context.Context, svc carrel.Service, id carrel.ID, specs []string) error {
	var all []forwarding
	defer func() {
		for _, f := range all {
			_ = f.listener.Close()
		}
	}()
	if _, err := svc.Get(ctx, id); err != nil {
		return err
	}
	for _, spec := range specs {
		local, remote, err := parseForward(spec)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
		if err != nil {
			return &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Err: err, Hint: fmt.Sprintf("choose another port, or any free one with 0:%d", remote)}
		}
		all = append(all, forwarding{l, remote})
	}
	report := &forwardReport{a: a}
	for _, f := range all {
		report.listening(f)
	}
	slots := make(chan struct{}, forwardMost)
	going, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	wg.Go(func() { // wait for it: while the first Close runs, a second returns at once although the socket is still open
		<-going.Done()
		for _, f := range all {
			_ = f.listener.Close()
		}
	})
	for _, f := range all {
		wg.Go(func() {
			for {
				slots <- struct{}{}
				c, err := f.listener.Accept()
				if err != nil {
					<-slots
					fail(err)
					return
				}
				wg.Go(func() {
					defer func() { <-slots }()
					if err := carry(going, svc, id, f.remote, c); err != nil {
						report.failed(f, err)
					}
				})
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil // an interrupt is its normal end
	}
	return fmt.Errorf("take connections: %w", context.Cause(going))
}

// parseForward reads [LOCAL:]REMOTE.
func parseForward(spec string) (local, remote uint16, err error) {
	first, second, both := strings.Cut(spec, ":")
	if !both {
		second = first
	}
	l, lerr := strconv.ParseUint(first, 10, 16)
	r, rerr := strconv.ParseUint(second, 10, 16)
	switch {
	case lerr != nil || rerr != nil || r == 0:
		return 0, 0, usage(fmt.Errorf("%q is not [LOCAL:]REMOTE, such as 8080:3000", spec))
	case r == uint64(carrel.GuestPort):
		return 0, 0, &carrel.Error{Op: "forward port", Kind: carrel.Forbidden, Field: "port",
			Err:  fmt.Errorf("port %d is the sandbox's own guest", r),
			Hint: "everyone on this machine could use it as the daemon does; use carrel exec and carrel cp"}
	}
	return uint16(l), uint16(r), nil
}

// carry connects one client with the sandbox's port and copies until both directions are done.
func carry(ctx context.Context, svc carrel.Service, id carrel.ID, port uint16, outside net.Conn) error {
	tcp := outside.(*net.TCPConn)
	fail := func() {
		_ = tcp.SetLinger(0) // a reset is never taken for an orderly end
		_ = tcp.Close()
	}
	_ = tcp.SetKeepAlivePeriod(keepAlive)
	dialing, cancel := context.WithTimeout(ctx, forwardWait)
	defer cancel()
	comp, err := computer(dialing, svc, id)
	if err != nil {
		fail()
		return err
	}
	inside, err := comp.Dial(dialing, port)
	if err != nil {
		fail()
		if errors.Is(err, syscall.ECONNREFUSED) {
			return &carrel.Error{Op: "forward port", Kind: carrel.Unavailable, ID: id, Err: fmt.Errorf("nothing listens on port %d in the sandbox", port)}
		}
		return err
	}
	broken := func() { fail(); _ = inside.Close() }
	defer context.AfterFunc(ctx, broken)()
	copyBoth(inside, outside, broken)
	_ = inside.Close()
	_ = outside.Close()
	return nil
}

// copyBoth copies between two connections until both directions have ended. The end of one
// direction is passed on. Where that is not possible, and after an error, it calls broken, which
// must end both connections.
func copyBoth(a, b net.Conn, broken func()) {
	var wg sync.WaitGroup
	pump := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		half, ok := to.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			broken()
		}
	}
	wg.Go(func() { pump(a, b) })
	wg.Go(func() { pump(b, a) })
	wg.Wait()
}

// forwardReport describes forwardings, one line each.
type forwardReport struct {
	a  *app
	mu sync.Mutex
}

func (r *forwardReport) listening(f forwarding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr := f.listener.Addr().(*net.TCPAddr)
	if r.a.json {
		_ = r.a.printJSON(map[string]any{"event": "listening", "address": addr.String(), "local": addr.Port, "remote": f.remote})
		return
	}
	fmt.Fprintf(r.a.out, "%s -> %d\n", addr, f.remote)
}

func (r *forwardReport) failed(f forwarding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.a.json {
		_ = r.a.printJSON(map[string]any{"event": "failed", "local": f.listener.Addr().(*net.TCPAddr).Port, "remote": f.remote, "error": err.Error(), "hint": carrel.HintOf(err)})
		return
	}
	r.a.report(err)
}
