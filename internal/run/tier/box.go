//go:build linux

package tier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	_ "github.com/carrel-dev/carrel/local" // the service in this process
)

// box is a private service with one sandbox.
type box struct {
	req   *Request
	svc   carrel.Service
	id    carrel.ID
	comp  carrel.Computer
	user  string // that the command runs as
	start time.Time

	stop  context.CancelFunc // ends the goroutines
	wg    sync.WaitGroup
	mu    sync.Mutex
	heard int64             // the last decision that was reported
	ended chan carrel.Event // an end of the sandbox that we did not ask for
}

// lifetime is a sandbox's timeout. Every renewal, the runner extends it.
const (
	lifetime = 24 * time.Hour
	renewal  = time.Hour
)

// openBox makes a sandbox with the working directory in it, still empty.
func openBox(ctx context.Context, r Request, st *state) (_ *box, err error) {
	b := &box{req: &r, user: "user", start: time.Now(), stop: func() {}, ended: make(chan carrel.Event, 1)}
	if os.Geteuid() == 0 {
		b.user = "root"
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	err = st.within(func() (err error) {
		b.svc, err = carrel.Open(ctx, carrel.Config{Tier: r.Tier})
		return err
	})
	if err != nil {
		return nil, err
	}
	opts := carrel.CreateOptions{Tier: r.Tier, Timeout: lifetime, Network: r.Network,
		Limits: carrel.Limits{CPUs: r.CPUs, MemoryMB: r.MemoryMB, Pids: r.Pids}}
	if r.Tier != carrel.Sim {
		opts.Template = "host" // a box has this machine's programs, whatever base is
	}
	sb, err := b.svc.Create(ctx, opts)
	if err != nil {
		return nil, err
	}
	b.id = sb.ID
	if b.comp, err = b.svc.Computer(ctx, sb.ID); err != nil {
		return nil, err
	}
	gctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = cancel
	b.wg.Go(func() { b.renew(gctx) })
	b.wg.Go(func() { b.mourn(gctx) })
	if r.Denied != nil {
		b.wg.Go(func() { b.listen(gctx, true) })
	}
	return b, b.makeDirs(ctx)
}

// makeDirs makes the working directory, and the home in the environment, and gives them to the
// command's user.
func (b *box) makeDirs(ctx context.Context) error {
	dirs := []string{b.req.Dir}
	if home := b.req.environment()["HOME"]; strings.HasPrefix(home, "/") && home != "/" {
		dirs = append(dirs, home)
	}
	script := `mkdir -p -- "$@" && chown "$U" -- "$@"`
	if _, err := b.inside(ctx, "make the working directory", carrel.Command{User: "root", Env: map[string]string{"U": b.user},
		Args: append([]string{"/bin/bash", "-c", script, "bash"}, dirs...)}); err != nil {
		return err
	}
	return nil
}

// inside runs a program of ours in the sandbox. It must succeed.
func (b *box) inside(ctx context.Context, what string, cmd carrel.Command) (*carrel.Result, error) {
	cmd.Dir = "/"
	res, err := b.comp.Run(ctx, cmd)
	if err != nil {
		return res, err
	}
	if res.ExitCode != 0 {
		text := res.Status
		if first, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n"); first != "" {
			text = first
		}
		return res, &carrel.Error{Op: what, Kind: carrel.Internal, ID: b.id, Err: fmt.Errorf("in the sandbox: %q", text)}
	}
	return res, nil
}

// renew keeps the sandbox alive.
func (b *box) renew(ctx context.Context) {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = b.svc.SetTimeout(ctx, b.id, lifetime, true) // next time, then
		}
	}
}

// mourn waits for the sandbox's end.
func (b *box) mourn(ctx context.Context) {
	for e, err := range b.svc.Events(ctx, 0) {
		if err != nil {
			return
		}
		if e.ID == b.id && e.Type == "sandbox.ended" {
			b.ended <- e
			return
		}
	}
}

// listen reports the network's refusals: as they happen, or those that are left to report.
func (b *box) listen(ctx context.Context, follow bool) {
	refused := false
	b.mu.Lock()
	o := carrel.AuditOptions{ID: b.id, Since: b.start, Allowed: &refused, After: b.heard, Follow: follow, Limit: 10_000}
	b.mu.Unlock()
	for d, err := range b.svc.Audit(ctx, o) {
		if err != nil {
			return
		}
		b.mu.Lock()
		b.heard = d.Seq
		b.mu.Unlock()
		b.req.Denied(d)
	}
}

// close ends the sandbox and the service.
func (b *box) close() error {
	if b.svc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if b.id != "" {
		if err = b.svc.Kill(ctx, b.id); carrel.KindOf(err) == carrel.NotFound {
			err = nil
		}
	}
	b.stop()
	b.wg.Wait()
	if b.req.Denied != nil && b.id != "" {
		b.listen(ctx, false) // what came in the last moment
	}
	return errors.Join(err, b.svc.Close())
}
