package guest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// The other direction of a tunnel. GET ListenPath + port with "Upgrade: carrel-tunnel" makes the
// guest listen on the sandbox's 127.0.0.1 until that connection ends. The answer is 101 with the
// port in PortHeader. A line with an ID follows for each new connection. The host takes it within
// ten seconds by GET AcceptedPath + ID, upgraded in the same way. Both requests need the access
// token, and only the host may send them.
const (
	ListenPath   = "/carrel/listen/"
	AcceptedPath = "/carrel/accepted/"
	PortHeader   = "Carrel-Port"
)

const (
	// acceptTime bounds the taking of one connection.
	acceptTime = 20 * time.Second
	// idBytes is how long the ID of a connection is.
	idBytes = 16
)

// Listen implements carrel.Computer.
func (c *Conn) Listen(ctx context.Context, port uint16) (net.Listener, error) {
	const op = "listen in sandbox"
	if c.dial == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: c.opts.ID, Err: errors.New("this connection can't open streams to ports")}
	}
	control, resp, err := c.upgrade(ctx, ListenPath+strconv.Itoa(int(port)))
	if err != nil {
		return nil, c.fail(op, err)
	}
	if control == nil {
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusNotImplemented:
			return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: c.opts.ID, Err: errors.New("nothing can listen in a simulated sandbox"),
				Hint: "carrel promote " + string(c.opts.ID)}
		case http.StatusConflict:
			return nil, &carrel.Error{Op: op, Kind: carrel.Conflict, ID: c.opts.ID, Field: "port", Err: fmt.Errorf("something listens on port %d in the sandbox already", port),
				Hint: "choose another port, or any free one with 0"}
		case http.StatusNotFound:
			return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: c.opts.ID, Err: errors.New("the sandbox was started by a build of carrel that can't do it")}
		}
		return nil, c.httpError(op, resp)
	}
	chosen, err := strconv.ParseUint(resp.Header.Get(PortHeader), 10, 16)
	if err != nil || chosen == 0 {
		_ = control.Close()
		return nil, c.fail(op, errors.New("the guest does not say on which port it listens"))
	}
	l := &inner{c: c, control: control, lines: bufio.NewReaderSize(control, 256), port: int(chosen)}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l, nil
}

// inner is a listener inside a sandbox.
type inner struct {
	c       *Conn
	control net.Conn
	lines   *bufio.Reader
	port    int
	ctx     context.Context // ends with it
	cancel  func()
	once    sync.Once
}

// Accept implements net.Listener. It passes over a connection whose program has already gone.
func (l *inner) Accept() (net.Conn, error) {
	for {
		line, err := l.lines.ReadSlice('\n')
		if err != nil {
			if l.ctx.Err() != nil {
				err = net.ErrClosed
			}
			return nil, l.c.fail("accept in sandbox", err)
		}
		id := strings.TrimSuffix(string(line), "\n")
		if raw, err := hex.DecodeString(id); err != nil || len(raw) != idBytes {
			return nil, l.c.fail("accept in sandbox", errors.New("the guest announces no connection's ID"))
		}
		ctx, cancel := context.WithTimeout(l.ctx, acceptTime)
		conn, resp, err := l.c.upgrade(ctx, AcceptedPath+id)
		cancel()
		switch {
		case err != nil:
			return nil, l.c.fail("accept in sandbox", err)
		case conn != nil:
			return conn, nil
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusGone {
			return nil, l.c.fail("accept in sandbox", fmt.Errorf("the guest answers %d", resp.StatusCode))
		}
	}
}

// Addr implements net.Listener: the address inside.
func (l *inner) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// Close ends the listener and all connections that it accepted.
func (l *inner) Close() (err error) {
	l.once.Do(func() {
		l.cancel()
		err = l.control.Close()
	})
	return err
}
