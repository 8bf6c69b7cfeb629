package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

// Port is where clients expect the code interpreter.
const Port = 49999

// warmPause is the time between two tries to start kernels ahead.
const warmPause = time.Second

// maxBody bounds a request, and so the code of a cell.
const maxBody = 16 << 20

// ErrDenied is the error of [Config].Environ for a token that is not the sandbox's.
var ErrDenied = errors.New("unauthorized access")

// Finder finds and starts kernels.
type Finder interface {
	// Check returns an error that is kernel.ErrUnknown if there is no kernel for a language.
	Check(language string) error
	// Start starts a kernel and waits until it is ready. The context bounds the wait only.
	Start(ctx context.Context, o kernel.Options) (kernel.Kernel, error)
	// Enter returns an error if a context can't work in a directory. It makes one that is missing.
	Enter(dir string) error
}

var _ Finder = kernel.Finder{}

// Config configures a Server.
type Config struct {
	Finder Finder // nil finds the kernels of the image
	// Dir is where contexts work that name no directory. The default is /home/user if it is there,
	// otherwise the user's home.
	Dir string
	// Environ returns the sandbox's environment to the holder of its access token, or ErrDenied.
	// Without it there is no token, and no environment but the process's.
	Environ func(ctx context.Context, token string) (map[string]string, error)
	Log     *slog.Logger // nil discards
}

// Server is the code interpreter of one sandbox.
type Server struct {
	cfg      Config
	contexts contexts
	handler  http.Handler
	warm     chan struct{} // closed when Warm has returned, if it was promised
}

// New returns a server. It has the default contexts of Python and JavaScript, if the image has these.
// Their kernels start with their first cells.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Finder == nil {
		cfg.Finder = kernel.Finder{}
	}
	cfg.Dir = cmp.Or(cfg.Dir, home())
	s := &Server{cfg: cfg}
	s.contexts = contexts{finder: cfg.Finder, dir: cfg.Dir, all: map[string]*Context{},
		first: map[string]*Context{}}
	for _, language := range []string{kernel.Python, kernel.JavaScript} {
		_, _ = s.contexts.byLanguage(language) // an image without it has no such context
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("POST /execute", s.execute)
	mux.HandleFunc("GET /contexts", s.listContexts)
	mux.HandleFunc("POST /contexts", s.createContext)
	mux.HandleFunc("POST /contexts/{id}/restart", s.restartContext)
	mux.HandleFunc("DELETE /contexts/{id}", s.removeContext)
	s.handler = cors(mux)
	return s
}

// home is the directory of contexts that name none.
func home() string {
	for _, dir := range []string{"/home/user", os.Getenv("HOME")} {
		if i, err := os.Stat(dir); dir != "" && err == nil && i.IsDir() {
			return dir
		}
	}
	return "/"
}

// Handler returns the routes.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends all contexts.
func (s *Server) Close() { s.contexts.close() }

// Warm starts the default contexts of some languages. Until it is over, /health says that the
// server is not ready. A kernel that does not start, as on a machine that is too busy, is started
// again; only a language that the image does not have is an error. Call it before the server serves,
// or not at all.
func (s *Server) Warm(ctx context.Context, languages ...string) (done <-chan error) {
	s.warm = make(chan struct{})
	result := make(chan error, 1)
	go func() {
		err := s.startAll(ctx, languages)
		for err != nil && !errors.Is(err, kernel.ErrUnknown) && ctx.Err() == nil {
			s.cfg.Log.Warn("kernels that should start at once", "err", err)
			select {
			case <-time.After(warmPause):
				err = s.startAll(ctx, languages)
			case <-ctx.Done():
			}
		}
		if err == nil {
			close(s.warm)
		}
		result <- err
	}()
	return result
}

// startAll starts the default contexts of some languages.
func (s *Server) startAll(ctx context.Context, languages []string) error {
	var errs []error
	for _, l := range languages {
		c, err := s.contexts.byLanguage(l)
		if err == nil {
			err = c.Start(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// health answers whether the server is ready. It also has kernels that wait for their first cell run
// one of their own: a sandbox that goes on from its template's start reads pages of memory only when
// they are touched, and asks here before anybody waits.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if s.warm != nil {
		select {
		case <-s.warm:
		default:
			writeError(w, http.StatusServiceUnavailable, "the first kernels start")
			return
		}
	}
	for _, c := range s.contexts.list() {
		c.stretch(r.Context())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("\"OK\"\n"))
}

func (s *Server) listContexts(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.contexts.list())
}

func (s *Server) createContext(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Language string `json:"language"`
		Dir      string `json:"cwd"`
	}
	if !readJSON(w, r, &in) {
		return
	}
	c, err := s.contexts.create(in.Language, in.Dir)
	if err == nil {
		err = c.Start(r.Context())
	}
	if err != nil {
		if c != nil {
			_ = s.contexts.remove(c.ID) // nobody knows it yet
		}
		s.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, c)
}

func (s *Server) restartContext(w http.ResponseWriter, r *http.Request) {
	if !isOwn(w, r) {
		return
	}
	c, err := s.contexts.get(r.PathValue("id"))
	if err == nil {
		err = c.Restart(r.Context())
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, c)
}

func (s *Server) removeContext(w http.ResponseWriter, r *http.Request) {
	if err := s.contexts.remove(r.PathValue("id")); err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoContext), errors.Is(err, errRemoved):
		status = http.StatusNotFound
	case errors.Is(err, kernel.ErrUnknown), errors.Is(err, errDir):
		status = http.StatusBadRequest
	case errors.Is(err, errTooMany), errors.Is(err, errBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, ErrDenied):
		status = http.StatusUnauthorized
	default:
		s.cfg.Log.Warn("interpreter", "err", err)
	}
	writeError(w, status, err.Error())
}

// readJSON reads a request's body. It answers and returns false if that is not possible.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	if typ, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); typ != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, "Content-Type: must be application/json")
		return false
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(into)
	var long *http.MaxBytesError
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return true
	case errors.As(err, &long):
		writeError(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request is longer than %d MiB", maxBody>>20))
	case errors.As(err, &wrong):
		writeError(w, http.StatusBadRequest, fmt.Sprintf("%s: a %s is no %s", wrong.Field, wrong.Value,
			wrong.Type))
	default:
		writeError(w, http.StatusBadRequest, "the body is not JSON: "+err.Error())
	}
	return false
}

// isOwn refuses a request without a body that a browser may have sent for another site's page. A
// browser says so in Sec-Fetch-Site, or asks first (see cors).
func isOwn(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Origin") == "" || r.Header.Get("Content-Type") == "application/json" {
		return true
	}
	writeError(w, http.StatusUnsupportedMediaType, "Content-Type: must be application/json")
	return false
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// writeError answers with a text: the clients show it as it is.
func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"code": status, "message": message})
}

// allowed are the headers that a page may send.
var allowed = strings.Join([]string{"Content-Type", "X-Access-Token", "E2B-Traffic-Access-Token",
	"E2b-Sandbox-Id", "E2b-Sandbox-Port", "Authorization"}, ", ")

// cors lets pages of every site ask, as the protocol's clients also run in browsers. A page needs
// the sandbox's ID and tokens like every client; the browser adds no credential of its user.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Cache-Control", "no-store")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
			h.Set("Access-Control-Allow-Headers", allowed)
			h.Set("Access-Control-Max-Age", "7200")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
