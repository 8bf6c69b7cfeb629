package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// reverseWait bounds the dial to the target of a reverse forward.
const reverseWait = 10 * time.Second

// reverseCommands forward ports of a sandbox to targets that this machine reaches.
type reverseCommands struct{ *app }

// reversal is one port of a sandbox, and its target.
type reversal struct {
	inside uint16
	to     string // HOST:PORT, as this machine knows it
}

// parseReversal reads GUESTPORT:HOST:PORT.
func parseReversal(spec string) (reversal, error) {
	first, to, _ := strings.Cut(spec, ":")
	inside, err := strconv.ParseUint(first, 10, 16)
	host, port, serr := net.SplitHostPort(to)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || serr != nil || perr != nil || n == 0 || host == "" {
		return reversal{}, usage(fmt.Errorf("-R %q is not GUESTPORT:HOST:PORT, such as 9000:localhost:3000", spec))
	}
	return reversal{uint16(inside), to}, nil
}

// run listens in the sandbox until ctx ends.
func (a reverseCommands) run(ctx context.Context, svc carrel.Service, id carrel.ID, specs []string) error {
	var all []reversal
	for _, spec := range specs {
		r, err := parseReversal(spec)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	comp, err := computer(ctx, svc, id)
	if err != nil {
		return err
	}
	var listeners []net.Listener
	closeAll := func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
	defer closeAll()
	for i, r := range all {
		l, err := comp.Listen(ctx, r.inside)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		all[i].inside = uint16(l.Addr().(*net.TCPAddr).Port)
	}
	report := &reverseReport{a: a.app}
	for _, r := range all {
		report.say(r, "listening", nil)
	}
	going, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(going, closeAll)()
	slots := make(chan struct{}, forwardMost)
	var wg sync.WaitGroup
	for i, l := range listeners {
		wg.Go(func() {
			for {
				slots <- struct{}{}
				c, err := l.Accept()
				if err != nil {
					<-slots
					fail(err)
					return
				}
				wg.Go(func() {
					defer func() { <-slots }()
					if err := lead(going, c, all[i].to); err != nil {
						report.say(all[i], "failed", err)
					}
				})
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil // an interrupt is its usual end
	}
	return context.Cause(going)
}

// lead connects a program inside with the target of its port, and copies until both directions end.
func lead(ctx context.Context, inside net.Conn, to string) error {
	dialing, cancel := context.WithTimeout(ctx, reverseWait)
	defer cancel()
	var d net.Dialer
	outside, err := d.DialContext(dialing, "tcp", to)
	if err != nil {
		_ = inside.Close()
		return &carrel.Error{Op: "forward port", Kind: carrel.Unavailable, Err: err}
	}
	broken := func() { _, _ = inside.Close(), outside.Close() }
	defer broken()
	defer context.AfterFunc(ctx, broken)()
	copyBoth(inside, outside, broken)
	return nil
}

// reverseReport prints reverse forwards, one line each.
type reverseReport struct {
	a  *app
	mu sync.Mutex
}

func (r *reverseReport) say(v reversal, event string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.a.json && err != nil:
		_ = r.a.printJSON(map[string]any{"event": event, "reverse": true, "remote": v.inside, "to": v.to, "error": err.Error(), "hint": carrel.HintOf(err)})
	case r.a.json:
		_ = r.a.printJSON(map[string]any{"event": event, "reverse": true, "remote": v.inside, "to": v.to})
	case err != nil:
		r.a.report(err)
	default:
		fmt.Fprintf(r.a.out, "sandbox 127.0.0.1:%d -> %s\n", v.inside, v.to)
	}
}

// both forwards in both directions until ctx ends or one of them fails.
func (a reverseCommands) both(ctx context.Context, svc carrel.Service, id carrel.ID, out, in []string) error {
	if len(in) == 0 {
		return a.portForward(ctx, svc, id, out)
	}
	if len(out) == 0 {
		return a.run(ctx, svc, id, in)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- a.portForward(ctx, svc, id, out) }()
	go func() { ended <- a.run(ctx, svc, id, in) }()
	err := <-ended
	cancel()
	return errors.Join(err, <-ended)
}
