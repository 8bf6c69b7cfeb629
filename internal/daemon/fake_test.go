package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
)

// echoPort is the port on which every sandbox of the fake driver echoes bytes.
const echoPort = 7

// fakeDriver makes sandboxes that are two listeners on loopback: a guest that knows /health, /init
// and /slow, and an echo. They outlive the driver, as real ones do.
type fakeDriver struct {
	mu   sync.Mutex
	live map[carrel.ID]*fakeBox
}

func newFakeDriver() *fakeDriver { return &fakeDriver{live: map[carrel.ID]*fakeBox{}} }

func (d *fakeDriver) Info() driver.Info {
	return driver.Info{Name: "fake", Tier: carrel.Sim, Capabilities: driver.Capabilities{Recover: true}}
}
func (d *fakeDriver) Probe(context.Context) error { return nil }
func (d *fakeDriver) Close() error                { return nil }

func (d *fakeDriver) Report(context.Context) []driver.Finding {
	return []driver.Finding{{What: "nothing is real", Why: "this is a fake"}}
}

func (d *fakeDriver) Create(_ context.Context, spec driver.Spec) (driver.Instance, error) {
	b := &fakeBox{id: spec.ID, ended: make(chan struct{})}
	b.guest = httptest.NewServer(http.HandlerFunc(b.serve))
	var err error
	if b.echo, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	b.wg.Go(func() {
		for {
			c, err := b.echo.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() {
				defer c.Close()
				stop := context.AfterFunc(b.ctx(), func() { c.Close() })
				defer stop()
				_, _ = io.Copy(c, c)
			})
		}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[spec.ID] = b
	b.gone = func() { d.mu.Lock(); delete(d.live, spec.ID); d.mu.Unlock() }
	return b, nil
}

func (d *fakeDriver) Recover(_ context.Context, h driver.Handle) (driver.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.live[carrel.ID(h)]; ok {
		return b, nil
	}
	return nil, &carrel.Error{Op: "recover", Kind: carrel.NotFound}
}

type fakeBox struct {
	id    carrel.ID
	guest *httptest.Server
	echo  net.Listener
	wg    sync.WaitGroup
	once  sync.Once
	ended chan struct{}
	gone  func()
}

// ctx ends with the sandbox.
func (b *fakeBox) ctx() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	b.wg.Go(func() { <-b.ended; cancel() })
	return ctx
}

func (b *fakeBox) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, guest.TunnelPath):
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/health" || r.URL.Path == "/init":
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/slow":
		fmt.Fprintln(w, "begun")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-b.ended:
		}
	default:
		fmt.Fprintf(w, "guest of %s", b.id)
	}
}

func (b *fakeBox) Handle() driver.Handle { return driver.Handle(b.id) }

func (b *fakeBox) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	addr := ""
	switch port {
	case carrel.GuestPort:
		addr = b.guest.Listener.Addr().String()
	case echoPort:
		addr = b.echo.Addr().String()
	default:
		return nil, syscall.ECONNREFUSED
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func (b *fakeBox) Stats(context.Context) (driver.Stats, error) { return driver.Stats{Memory: 1}, nil }

func (b *fakeBox) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-b.ended:
		return driver.Exit{Reason: carrel.EndKilled}, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

func (b *fakeBox) Destroy(context.Context) error {
	b.once.Do(func() {
		close(b.ended)
		b.guest.CloseClientConnections()
		b.guest.Close()
		b.echo.Close()
		b.wg.Wait()
		b.gone()
	})
	return nil
}

// testConfig returns a configuration with a data directory of the test's own.
func testConfig(t testing.TB) config.Config {
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.DataDir, cfg.CacheDir = t.TempDir()+"/data", t.TempDir()
	cfg.DefaultTemplate = "sim"
	cfg.LogLevel = "error"
	return cfg
}

// running is a daemon that serves.
type running struct {
	*Daemon
	stop func() error // ends Serve and the daemon
}

// run starts a daemon on the fake driver.
func run(t testing.TB, cfg config.Config, opts Options) *running {
	t.Helper()
	if opts.Drivers == nil {
		opts.Drivers = []driver.Driver{newFakeDriver()}
		opts.KillOnClose = true
	}
	d, err := New(t.Context(), cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		err := <-served
		if cerr := d.Close(); err == nil {
			err = cerr
		}
		return err
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return &running{Daemon: d, stop: stop}
}

// post sends JSON with the key and decodes the answer.
func (r *running) post(t *testing.T, path, body string, out any) int {
	t.Helper()
	req, _ := http.NewRequest("POST", r.URL()+path, strings.NewReader(body))
	req.Header.Set("X-API-KEY", r.Key())
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}
