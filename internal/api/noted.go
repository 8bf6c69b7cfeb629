package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// requestIDHeader tells a client the ID that the daemon's log and audit trail have for its request.
const requestIDHeader = "X-Request-Id"

// statusLeft is noted for a client that left before its answer began.
const statusLeft = 499

// noted is an answer that is noted when it begins: in the audit trail.
// What a client was told is therefore in the trail, even if the daemon dies in the next moment.
type noted struct {
	http.ResponseWriter
	server *Server
	r      *http.Request
	op     string // where the mux does not say it
	at     time.Time
	began  bool
}

// takeNotes begins the answer of a request.
func takeNotes(s *Server, w http.ResponseWriter, r *http.Request) *noted {
	info := request.Of(r.Context())
	if info == nil {
		info = request.New("")
		r = r.WithContext(request.With(r.Context(), info))
	}
	w.Header().Set(requestIDHeader, info.ID)
	return &noted{ResponseWriter: w, server: s, r: r, at: time.Now()}
}

// Unwrap is for [http.ResponseController].
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (n *noted) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		n.begin(status)
	}
	n.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (n *noted) Write(b []byte) (int, error) {
	n.begin(http.StatusOK)
	return n.ResponseWriter.Write(b)
}

// end notes a request that got no answer.
func (n *noted) end() { n.begin(statusLeft) }

// begin notes the request, once.
func (n *noted) begin(status int) {
	if n.began {
		return
	}
	n.began = true
	opts := &n.server.opts
	r, route := n.r, n.op
	if route == "" {
		route = r.Pattern
	}
	open := r.Method == http.MethodOptions || healthPaths[r.URL.Path] || r.URL.Path == DocumentPath
	switch {
	case open:
		route = openRoute(r)
	case route == "" || route == "/":
		route = noRoute
	}
	if opts.Served != nil {
		opts.Served(route, status, time.Since(n.at))
	}
	if opts.Journal == nil || open {
		return
	}
	info := request.Of(r.Context())
	op := request.Operation{Kind: kindOf(r, route), From: info.From, Request: info.ID, Op: route,
		Targets: append(pathTargets(r), info.Targets()...), Status: status}
	op.Kind = request.Refused(op.Kind, status)
	op.Caller, _ = carrel.CallerIn(r.Context())
	opts.Journal.Note(op)
}

// noRoute is the route of a request that has none.
const noRoute = "no route"

// openRoute names a request that needs no key and is not in the trail.
func openRoute(r *http.Request) string {
	if r.Method == http.MethodOptions {
		return http.MethodOptions
	}
	if healthPaths[r.URL.Path] || r.URL.Path == DocumentPath {
		return method(r) + " " + r.URL.Path
	}
	return noRoute
}

// method is a request's method. A client can invent methods, which are all the same one here.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete:
		return r.Method
	}
	return "OTHER"
}

// kindOf returns the kind of an operation that was not refused.
func kindOf(r *http.Request, route string) string {
	switch {
	case strings.Contains(route, "/dial/"):
		return carrel.TrailEnter
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return carrel.TrailRead
	}
	return carrel.TrailChange
}

// pathTargets returns the things that a request's path names.
func pathTargets(r *http.Request) []string {
	var out []string
	for rest := r.Pattern; ; {
		_, after, ok := strings.Cut(rest, "{")
		name, tail, closed := strings.Cut(after, "}")
		if !ok || !closed {
			return out
		}
		if v := r.PathValue(strings.TrimSuffix(name, "...")); v != "" {
			out = append(out, clip(v))
		}
		rest = tail
	}
}
