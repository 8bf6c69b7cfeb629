package interpreter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

const (
	// keepaliveTime is the time between two lines while a cell is silent. Proxies on the way close
	// connections that are silent for long.
	keepaliveTime = 5 * time.Second
	// stallTimeout is how long a client may take no output before its cell is interrupted.
	stallTimeout = 15 * time.Minute
)

// cellRequest is the body of a request to run a cell.
type cellRequest struct {
	Code     *string           `json:"code"`
	Context  string            `json:"context_id"`
	Language string            `json:"language"`
	Env      map[string]string `json:"env_vars"`
}

// check finds the context of a request. The error is the client's.
func (s *Server) check(r cellRequest) (*Context, error) {
	if r.Context != "" && r.Language != "" {
		return nil, badRequest("context_id, language: only one of them may be given")
	}
	if r.Code == nil {
		return nil, badRequest("code: is missing")
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, badRequest(fmt.Sprintf("env_vars: %q is not a name of a variable", name))
		}
		if strings.Contains(value, "\x00") {
			return nil, badRequest(fmt.Sprintf("env_vars.%s: contains a NUL byte", name))
		}
	}
	if r.Context != "" {
		return s.contexts.get(r.Context)
	}
	return s.contexts.byLanguage(r.Language)
}

// badRequest is an error that is answered with 400.
type badRequest string

func (b badRequest) Error() string { return string(b) }

// execute runs a cell and streams what it does.
func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	var in cellRequest
	if !readJSON(w, r, &in) {
		return
	}
	var base map[string]string
	if s.cfg.Environ != nil {
		var err error
		if base, err = s.cfg.Environ(r.Context(), r.Header.Get("X-Access-Token")); err != nil {
			s.refuse(w, err)
			return
		}
	}
	c, err := s.check(in)
	var bad badRequest
	switch {
	case errors.As(err, &bad):
		writeError(w, http.StatusBadRequest, bad.Error())
		return
	case err != nil:
		s.refuse(w, err)
		return
	}
	out := newStream(w)
	defer out.close()
	cell := kernel.Cell{Code: *in.Code, Base: base, Env: in.Env}
	out.end(r.Context(), c.Run(r.Context(), cell, out.put))
}

// stream is the answer to a cell's request: lines of JSON.
type stream struct {
	control *http.ResponseController
	timer   *time.Timer

	mu     sync.Mutex
	w      http.ResponseWriter
	failed error
	over   bool
}

// newStream begins the answer, so that the client knows that its request was taken.
func newStream(w http.ResponseWriter) *stream {
	s := &stream{control: http.NewResponseController(w), w: w}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // proxies shall pass each line on
	w.WriteHeader(http.StatusOK)
	s.failed = s.control.Flush()
	s.mu.Lock() // a timer that fires at once writes, and write needs the timer
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(keepaliveTime, s.keepalive)
	return s
}

// put writes an event.
func (s *stream) put(e kernel.Event) error {
	line, err := encode(e)
	if err != nil {
		return fmt.Errorf("a kernel's output is no JSON: %w", err)
	}
	return s.write(line)
}

// write writes a line and sends it.
func (s *stream) write(line []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.failed != nil {
		return s.failed
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // only a test's writer can't
	if _, s.failed = s.w.Write(line); s.failed == nil {
		s.failed = s.control.Flush()
	}
	s.timer.Reset(keepaliveTime)
	return s.failed
}

func (s *stream) keepalive() { _ = s.write([]byte("{\"type\":\"keepalive\"}\n")) }

// end writes the last lines: the error of a cell that could not run to its end, and the end.
func (s *stream) end(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // nobody reads it
	}
	if err != nil {
		name := "KernelError"
		if errors.Is(err, kernel.ErrDied) {
			name = "KernelDied"
		}
		_ = s.put(kernel.Event{Type: kernel.Error, Name: name, Value: err.Error(),
			Traceback: name + ": " + err.Error()})
	}
	_ = s.write([]byte("{\"type\":\"end_of_execution\"}\n"))
}

// close ends the keepalive lines before the handler returns.
func (s *stream) close() {
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}
