package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/carrel-dev/carrel"
)

// warmDaemon starts a daemon that keeps n sandboxes of the base template ready, and
// waits until it has them.
func (s *session) warmDaemon(ctx context.Context, n int) (*daemon, error) {
	if !s.serveHas(ctx, "--warm-floor") {
		return nil, &carrel.Error{Op: "bench", Kind: carrel.Unsupported, Err: fmt.Errorf("%s has no warm pool (carrel serve --warm-floor)", s.o.Carrel), Hint: "build a newer one: make build"}
	}
	d, err := s.daemon(ctx, "--warm", fmt.Sprint(n), "--warm-floor", fmt.Sprintf("base=%d", n))
	if err != nil {
		return nil, err
	}
	if err := d.waitWarm(ctx, n); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// waitWarm waits until n sandboxes are ready.
func (d *daemon) waitWarm(ctx context.Context, n int) error {
	for end := time.Now().Add(5 * time.Minute); ; {
		raw, err := d.get(ctx, "/carrel/v1/pool")
		if err != nil {
			return err
		}
		var pool carrel.PoolStatus
		if err := json.Unmarshal(raw, &pool); err != nil {
			return fmt.Errorf("the pool's report: %w", err)
		}
		if pool.Ready >= n {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the pool has %d of %d sandboxes after five minutes (memory: %s) %s", pool.Ready, n, pool.Memory, pool.Problem)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// get makes a request for which the client has no call.
func (d *daemon) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-API-KEY", d.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.300s", path, res.Status, body)
	}
	return body, err
}

// rested is a runner that first waits until the pool is full again, so that no measurement runs
// during the refill.
func (d *daemon) rested(r *runner, n int) *runner {
	once := r.once
	r.once = func(ctx context.Context) (time.Duration, error) {
		if err := d.waitWarm(ctx, n); err != nil {
			return 0, err
		}
		took, err := once(ctx)
		if err == nil {
			err = d.waitWarm(ctx, n)
		}
		return took, err
	}
	return r
}
