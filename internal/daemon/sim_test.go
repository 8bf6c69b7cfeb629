package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
)

// simulated starts a daemon on the simulated tier, and a client of it.
func simulated(t *testing.T) (*running, carrel.Service) {
	t.Helper()
	d := run(t, testConfig(t), Options{Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true})
	svc, err := client.New(d.URL(), d.Key())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return d, svc
}

// TestInside runs commands and moves files, over the client's streams and with plain requests over
// the gateway.
func TestInside(t *testing.T) {
	d, svc := simulated(t)
	ctx := t.Context()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Env: map[string]string{"WHO": "world"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(ctx, carrel.Command{Shell: "echo hello $WHO; exit 3"})
	if err != nil || string(res.Stdout) != "hello world\n" || res.ExitCode != 3 {
		t.Errorf("run: %+v %v", res, err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := c.Files("").Write(ctx, "/tmp/big", bytes.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	r, err := c.Files("").Read(ctx, "/tmp/big")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	r.Close()
	if err != nil || !bytes.Equal(raw, big) {
		t.Errorf("read back %d bytes, %v", len(raw), err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for token, status := range map[string]int{"": 401, "wrong": 401, sb.AccessToken: 200} {
		req, _ := http.NewRequest("GET", d.URL()+"/files?path=/tmp/big", nil)
		req.Header.Set("E2b-Sandbox-Id", string(sb.ID))
		if token != "" {
			req.Header.Set("X-Access-Token", token)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != status || (status == 200) != bytes.Equal(raw, big) {
			t.Errorf("token %q: %d, %d bytes", token, resp.StatusCode, len(raw))
		}
	}
	if _, err := c.Files("").Stat(ctx, "/nope"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("stat nothing: %v", err)
	}
}

// TestKillMidStream kills a sandbox while a client follows a command in it. The client must get an
// error at once.
func TestKillMidStream(t *testing.T) {
	_, svc := simulated(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sb, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Start(ctx, carrel.Command{Shell: "sleep 3000"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := svc.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait(ctx)
	if (err == nil && res.ExitCode == 0) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v %v", res, err)
	}
}

// TestManyAtOnce has 200 clients work in 20 sandboxes.
func TestManyAtOnce(t *testing.T) {
	d, svc := simulated(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	ids := make([]carrel.ID, 20)
	for i := range ids {
		wg.Go(func() {
			sb, err := svc.Create(ctx, carrel.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
			ids[i] = sb.ID
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for n := range 200 {
		wg.Go(func() {
			c, err := svc.Computer(ctx, ids[n%len(ids)])
			if err != nil {
				t.Error(err)
				return
			}
			res, err := c.Run(ctx, carrel.Command{Shell: "echo " + strings.Repeat("x", n)})
			if err != nil || len(res.Stdout) != n+1 {
				t.Errorf("%d: %+v %v", n, res, err)
			}
		})
	}
	wg.Wait()
	page, err := d.Service().List(ctx, carrel.ListOptions{Limit: 7})
	if err != nil || page.Running != len(ids) || len(page.Sandboxes) != 7 || page.Next == "" {
		t.Errorf("%d running, %d on the page, next %q, %v", page.Running, len(page.Sandboxes), page.Next, err)
	}
}
