package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire/hello"
)

const (
	// peekTime bounds how long a connection may take to say what it is. peekSilence is how long it
	// may say nothing before it counts as one that listens first.
	peekTime    = 10 * time.Second
	peekSilence = 300 * time.Millisecond
	// peekUnknown replaces peekTime for a connection to an address that we know no name for.
	peekUnknown = 3 * time.Second
	// Bounds for bytes that were read and not judged yet: maxPeek for one connection, maxPeekLink
	// for one sandbox, maxPeekWire for all sandboxes.
	maxPeek     = hello.MaxSize
	maxPeekLink = 8 << 20
	maxPeekWire = 64 << 20
	// maxLine bounds a line that may be the first line of HTTP.
	maxLine = 8 << 10
)

// Errors of peeking. Each is a reason to refuse the connection.
var (
	errPeekSlow   = errors.New("the connection takes too long to say what it is")
	errPeekMemory = errors.New("too many connections have not said yet what they are")
)

// errSilent means that the sandbox has said nothing so far.
var errSilent = errors.New("silence")

// said is the content of a connection's first bytes.
type said struct {
	app   policy.App
	hello hello.Hello
}

// peeker reads the first bytes of a connection.
type peeker struct {
	conn   net.Conn
	bytes  []byte
	ended  bool // the sandbox says no more
	next   int  // with fewer bytes, parsing again is useless
	end    time.Time
	budget [2]*atomic.Int64 // the sandbox's and the wire's
	taken  int64
}

func (e *egress) newPeeker(conn net.Conn) *peeker {
	return &peeker{conn: conn, end: time.Now().Add(peekTime), budget: [2]*atomic.Int64{&e.link.peeking, &e.link.wire.peeking}}
}

// close gives back the connection's share of the memory.
func (p *peeker) close() {
	for _, b := range p.budget {
		b.Add(-p.taken)
	}
	p.taken = 0
}

// take returns the bytes that were read and forgets them.
func (p *peeker) take() []byte {
	b := p.bytes
	p.bytes = nil
	p.close()
	return b
}

// look reads until it is clear what the connection is. If nothing came for peekSilence, it returns
// errSilent, unless patient is true.
func (p *peeker) look(patient bool) (said, error) {
	for {
		s, more, err := p.classify()
		if err != nil || more == sure {
			return s, err
		}
		if p.ended {
			return s, nil
		}
		limit := p.end
		if quiet := time.Now().Add(peekSilence); quiet.Before(limit) && (more == unclear || len(p.bytes) == 0 && !patient) {
			limit = quiet
		}
		switch err := p.read(limit); {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded) && !isTimeout(err):
			return said{}, err
		case limit == p.end:
			return said{}, errPeekSlow
		case len(p.bytes) == 0:
			return said{app: policy.AppOther}, errSilent
		default:
			return said{app: policy.AppOther}, nil
		}
	}
}

// read reads more bytes, at most until limit.
func (p *peeker) read(limit time.Time) error {
	_ = p.conn.SetReadDeadline(limit)
	err := p.fill()
	_ = p.conn.SetReadDeadline(time.Time{})
	return err
}

// fill reads some more.
func (p *peeker) fill() error {
	if len(p.bytes) == cap(p.bytes) {
		if err := p.grow(); err != nil {
			return err
		}
	}
	n, err := p.conn.Read(p.bytes[len(p.bytes):cap(p.bytes)])
	p.bytes = p.bytes[:len(p.bytes)+n]
	if errors.Is(err, io.EOF) {
		p.ended, err = true, nil
	}
	if n > 0 {
		err = nil
	}
	return err
}

func (p *peeker) grow() error {
	size := min(max(2*cap(p.bytes), 2<<10), maxPeek)
	more := int64(size - cap(p.bytes))
	if more <= 0 {
		return errPeekSlow
	}
	full := false
	p.taken += more
	for i, most := range []int64{maxPeekLink, maxPeekWire} {
		full = p.budget[i].Add(more) > most || full
	}
	if full {
		return errPeekMemory // close gives it back
	}
	p.bytes = slices.Grow(p.bytes, size-len(p.bytes))[:len(p.bytes):size]
	return nil
}

// certainty says whether more bytes would change the result.
type certainty int

const (
	sure     certainty = iota
	begun              // it began as a known protocol; wait for the rest
	unclear            // it may be anything; after a pause, it is no protocol we know
	untested certainty = begun
)

// classify says what the bytes read so far are.
func (p *peeker) classify() (said, certainty, error) {
	if len(p.bytes) == 0 {
		return said{app: policy.AppOther}, untested, nil
	}
	if !hello.Looks(p.bytes) {
		app, c := textual(p.bytes)
		return said{app: app}, c, nil
	}
	if len(p.bytes) < p.next && !p.ended {
		return said{app: policy.AppTLS}, begun, nil
	}
	h, err := hello.Parse(p.bytes)
	if errors.Is(err, hello.ErrShort) {
		if p.ended || len(p.bytes) >= maxPeek {
			return said{}, sure, err
		}
		p.next = hello.Next(p.bytes)
		return said{app: policy.AppTLS}, begun, nil
	}
	return said{app: policy.AppTLS, hello: h}, sure, err
}

// methods are the HTTP methods that are recognised before the end of the line.
var methods = []string{"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI"}

// textual tells HTTP from other protocols. It is as lenient as the most lenient server, because
// every text that a server may take for a request must be judged as one. The strict parser comes
// later.
func textual(b []byte) (policy.App, certainty) {
	b = bytes.TrimLeft(b, "\r\n")
	line, _, whole := bytes.Cut(b, []byte("\n"))
	word, _, spaced := strings.Cut(strings.ReplaceAll(string(line[:min(len(line), 16)]), "\t", " "), " ")
	word = strings.ToUpper(word)
	if spaced && slices.Contains(methods, word) {
		return policy.AppHTTP, sure
	}
	for _, c := range line {
		if c < ' ' && c != '\t' && c != '\r' || c == 0x7f {
			return policy.AppOther, sure
		}
	}
	switch {
	case len(line) > maxLine:
		return policy.AppOther, sure
	case whole && strings.Contains(strings.ToUpper(string(line)), "HTTP/"):
		return policy.AppHTTP, sure
	case whole:
		return policy.AppOther, sure
	case !spaced && slices.ContainsFunc(methods, func(m string) bool { return strings.HasPrefix(m, word) }):
		return policy.AppHTTP, begun // also after empty lines only
	}
	return policy.AppOther, unclear
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
