package carreltest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// Server is a running daemon.
type Server struct {
	// URL is where it serves both its API and its sandboxes' ports; for E2B's SDKs
	// it is the value of E2B_API_URL and of E2B_SANDBOX_URL.
	URL string
	// APIKey is the key that requests must carry (E2B_API_KEY).
	APIKey string

	client carrel.Service
}

// Option changes what New makes.
type Option func(*settings)

type settings struct {
	cfg config.Config
	log *slog.Logger
}

// WithLimits sets the default limits of sandboxes.
func WithLimits(l carrel.Limits) Option { return func(s *settings) { s.cfg.Limits = l } }

// WithMaxSandboxes bounds how many sandboxes live at once.
func WithMaxSandboxes(n int) Option { return func(s *settings) { s.cfg.MaxSandboxes = n } }

// WithDomain sets the domain of sandboxes' host names, <port>-<id>.<domain>.
func WithDomain(domain string) Option { return func(s *settings) { s.cfg.Domain = domain } }

// WithLogger takes the daemon's log, which is discarded otherwise.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// New starts a daemon that ends with the test. A daemon that can't start fails
// the test at once.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	dir := t.TempDir()
	s := settings{cfg: config.Default(), log: slog.New(slog.DiscardHandler)}
	s.cfg.Listen = "127.0.0.1:0"
	s.cfg.DataDir = filepath.Join(dir, "data")
	s.cfg.DefaultTier, s.cfg.DefaultTemplate = carrel.Sim, store.Sim
	s.cfg.Limits = carrel.Limits{CPUs: 1, MemoryMB: 256, DiskMB: 256, Pids: 256}
	for _, o := range opts {
		o(&s)
	}
	d, err := daemon.New(context.WithoutCancel(t.Context()), s.cfg, daemon.Options{
		Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true, Logger: s.log})
	if err != nil {
		t.Fatalf("carreltest: start the daemon: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("carreltest: serve: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("carreltest: close the daemon: %v", err)
		}
	})
	srv := &Server{URL: d.URL(), APIKey: d.Key()}
	if srv.client, err = client.New(srv.URL, srv.APIKey); err != nil {
		t.Fatalf("carreltest: client: %v", err)
	}
	t.Cleanup(func() { _ = srv.client.Close() }) // before the daemon ends
	return srv
}

// Client returns a client of the daemon, which the test's end closes.
func (s *Server) Client() carrel.Service { return s.client }
