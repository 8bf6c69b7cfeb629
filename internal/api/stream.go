package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	heartbeat   = 15 * time.Second // a blank line on a quiet stream shows whether the peer lives
	stallTime   = time.Minute      // an import that sends nothing for this long ends
	writeStall  = 30 * time.Second // and so does an answer that the client does not read
	progressGap = 100 * time.Millisecond
)

// lines writes one JSON document a line, and flushes each at once. It is safe for concurrent use.
type lines struct {
	mu sync.Mutex
	w  http.ResponseWriter
	rc *http.ResponseController
	// served makes each line a server-sent event. A blank line is a comment then.
	served bool
}

// startEvents begins a stream of events: server-sent ones if the client asks for them.
func startEvents(w http.ResponseWriter, r *http.Request) *lines {
	if !strings.Contains(r.Header.Get("Accept"), serverSent) {
		return startLines(w)
	}
	return begin(w, serverSent)
}

const serverSent = "text/event-stream"

// startLines begins a stream of JSON lines.
func startLines(w http.ResponseWriter) *lines { return begin(w, "application/x-ndjson") }

func begin(w http.ResponseWriter, media string) *lines {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	l := &lines{w: w, rc: http.NewResponseController(w), served: media == serverSent}
	_ = l.rc.Flush()
	return l
}

// write writes v, or a blank line for nil.
func (l *lines) write(v any) error {
	raw := []byte{}
	if v != nil {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return err
		}
	}
	if l.served {
		raw = serve(v, raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.rc.SetWriteDeadline(time.Now().Add(writeStall))
	defer func() { _ = l.rc.SetWriteDeadline(time.Time{}) }()
	if _, err := l.w.Write(append(raw, '\n')); err != nil {
		return err
	}
	return l.rc.Flush()
}

// serve makes a server-sent event of a line. JSON has no line break, so none ends the event early.
func serve(v any, raw []byte) []byte {
	if v == nil {
		return []byte(":\n")
	}
	head := ""
	if e, ok := v.(eventLine); ok && e.Event != nil {
		head = "id: " + strconv.FormatInt(e.Event.Seq, 10) + "\n"
	}
	return fmt.Appendf(nil, "%sdata: %s\n", head, raw) // a line break follows
}

// stopping returns a context that also ends when the daemon stops.
func (s *Server) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if s.opts.Done == nil {
		return ctx, cancel
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.opts.Done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// events streams events as JSON lines until the client leaves or the daemon stops.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	var after int64
	from := map[string]string{"after": r.URL.Query().Get("after"), "Last-Event-ID": r.Header.Get("Last-Event-ID")}
	for _, name := range []string{"after", "Last-Event-ID"} { // a client that goes on says the latter
		v := from[name]
		if v == "" {
			continue
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return invalid(name, "%q is not a sequence number", clip(v))
		}
		after = n
	}
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	out := startEvents(w, r)
	var beat sync.WaitGroup
	beat.Go(func() { out.beat(ctx, cancel) })
	for e, err := range s.opts.Service.Events(ctx, after) {
		if err != nil {
			if ctx.Err() == nil {
				_, body := s.render(r, err)
				_ = out.write(eventLine{Error: &body})
			}
			break
		}
		if out.write(eventLine{Event: &e}) != nil {
			break
		}
	}
	cancel()
	beat.Wait()
	return nil
}

// importTemplate makes a template from the archive in the request's body.
func (s *Server) importTemplate(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	if name == "" {
		return invalid("name", "missing")
	}
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // progress is sent while the archive still arrives
	if r.ProtoMajor == 1 {
		// A refusal comes before the end of the body. The client must not use this connection again.
		w.Header().Set("Connection", "close")
	}
	body := &patientReader{r: r.Body, rc: rc}
	return s.job(w, r, func(ctx context.Context, progress func(carrel.Progress)) (jobLine, error) {
		t, err := s.opts.Service.ImportTemplate(ctx, name, body, progress)
		return jobLine{Template: &t}, err
	})
}

// patientReader sets a deadline for each read, not for the whole.
type patientReader struct {
	r  io.Reader
	rc *http.ResponseController
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(stallTime))
	n, err := p.r.Read(b)
	_ = p.rc.SetReadDeadline(time.Time{})
	return n, err
}

// pullIn names an image and the template that is to be made of it. Without an image, the name is of
// a built-in template.
type pullIn struct {
	Name string `json:"name"`
	carrel.PullOptions
}

// jobLine is one line of a job's answer: exactly one field is there.
type jobLine struct {
	Progress *carrel.Progress `json:"progress,omitempty"`
	Template *carrel.Template `json:"template,omitempty"`
	Pushed   *carrel.Pushed   `json:"pushed,omitempty"`
	Error    *errorBody       `json:"error,omitempty"`
}

// eventLine is one line of the stream of events.
type eventLine struct {
	Event *carrel.Event `json:"event,omitempty"`
	Error *errorBody    `json:"error,omitempty"`
}

// pullTemplate makes a template from an image in a registry, or a built-in one.
func (s *Server) pullTemplate(w http.ResponseWriter, r *http.Request) error {
	var body pullIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	if body.Name == "" {
		return invalid("name", "missing")
	}
	return s.job(w, r, func(ctx context.Context, progress func(carrel.Progress)) (jobLine, error) {
		t, err := s.opts.Service.PullImage(ctx, body.Name, body.PullOptions, progress)
		return jobLine{Template: &t}, err
	})
}

// pushTemplate sends a template to a registry.
func (s *Server) pushTemplate(w http.ResponseWriter, r *http.Request) error {
	var body carrel.PushOptions
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	if body.Image == "" {
		return invalid("image", "missing")
	}
	name := r.PathValue("name")
	return s.job(w, r, func(ctx context.Context, progress func(carrel.Progress)) (jobLine, error) {
		p, err := s.opts.Service.PushTemplate(ctx, name, body, progress)
		return jobLine{Pushed: &p}, err
	})
}

// job runs a long piece of work and streams its progress, then its result. An error before the
// first progress is an ordinary error answer.
func (s *Server) job(w http.ResponseWriter, r *http.Request,
	work func(context.Context, func(carrel.Progress)) (jobLine, error)) error {
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	var (
		mu   sync.Mutex
		out  *lines
		last time.Time
		step string
	)
	progress := func(p carrel.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Stage == step && time.Since(last) < progressGap {
			return
		}
		if out == nil {
			out = startLines(w)
		}
		step, last = p.Stage, time.Now()
		_ = out.write(jobLine{Progress: &p})
	}
	result, err := work(ctx, progress)
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		if out == nil {
			return err
		}
		_, body := s.render(r, err)
		_ = out.write(jobLine{Error: &body})
		return nil
	}
	if out == nil {
		out = startLines(w)
	}
	_ = out.write(result)
	return nil
}

// streamProtocol is the upgrade that turns a request into a raw connection to a port.
const streamProtocol = "carrel-stream"

// dial connects the client with a port of a sandbox: 101, then raw bytes. The API key proves that
// the caller owns the sandbox, so no other token is needed.
func (s *Server) dial(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return invalid("port", "%q is not a port from 1 to 65535", clip(r.PathValue("port")))
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), streamProtocol) || r.ProtoMajor != 1 {
		p := tell(carrel.Invalid, "this endpoint needs an HTTP/1.1 request with Upgrade: %s", streamProtocol)
		p.status, p.body.Code = http.StatusUpgradeRequired, http.StatusUpgradeRequired
		w.Header().Set("Upgrade", streamProtocol)
		return p
	}
	c, err := s.opts.Service.Computer(r.Context(), id)
	if err != nil {
		return err
	}
	visit := s.opts.Traces.Visit(r.Header.Values("Traceparent"), "dial", id)
	defer visit.End(http.StatusSwitchingProtocols)
	inside, err := c.Dial(r.Context(), uint16(port))
	if err != nil {
		return s.dialError(id, uint16(port), err)
	}
	defer inside.Close()
	outside, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer outside.Close()
	_ = outside.SetDeadline(time.Time{})
	if n, ok := w.(*noted); ok {
		n.begin(http.StatusSwitchingProtocols)
	}
	const hello = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + streamProtocol + "\r\n\r\n"
	if _, err := io.WriteString(outside, hello); err != nil {
		return nil
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // sent along with the request
	s.splice(r.Context(), inside, outside, io.MultiReader(bytes.NewReader(early), outside))
	return nil
}

// dialError makes the error for a dial. The client can turn the one for a port without a listener
// back into a refused connection.
func (s *Server) dialError(id carrel.ID, port uint16, err error) error {
	if refused(err) {
		p := tell(carrel.Unavailable, "nothing listens on port %d", port)
		p.status, p.body.Code = http.StatusBadGateway, http.StatusBadGateway
		p.body.ID, p.body.Field = id, "port"
		return p
	}
	return err
}

// refused reports whether a dial failed because nothing listens on the port.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// splice copies both ways until both sides have ended, one side breaks, ctx ends, or the daemon stops. If one
// direction ends, it ends that direction on the other side too. The other direction goes on.
func (s *Server) splice(ctx context.Context, inside, outside net.Conn, fromOutside io.Reader) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done(): // the caller's key ended
			_ = inside.Close()
			_ = outside.Close()
		case <-s.opts.Done: // blocks for ever when nil
			_ = inside.Close()
			_ = outside.Close()
		case <-done:
		}
	})
	var both sync.WaitGroup
	pump := func(to net.Conn, from io.Reader) {
		buf := make([]byte, 64<<10)
		// The wrappers hide ReadFrom and WriteTo, which would use smaller buffers.
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = inside.Close()
		_ = outside.Close()
	}
	both.Go(func() { pump(inside, fromOutside) })
	both.Go(func() { pump(outside, inside) })
	both.Wait()
	close(done)
	wg.Wait()
}
