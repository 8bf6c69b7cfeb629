package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Options is what the door needs to know.
type Options struct {
	Service carrel.Service
	// Key is the API key that every request but /health must carry.
	Key string
	// Version is the daemon's own version.
	Version string
	// Limits are the defaults of new sandboxes, shown as the templates' size.
	Limits carrel.Limits
	// MaxTimeout bounds the timeouts a request may ask for; 0 is 720 hours.
	MaxTimeout time.Duration
	// Snapshots is what keeps the service's snapshots; nil answers 501.
	Snapshots SnapshotKeeper
	// SSHKeys keeps the keys that may open SSH sessions; with nil there is no such endpoint.
	SSHKeys SSHKeys
	// Pools tells of the sandboxes that are kept ready; nil answers 501.
	Pools carrel.Pools
	// Audits is the audit log; nil answers 501.
	Audits carrel.Audits
	// Secrets are the secrets of whoever has the key; nil answers 501.
	Secrets carrel.Secrets
	// Doctor reports on the drivers; nil answers 501.
	Doctor func(ctx context.Context) ([]DriverReport, error)
	// Admission says what goes on at the gate before each start; nil answers 501.
	Admission func() admission.State
	// DefaultNetwork is for creations that say nothing of the network; nil is E2B's
	// meaning through E2B's routes (the internet), and nothing at all through ours.
	DefaultNetwork *carrel.Network
	// Traces returns a sandbox's latest operations; nil answers 501.
	Traces func(id carrel.ID) []carrel.Trace
	// Ready says whether requests are served yet; nil means always.
	Ready func() bool
	// Done ends long answers (events, dialled streams) when it is closed, so that a
	// stopping daemon need not wait for them; nil never does.
	Done <-chan struct{}
	Log  *slog.Logger
}

// DriverReport says whether one tier works on this host.
type DriverReport struct {
	Driver   string      `json:"driver"`
	Tier     carrel.Tier `json:"tier"`
	OK       bool        `json:"ok"`
	Default  bool        `json:"default,omitempty"` // new sandboxes use it unless they say otherwise
	Problem  string      `json:"problem,omitempty"` // why it does not work
	Hint     string      `json:"hint,omitempty"`    // what to do about it
	Findings []Finding   `json:"findings,omitempty"`
}

// Finding is something that works only in part.
type Finding struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Hint string `json:"hint,omitempty"`
}

// SnapshotKeeper says what snapshots cost and frees what none needs. A
// [snapshot.Store] is one.
type SnapshotKeeper interface {
	Usage(ctx context.Context) (snapshot.Usage, error)
	GC(ctx context.Context) (snapshot.Collected, error)
}

// Server answers the control plane's requests. It is an [http.Handler], holds no
// resources of its own and is safe for concurrent use.
type Server struct {
	opts   Options
	keySum [sha256.Size]byte
	mux    *http.ServeMux

	sessions sessions
}

// New returns the control plane over a service.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxTimeout == 0 {
		opts.MaxTimeout = 720 * time.Hour
	}
	s := &Server{opts: opts, keySum: sha256.Sum256([]byte(opts.Key)), mux: http.NewServeMux()}
	s.routes()
	return s
}

// handler is a route's code: it answers itself, or returns the error to answer with.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle adds a route.
func (s *Server) handle(pattern string, h handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) routes() {
	s.handle("POST /sandboxes", s.createV1)
	s.handle("POST /v2/sandboxes", s.createV2)
	s.handle("GET /sandboxes", s.listV1)
	s.handle("GET /v2/sandboxes", s.listV2)
	s.handle("GET /sandboxes/metrics", s.metricsOfMany)
	s.handle("GET /sandboxes/{id}", s.get)
	s.handle("DELETE /sandboxes/{id}", s.kill)
	s.handle("POST /sandboxes/{id}/connect", s.connectV1)
	s.handle("POST /v2/sandboxes/{id}/connect", s.connectV2)
	s.handle("POST /sandboxes/{id}/timeout", s.timeout)
	s.handle("POST /sandboxes/{id}/refreshes", s.refresh)
	s.handle("POST /sandboxes/{id}/pause", s.pause)
	s.handle("POST /sandboxes/{id}/resume", s.resume)
	s.handle("POST /sandboxes/{id}/fork", s.fork)
	s.handle("POST /sandboxes/{id}/snapshots", s.takeSnapshot)
	s.handle("GET /snapshots", s.snapshots)
	s.handle("PUT /sandboxes/{id}/network", s.network)
	s.handle("GET /sandboxes/{id}/metrics", s.metrics)
	s.handle("GET /sandboxes/{id}/logs", s.logsV1)
	s.handle("GET /v2/sandboxes/{id}/logs", s.logsV2)
	s.handle("GET /templates", s.templates)
	s.handle("GET /v2/templates", s.templates)
	s.handle("GET /templates/{id}", s.template)
	s.handle("DELETE /templates/{id}", s.deleteTemplate)
	s.handle("GET /templates/aliases/{alias}", s.templateAlias)
	s.handle("GET /teams", s.teams)
	s.secretRoutes()
	s.laterRoutes()
	s.carrelRoutes()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	allowOrigins(w, r)
	switch {
	case r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
		return
	case r.URL.Path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.health(w)
		return
	}
	if err := s.authenticate(r); err != nil {
		s.fail(w, r, err)
		return
	}
	r = r.WithContext(trace.Arrive(r.Context(), r.Header.Get("Traceparent")))
	r, done, err := asCaller(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer done()
	h, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.noRoute(w, r, h)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// health answers 204 when requests are served.
func (s *Server) health(w http.ResponseWriter) {
	if s.opts.Ready != nil && !s.opts.Ready() {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// allowOrigins lets pages of any origin call: a request needs the key, which is
// in a header and never in a cookie, so nothing is done on a visitor's behalf.
func allowOrigins(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") == "" {
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "X-Next-Token, X-Total-Running, Retry-After")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "*, Authorization, X-API-KEY, Content-Type")
		h.Set("Access-Control-Max-Age", "86400")
	}
}

// authenticate checks the API key, in E2B's header or as a bearer token (the
// CLI's access token).
func (s *Server) authenticate(r *http.Request) error {
	key := r.Header.Get("X-API-KEY")
	if key == "" {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			key = strings.TrimSpace(token)
		}
	}
	if key == "" {
		p := tell(carrel.Unauthenticated, "authorization header is missing")
		p.body.Hint = "send the API key in the header X-API-KEY; it is in the data directory's file api-key"
		return p
	}
	// Hashing first makes the comparison take the same time for keys of any length.
	sum := sha256.Sum256([]byte(key))
	if s.opts.Key == "" || subtle.ConstantTimeCompare(sum[:], s.keySum[:]) != 1 {
		p := tell(carrel.Unauthenticated, "Cannot get the team for the given API key")
		p.body.Hint = "this is not the daemon's API key; it is in the data directory's file api-key"
		return p
	}
	return nil
}

// noRoute answers for paths and methods there are not, in JSON: the SDKs can't
// read anything else. h is what the mux would have answered with.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request, h http.Handler) {
	probe := statusProbe{header: http.Header{}}
	h.ServeHTTP(&probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		p := tell(carrel.Invalid, "method %s is not allowed for %s (allowed: %s)", r.Method, clip(r.URL.Path), allow)
		p.status, p.body.Code = http.StatusMethodNotAllowed, http.StatusMethodNotAllowed
		s.fail(w, r, p)
		return
	}
	s.fail(w, r, tell(carrel.NotFound, "no such endpoint: %s %s", r.Method, clip(r.URL.Path)))
}

// statusProbe learns what a handler would answer without answering.
type statusProbe struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (p *statusProbe) Header() http.Header { return p.header }

// Write implements http.ResponseWriter.
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (p *statusProbe) WriteHeader(status int) { p.status = status }
