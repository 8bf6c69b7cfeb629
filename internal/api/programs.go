package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/callback"
)

// Bounds on programs that clients provide.
const (
	maxSessions = 256              // clients that provide programs
	maxCalls    = 64               // of one client at once
	pickUp      = 20 * time.Second // how long a call waits for its client
)

// sessions are the clients that provide programs now.
type sessions struct {
	mu   sync.Mutex
	open map[string]*session
}

// session is one client that provides programs to one sandbox.
type session struct {
	id      carrel.ID
	project string // of the client
	out     *lines
	ctx     context.Context // ends when the client goes
	cancel  context.CancelFunc

	mu    sync.Mutex
	next  int
	calls map[string]chan io.ReadWriteCloser
}

func (s *Server) programRoutes(v1 string) {
	s.handle("POST"+v1+"/sandboxes/{id}/programs", s.provide)
	s.handle("GET"+v1+"/sandboxes/{id}/programs/{session}/calls/{call}", s.answerCall)
}

// programsIn are the programs that a client provides.
type programsIn struct {
	Programs []struct {
		Name string `json:"name"`
		Help string `json:"help"`
	} `json:"programs"`
}

// programLine is one line for who provides programs: the first names the session, each other a
// call.
type programLine struct {
	Session string         `json:"session,omitempty"`
	Call    string         `json:"call,omitempty"`
	About   *callback.Call `json:"about,omitempty"`
}

// provide puts a client's programs into a sandbox for as long as the client reads the answer. The
// answer has one line for each call. The client answers each call on a connection of its own.
func (s *Server) provide(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body programsIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	if len(body.Programs) == 0 {
		return invalid("programs", "missing")
	}
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	p := &session{id: id, project: carrel.CallerOf(ctx).Project, ctx: ctx, cancel: cancel, calls: map[string]chan io.ReadWriteCloser{}}
	var list []carrel.Program
	for _, one := range body.Programs {
		list = append(list, carrel.Program{Name: one.Name, Help: one.Help, Run: p.run})
	}
	token := make([]byte, 16)
	_, _ = rand.Read(token) // never fails
	name := hex.EncodeToString(token)
	if err := s.sessions.add(name, p); err != nil {
		return err
	}
	defer s.sessions.remove(name)
	release, err := s.opts.Service.Provide(ctx, id, list...)
	if err != nil {
		return err
	}
	defer release()
	p.mu.Lock()
	p.out = startLines(w)
	p.mu.Unlock()
	if p.out.write(programLine{Session: name}) != nil {
		return nil
	}
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if p.out.write(nil) != nil || s.ended(ctx, id) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// ended reports whether a sandbox can no longer have programs, because it is gone or was promoted.
func (s *Server) ended(ctx context.Context, id carrel.ID) bool {
	sb, err := s.opts.Service.Get(ctx, id)
	return carrel.KindOf(err) == carrel.NotFound || err == nil && sb.Tier != carrel.Sim
}

func (t *sessions) add(name string, p *session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxSessions {
		return &carrel.Error{Op: "provide programs", Kind: carrel.Exhausted, Err: fmt.Errorf("%d clients provide programs already", maxSessions)}
	}
	if t.open == nil {
		t.open = map[string]*session{}
	}
	t.open[name] = p
	return nil
}

func (t *sessions) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, name)
}

func (t *sessions) get(name string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[name]
}

// run is the Run function of a client's programs. It sends the call to the client and waits for the
// result.
func (p *session) run(ctx context.Context, c *carrel.ProgramCall) int {
	fail := func(why string) int {
		fmt.Fprintf(c.Stderr, "%s: %s\n", c.Name, why)
		return callback.Gone
	}
	p.mu.Lock()
	if len(p.calls) >= maxCalls {
		p.mu.Unlock()
		return fail(fmt.Sprintf("its provider answers %d calls already", maxCalls))
	}
	p.next++
	call, conn, out := fmt.Sprint(p.next), make(chan io.ReadWriteCloser), p.out
	p.calls[call] = conn
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, call)
	}()
	if out == nil { // the call came before the answer began
		return fail("its provider is not ready")
	}
	if err := out.write(programLine{Call: call, About: new(callback.About(c))}); err != nil {
		p.cancel()
		return fail("who provides it has gone")
	}
	t := time.NewTimer(pickUp)
	defer t.Stop()
	select {
	case rw := <-conn:
		defer rw.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.ctx, cancel)()
		status := callback.Relay(ctx, rw, c)
		if p.ctx.Err() != nil && status == callback.Gone {
			return fail("who provides it has gone")
		}
		return status
	case <-ctx.Done():
		return callback.Gone
	case <-p.ctx.Done():
		return fail("who provides it has gone")
	case <-t.C:
		return fail("its provider does not answer")
	}
}

// answerCall serves the connection on which a client answers a call: 101, then the frames of
// package callback.
func (s *Server) answerCall(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if carrel.CallerOf(r.Context()).Role == carrel.RoleReader {
		return errReader() // although it is a GET
	}
	p := s.sessions.get(r.PathValue("session"))
	if p == nil || p.id != id || p.project != carrel.CallerOf(r.Context()).Project {
		return tell(carrel.NotFound, "no such session")
	}
	p.mu.Lock()
	to := p.calls[r.PathValue("call")]
	p.mu.Unlock()
	if to == nil {
		return tell(carrel.NotFound, "no such call")
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), streamProtocol) || r.ProtoMajor != 1 {
		p := tell(carrel.Invalid, "this endpoint needs an HTTP/1.1 request with Upgrade: %s", streamProtocol)
		p.status, p.body.Code = http.StatusUpgradeRequired, http.StatusUpgradeRequired
		w.Header().Set("Upgrade", streamProtocol)
		return p
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Time{})
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // sent along with the request
	const hello = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + streamProtocol + "\r\n\r\n"
	if _, err := io.WriteString(conn, hello); err != nil {
		_ = conn.Close()
		return nil
	}
	rw := hijacked{io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn), conn}
	select {
	case to <- rw: // whoever takes it closes it
	case <-time.After(pickUp):
		_ = conn.Close()
	case <-p.ctx.Done():
		_ = conn.Close()
	}
	return nil
}

// hijacked is a connection together with bytes that were read already.
type hijacked struct {
	io.Reader
	io.WriteCloser
}
