package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Options configures a Server.
type Options struct {
	Service carrel.Service
	// Callers identifies callers. Every request but /health must carry a key.
	Callers Callers
	// Version is the daemon's own version.
	Version string
	// Limits are the default limits of new sandboxes. They are shown as the templates' size.
	Limits carrel.Limits
	// MaxTimeout bounds the timeouts in requests; 0 is 720 hours.
	MaxTimeout time.Duration
	// Snapshots is the store of the service's snapshots. With nil, its routes answer 501.
	Snapshots SnapshotKeeper
	// Rekey seals all secrets anew under another key, or a random one if key is nil. With nil, its
	// route answers 501.
	Rekey func(key []byte) error
	// Doctor reports on the drivers. With nil, its route answers 501.
	Doctor func(ctx context.Context) ([]DriverReport, error)
	// Admission returns the state of the gate before each start. With nil, its route answers 501.
	Admission func() admission.State
	// Builds is for E2B's routes about builds. With nil, they answer 501.
	Builds Builds
	// UploadKey signs the URLs of uploads: 32 secret bytes that all servers of a fleet have. With nil,
	// this server makes a key for itself.
	UploadKey []byte
	// Teams counts sandboxes. With nil, E2B's route for a team's metrics answers 501.
	Teams Teams
	// Webhooks tells programs what happens; nil is none.
	Webhooks carrel.Webhooks
	// Inbox has the connections that wait for a person; nil is none.
	Inbox carrel.Inbox
	// Nodes are the machines of a fleet; nil is none.
	Nodes carrel.Nodes
	// Movement moves sandboxes to other machines; nil moves none.
	Movement carrel.Movement
	// Trails is the audit trail; nil is none.
	Trails carrel.Trails
	// People are the projects and keys; nil is none.
	People carrel.People
	// Persons are the people, members and organisations; nil is none.
	Persons carrel.Persons
	// Allowances are the quotas, ceilings and budgets; nil is none.
	Allowances carrel.Allowances
	// DefaultNetwork is for creations without network fields. With nil, E2B's routes allow the
	// internet, as in E2B, and our routes allow nothing.
	DefaultNetwork *carrel.Network
	// Ready reports whether requests are served yet; nil means always.
	Ready func() bool
	// Journal takes what callers did; nil is none.
	Journal request.Journal
	// Metrics answers a scraper; nil is none.
	Metrics http.Handler
	// Served is told of each request when its answer begins: the route, the status, and how long it
	// took. Nil tells nobody.
	Served func(route string, status int, took time.Duration)
	// Traces records streams into sandboxes that are part of their clients' traces; nil records none.
	Traces *trace.Recorder
	// Done ends long answers (events, dialled streams) when it is closed, so that a stopping daemon
	// need not wait for them. With nil, they never end this way.
	Done <-chan struct{}
	Log  *slog.Logger
}

// DriverReport says whether one tier works on this host.
type DriverReport struct {
	Driver   string      `json:"driver"`
	Tier     carrel.Tier `json:"tier"`
	OK       bool        `json:"ok"`
	Default  bool        `json:"default,omitempty"` // new sandboxes use this tier by default
	Problem  string      `json:"problem,omitempty"` // why it does not work
	Hint     string      `json:"hint,omitempty"`    // what to do about it
	Findings []Finding   `json:"findings,omitempty"`
}

// Finding is a feature that works only in part.
type Finding struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Hint string `json:"hint,omitempty"`
}

// SnapshotKeeper reports what snapshots cost, and frees space that no snapshot needs. A
// [snapshot.Store] is one.
type SnapshotKeeper interface {
	Usage(ctx context.Context) (snapshot.Usage, error)
	GC(ctx context.Context) (snapshot.Collected, error)
}

// Server answers the control plane's requests. It is an [http.Handler], holds no
// resources of its own and is safe for concurrent use.
type Server struct {
	opts     Options
	mux      *http.ServeMux
	first    *http.ServeMux // routes that a pattern of mux covers too; it is asked first
	patterns []string       // of all routes
	describe func(http.ResponseWriter) error

	sessions  sessions
	uploadKey uploadKey
}

// New returns the control plane over a service.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxTimeout == 0 {
		opts.MaxTimeout = 720 * time.Hour
	}
	if opts.Webhooks == nil {
		opts.Webhooks = carrel.NoWebhooks{}
	}
	if opts.Nodes == nil {
		opts.Nodes = carrel.NoNodes{}
	}
	if opts.Inbox == nil {
		opts.Inbox = carrel.NoInbox{}
	}
	if opts.Movement == nil {
		opts.Movement = carrel.NoMovement{}
	}
	if opts.Trails == nil {
		opts.Trails = carrel.NoTrails{}
	}
	if opts.People == nil {
		opts.People = carrel.NoPeople{}
	}
	if opts.Persons == nil {
		opts.Persons = carrel.NoPersons{}
	}
	if opts.Allowances == nil {
		opts.Allowances = carrel.NoAllowances{}
	}
	s := &Server{opts: opts, mux: http.NewServeMux(), first: http.NewServeMux(),
		uploadKey: newUploadKey(opts.UploadKey)}
	s.describe = s.document()
	s.routes()
	return s
}

// handler is the code of a route. It answers itself, or returns an error for the answer.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle adds a route.
func (s *Server) handle(pattern string, h handler) { s.route(s.mux, pattern, h) }

// handleFirst adds a route that wins over the others.
func (s *Server) handleFirst(pattern string, h handler) { s.route(s.first, pattern, h) }

func (s *Server) route(mux *http.ServeMux, pattern string, h handler) {
	s.patterns = append(s.patterns, pattern)
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// handleAdmin adds a route for administrators of the machine. Others are Forbidden.
func (s *Server) handleAdmin(pattern string, h handler) {
	s.handle(pattern, func(w http.ResponseWriter, r *http.Request) error {
		if err := carrel.RequireAdmin(r.Context(), r.Method+" "+clip(r.URL.Path)); err != nil {
			return err
		}
		return h(w, r)
	})
}

// Patterns lists the routes in the form of [http.ServeMux], except /health.
func (s *Server) Patterns() []string { return slices.Clone(s.patterns) }

func (s *Server) routes() {
	m, t := momentRoutes{s}, templateRoutes{s}
	s.handle("POST /sandboxes", s.createV1)
	s.handle("POST /v2/sandboxes", s.createV2)
	s.handle("GET /sandboxes", s.listV1)
	s.handle("GET /v2/sandboxes", s.listV2)
	s.handle("GET /sandboxes/metrics", s.metricsOfMany)
	s.handle("GET /sandboxes/{id}", s.get)
	s.handle("DELETE /sandboxes/{id}", s.kill)
	s.handle("POST /sandboxes/{id}/connect", m.connectV1)
	s.handle("POST /v2/sandboxes/{id}/connect", m.connectV2)
	s.handle("POST /sandboxes/{id}/timeout", s.timeout)
	s.handle("POST /sandboxes/{id}/refreshes", s.refresh)
	s.handle("POST /sandboxes/{id}/pause", m.pause)
	s.handle("POST /sandboxes/{id}/resume", m.resume)
	s.handle("POST /sandboxes/{id}/fork", m.forkV1)
	s.handle("POST /v2/sandboxes/{id}/fork", m.forkV2)
	s.handle("POST /sandboxes/{id}/snapshots", m.takeSnapshot)
	s.handle("GET /snapshots", m.snapshots)
	s.handle("PUT /sandboxes/{id}/network", s.network)
	s.handle("GET /sandboxes/{id}/metrics", s.metrics)
	s.handle("GET /sandboxes/{id}/logs", s.logsV1)
	s.handle("GET /v2/sandboxes/{id}/logs", s.logsV2)
	s.handle("GET /templates", t.templates)
	s.handle("GET /v2/templates", t.templatePages)
	s.handle("GET /default-templates", t.builtIn)
	s.handle("GET /templates/{id}", t.template)
	s.handle("DELETE /templates/{id}", t.deleteTemplate)
	s.handleFirst("GET /templates/aliases/{alias}", t.templateAlias)
	teamRoutes{s}.add()
	webhookRoutes{s}.add()
	inboxRoutes{s}.add()
	nodeRoutes{s}.add()
	movementRoutes{s}.add()
	peopleRoutes{s}.add()
	personRoutes{s}.add()
	allowanceRoutes{s}.add()
	trailRoutes{s}.add()
	e2bKeyRoutes{s}.add()
	secretRoutes{s}.add()
	e2bBuildRoutes{s}.add()
	e2bTagRoutes{s}.add()
	s.laterRoutes()
	s.carrelRoutes()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := takeNotes(s, w, r)
	defer n.end()
	n.dispatch(n.r)
}

// dispatch finds the route of a request and serves it.
func (n *noted) dispatch(r *http.Request) {
	s, w := n.server, http.ResponseWriter(n)
	allowOrigins(w, r)
	switch {
	case r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
		return
	case healthPaths[r.URL.Path] && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		health(s, w, r.URL.Path)
		return
	case r.URL.Path == DocumentPath && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		if err := s.describe(w); err != nil {
			s.fail(w, r, err)
		}
		return
	}
	if r.URL.Path == LoginPath || strings.HasPrefix(r.URL.Path, LoginPath+"/") {
		n.op = method(r) + " " + LoginPath
		if err := (loginRoutes{s}).login(w, r); err != nil {
			s.fail(w, r, err)
		}
		return
	}
	if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, UploadPath) {
		n.op = method(r) + " " + UploadPath + "{permission}"
		if err := s.upload(w, r); err != nil {
			s.fail(w, r, err)
		}
		return
	}
	r, done, err := s.arrive(r)
	if err != nil {
		n.r = r
		_, n.op = s.mux.Handler(r)
		s.fail(w, r, err)
		return
	}
	defer done()
	n.r = r // with its caller; the mux adds the pattern
	if _, pattern := s.first.Handler(r); pattern != "" {
		s.first.ServeHTTP(w, r)
		return
	}
	h, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.noRoute(w, r, h)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// healthPaths are the questions whether the daemon is well. They need no key.
var healthPaths = map[string]bool{"/health": true, "/healthz": true, "/readyz": true}

// health answers 204 when requests are served. At /healthz it answers 204 as long as the process
// answers at all, for those who would end a daemon that does not.
func health(s *Server, w http.ResponseWriter, path string) {
	if path != "/healthz" && s.opts.Ready != nil && !s.opts.Ready() {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// allowOrigins lets pages of any origin call with a key, which is in a header. A browser sends our
// cookie along with no such request, and shows no answer to one that has it: that would need
// Access-Control-Allow-Credentials. Package access refuses it besides.
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

// noRoute answers requests for unknown paths and methods, in JSON, because the SDKs can read
// nothing else. h is the handler that the mux would have used.
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

// statusProbe records the status of a handler's answer without sending it.
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
