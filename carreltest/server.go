package carreltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// Server is a running daemon.
type Server struct {
	// URL is the address of both the API and the sandboxes' ports; for E2B's SDKs it is the value
	// of E2B_API_URL and of E2B_SANDBOX_URL.
	URL string
	// APIKey is the key that requests must carry (E2B_API_KEY).
	APIKey string

	client carrel.Service

	undo cleanup.Stack
	errs []error
	once sync.Once
	err  error
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

// WithLogger sends the daemon's log to l; without it the log is discarded.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// New starts a daemon that ends with the test. A daemon that can't start fails
// the test at once.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts a daemon for code without a test at hand, such as an example or a TestMain. The
// caller ends it with Close.
func Start(opts ...Option) (_ *Server, err error) {
	dir, err := os.MkdirTemp("", "carreltest-")
	if err != nil {
		return nil, fmt.Errorf("carreltest: %w", err)
	}
	srv := &Server{}
	defer func() {
		if err != nil {
			srv.undo.Run()
		}
	}()
	srv.atEnd("remove files", func() error { return os.RemoveAll(dir) })
	s := settings{cfg: config.Default(), log: slog.New(slog.DiscardHandler)}
	s.cfg.Listen = "127.0.0.1:0"
	s.cfg.DataDir = filepath.Join(dir, "data")
	s.cfg.DefaultTier, s.cfg.DefaultTemplate = carrel.Sim, store.Sim
	s.cfg.Limits = carrel.Limits{CPUs: 1, MemoryMB: 256, DiskMB: 256, Pids: 256}
	for _, o := range opts {
		o(&s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d, err := daemon.New(ctx, s.cfg, daemon.Options{
		Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true, Logger: s.log})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("carreltest: start the daemon: %w", err)
	}
	srv.atEnd("close the daemon", d.Close)
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	srv.atEnd("serve", func() error { cancel(); return <-served })
	srv.URL, srv.APIKey = d.URL(), d.Key()
	if srv.client, err = client.New(srv.URL, srv.APIKey); err != nil {
		return nil, fmt.Errorf("carreltest: client: %w", err)
	}
	srv.atEnd("close the client", srv.client.Close) // before the daemon ends
	return srv, nil
}

// atEnd adds a step to Close, which runs the steps in reverse order.
func (s *Server) atEnd(what string, fn func() error) {
	s.undo.Add(func() {
		if err := fn(); err != nil {
			s.errs = append(s.errs, fmt.Errorf("carreltest: %s: %w", what, err))
		}
	})
}

// Close kills the sandboxes, stops the daemon and removes its files. It may be
// called more than once.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.undo.Run()
		s.err = errors.Join(s.errs...)
	})
	return s.err
}

// Client returns a client of the daemon. The end of the server closes it.
func (s *Server) Client() carrel.Service { return s.client }
