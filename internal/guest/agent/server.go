package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	// bodyTimeout bounds the arrival of a Connect request's body. StreamInput has no such bound,
	// because its body is a conversation.
	bodyTimeout = 60 * time.Second
	// stallTimeout is how long a client may take no output before its stream is cut. Without a
	// limit it could hold up the process for ever. It is long because a person may read in a pager
	// for that time. A dead client is found much earlier: the daemon's side of its connection ends,
	// because nothing is acknowledged, and the stream here ends with it.
	stallTimeout = time.Hour
	// stallSlack is the age at which a write deadline is renewed.
	stallSlack = time.Minute
)

// routes builds the handler of the whole protocol.
func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(a.processHandler())
	mux.Handle(a.filesystemHandler())
	files := a.filesHandler()
	mux.Handle("/files", files)
	mux.Handle("/files/compose", files)
	mux.Handle("/health", only(http.MethodGet, a.serveHealth))
	mux.Handle("/metrics", only(http.MethodGet, a.serveMetrics))
	mux.Handle("/envs", only(http.MethodGet, a.serveEnvs))
	mux.Handle("/init", only(http.MethodPost, a.serveInit))
	mux.Handle(guest.TunnelPath+"{port}", only(http.MethodGet, a.serveTunnel))
	mux.Handle(guest.ListenPath+"{port}", only(http.MethodGet, a.serveListen))
	mux.Handle(guest.AcceptedPath+"{id}", only(http.MethodGet, a.serveAccepted))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fmt.Sprintf("no such route: %s", r.URL.Path))
	})
	mux.Handle(guest.LeavePath, only(http.MethodPost, a.serveLeave))
	mux.Handle(guest.ActivityPath, only(http.MethodGet, a.serveActivity))
	mux.Handle(guest.ProcessesPath, only(http.MethodGet, a.serveProcesses))
	mux.Handle(guest.OutputPath, only(http.MethodGet, a.serveOutput))
	mux.Handle(guest.MachinePath, only(http.MethodPost, a.serveMachine))
	mux.Handle(guest.RefusedPath, only(http.MethodPost, a.serveRefused))
	return boundRest(cors(a.admit(a.settled(timed(mux)))))
}

// restTimeout is how long a client may still send a body that the guest does not want.
const restTimeout = 5 * time.Second

// boundRest bounds the time for a body that was not read before the answer, such as for requests
// without a token. The server reads a part of the rest first. Without a bound, a client that sends
// nothing more would keep its connection for ever.
func boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && r.ContentLength != 0 {
			defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTimeout)) }()
		}
		next.ServeHTTP(w, r)
	})
}

// only serves one method (and HEAD with GET) and refuses all others.
func only(method string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || (method == http.MethodGet && r.Method == http.MethodHead) {
			h(w, r)
			return
		}
		w.Header().Set("Allow", method)
		writeError(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s only", r.URL.Path, method))
	})
}

// authorize demands the access token.
func (a *Agent) authorize(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !a.authorized(r) {
		unauthorized(w)
		return
	}
	next.ServeHTTP(w, r)
}

// authorized reports whether a request may pass: it has the access token, or its route does its own
// check, of a signature or of the peer.
func (a *Agent) authorized(r *http.Request) bool {
	switch r.Method + r.URL.Path {
	case "GET/health", "HEAD/health", "GET/files", "HEAD/files", "POST/files",
		"POST/init", "POST" + guest.LeavePath, "GET" + guest.ActivityPath, "POST" + guest.RefusedPath,
		"POST" + guest.MachinePath:
		return true
	}
	return strings.HasPrefix(r.URL.Path, guest.TunnelPath) || a.checkToken(r.Header)
}

// unauthorized writes envd's answer for this case.
func unauthorized(w http.ResponseWriter) {
	writeError(w, http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported")
}

// exposedHeaders are headers that scripts in a browser may read.
const exposedHeaders = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options"

// cors lets web pages of any origin call the guest. The token protects it, and no browser adds the
// token by itself.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.Header.Get("Origin") != "" {
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
		}
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			next.ServeHTTP(w, r)
			return
		}
		h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
		h.Set("Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE")
		if ask := r.Header.Get("Access-Control-Request-Headers"); ask != "" {
			h.Set("Access-Control-Allow-Headers", ask)
		}
		h.Set("Access-Control-Max-Age", "7200")
		w.WriteHeader(http.StatusNoContent)
	})
}

// writerKey is the context key of a Connect call's streamWriter.
type writerKey struct{}

// streamWriter is the answer to a Connect call. It renews the write deadline and can hold back
// flushes. Only the goroutine that answers uses it.
type streamWriter struct {
	http.ResponseWriter
	ctl      *http.ResponseController
	exchange *exchange
	deadline time.Time
	held     bool
}

// Unwrap lets http.ResponseController find the connection.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes a piece of the answer.
func (w *streamWriter) Write(p []byte) (int, error) {
	w.exchange.writes.Add(1)
	defer w.exchange.writes.Add(1)
	return w.ResponseWriter.Write(p)
}

// Flush sends the written bytes, unless flushes are held back.
func (w *streamWriter) Flush() {
	if !w.held {
		w.exchange.writes.Add(1)
		defer w.exchange.writes.Add(1)
		_ = w.ctl.Flush() // the next write returns a broken connection's error
	}
}

// timed bounds the arrival of a Connect call's body, and lets streams bound their writes (see
// extendWrite).
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		x, ok := r.Context().Value(exchangeKey{}).(*exchange)
		if !ok || !isConnect(r.URL.Path) {
			next.ServeHTTP(rw, r)
			return
		}
		w := &streamWriter{ResponseWriter: rw, ctl: http.NewResponseController(rw), exchange: x}
		if !strings.HasSuffix(r.URL.Path, "/StreamInput") && w.ctl.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil {
			r.Body = &timedBody{ReadCloser: r.Body, ctl: w.ctl}
		}
		defer func() {
			if !w.deadline.IsZero() {
				_ = w.ctl.SetWriteDeadline(time.Time{}) // the connection may be gone
			}
		}()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writerKey{}, w)))
	})
}

// extendWrite gives the client of a stream stallTimeout, from about now, to take the data. Only the
// goroutine that sends calls it.
func extendWrite(ctx context.Context) {
	w, ok := ctx.Value(writerKey{}).(*streamWriter)
	if !ok {
		return
	}
	now := time.Now()
	if w.deadline.Sub(now) > stallTimeout-stallSlack {
		return
	}
	if next := now.Add(stallTimeout); w.ctl.SetWriteDeadline(next) == nil {
		w.deadline = next
	}
}

// holdFlush holds back all later data until the handler returns. A stream's last message and its
// end then leave together.
func holdFlush(ctx context.Context) {
	if w, ok := ctx.Value(writerKey{}).(*streamWriter); ok {
		w.held = true
	}
}

// timedBody removes the read deadline at the body's end, because the server then reads on only to
// notice that the client leaves. If the body breaks off, the deadline stays: the server reads the
// rest.
type timedBody struct {
	io.ReadCloser
	ctl *http.ResponseController
}

// Read reads, and removes the deadline at the end of the body.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.ctl.SetReadDeadline(time.Time{}) // the connection may be gone
	}
	return n, err
}

// writeError answers with envd's error body.
func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	writeJSON(w, code, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
}

// writeJSON answers with a JSON body.
func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // if the client is gone, there is nobody to tell
}

func (a *Agent) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

func (a *Agent) serveEnvs(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.env())
}

// metricsBody is the answer of /metrics.
type metricsBody struct {
	Timestamp   int64   `json:"ts"`
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"`
	MemTotalMiB int64   `json:"mem_total_mib"`
	MemUsedMiB  int64   `json:"mem_used_mib"`
	MemTotal    int64   `json:"mem_total"`
	MemUsed     int64   `json:"mem_used"`
	MemCache    int64   `json:"mem_cache"`
	DiskUsed    int64   `json:"disk_used"`
	DiskTotal   int64   `json:"disk_total"`
}

func (a *Agent) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	m, err := a.sys.Metrics()
	if err != nil {
		a.log.Error("measuring", "err", err)
		writeError(w, http.StatusInternalServerError, fmt.Sprintf("error getting metrics: %v", err))
		return
	}
	writeJSON(w, http.StatusOK, metricsBody{
		Timestamp: time.Now().Unix(),
		CPUCount:  m.CPUCount, CPUUsedPct: math.Round(m.CPUUsedPct*100) / 100,
		MemTotalMiB: m.MemTotal >> 20, MemUsedMiB: m.MemUsed >> 20,
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
}
