package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/zmtp"
)

const (
	// MaxMessage is the most bytes of one message of a kernel that are kept, for example a picture.
	MaxMessage = 64 << 20
	// dialPoll is the time between two attempts to reach a kernel that starts.
	dialPoll = 5 * time.Millisecond
	// infoAgain is when a kernel that gave no output is asked again. The first outputs are lost if
	// the kernel has not seen the subscription yet.
	infoAgain = 250 * time.Millisecond
	// idleGrace is how long a kernel that has replied may send outputs without saying that it is
	// idle. Kernels that drop messages when they send too many may lose that one.
	idleGrace = 10 * time.Second
)

// ErrGone means that the kernel closed its sockets.
var ErrGone = errors.New("the kernel is gone")

// Client is a connection to one kernel. Calls of Execute must not overlap.
type Client struct {
	conn    Connection
	session string
	shell   *zmtp.Conn
	iopub   *zmtp.Conn
	replies chan Message
	outputs chan Message
	gone    chan struct{} // closed with the first socket that fails
	ended   sync.Once
	readers sync.WaitGroup
}

// Connect connects to a kernel and waits until it answers. The context bounds the wait.
func Connect(ctx context.Context, conn Connection) (*Client, error) {
	c := &Client{conn: conn, session: NewID(), replies: make(chan Message), gone: make(chan struct{}),
		outputs: make(chan Message)}
	var err error
	if c.shell, err = c.dial(ctx, conn.Shell, zmtp.Dealer); err != nil {
		return nil, err
	}
	if c.iopub, err = c.dial(ctx, conn.IOPub, zmtp.Sub); err != nil {
		_ = c.shell.Close()
		return nil, err
	}
	if err := c.iopub.Subscribe(""); err != nil {
		_ = c.shell.Close()
		_ = c.iopub.Close()
		return nil, err
	}
	c.readers.Add(2)
	go c.read(c.shell, c.replies)
	go c.read(c.iopub, c.outputs)
	if err := c.ready(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// dial connects to one socket of a kernel that may not listen yet.
func (c *Client) dial(ctx context.Context, port int, typ zmtp.Type) (*zmtp.Conn, error) {
	network, addr := c.conn.address(port)
	for {
		s, err := zmtp.Dial(ctx, network, addr, zmtp.Options{Type: typ, MaxMessage: MaxMessage,
			Identity: []byte(c.session)})
		if err == nil {
			return s, nil
		}
		if errors.Is(err, zmtp.ErrProtocol) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the kernel does not listen: %w", err)
		case <-time.After(dialPoll):
		}
	}
}

// read hands a socket's messages on until the socket ends.
func (c *Client) read(s *zmtp.Conn, to chan<- Message) {
	defer c.readers.Done()
	defer c.ended.Do(func() { close(c.gone) })
	for {
		raw, err := s.Receive()
		if err != nil {
			return
		}
		m, err := decode(c.conn.Key, raw.Frames, raw.Lost)
		if err != nil {
			continue // not from the kernel, or of no use
		}
		select {
		case to <- m:
		case <-c.gone:
			return
		}
	}
}

// Close closes the sockets. The kernel goes on.
func (c *Client) Close() error {
	c.ended.Do(func() { close(c.gone) })
	err := errors.Join(c.shell.Close(), c.iopub.Close())
	c.readers.Wait()
	return err
}

// ready waits until the kernel has replied to a request and the request's output has come.
func (c *Client) ready(ctx context.Context) error {
	replied, heard := false, false
	again := time.NewTicker(infoAgain)
	defer again.Stop()
	if _, err := c.request("kernel_info_request", struct{}{}, struct{}{}); err != nil {
		return err
	}
	for !replied || !heard {
		select {
		case <-c.replies:
			replied = true
		case m := <-c.outputs:
			heard = heard || m.Header.Type == "status"
		case <-again.C:
			if !replied {
				continue // it starts; the request is in its queue
			}
			if _, err := c.request("kernel_info_request", struct{}{}, struct{}{}); err != nil {
				return err
			}
		case <-c.gone:
			return ErrGone
		case <-ctx.Done():
			return fmt.Errorf("the kernel does not answer: %w", ctx.Err())
		}
	}
	return nil
}

// request sends a request on the shell socket and returns its ID.
func (c *Client) request(typ string, metadata, content any) (string, error) {
	h := c.header(typ)
	frames, err := encode(c.conn.Key, h, metadata, content)
	if err != nil {
		return "", err
	}
	return h.ID, c.shell.Send(frames...)
}

// Request is a cell to execute.
type Request struct {
	Code string
	// Silent runs the code without counting it and without the display of its value.
	Silent bool
	// Metadata goes with the request, for the program in the kernel that looks at it.
	Metadata any
}

// executeRequest is the content of an execute_request.
type executeRequest struct {
	Code            string   `json:"code"`
	Silent          bool     `json:"silent"`
	StoreHistory    bool     `json:"store_history"`
	UserExpressions struct{} `json:"user_expressions"`
	AllowStdin      bool     `json:"allow_stdin"`
	StopOnError     bool     `json:"stop_on_error"`
}

// Execute runs a cell and hands its outputs to output in their order, and last the kernel's reply.
// It returns an error if the
// kernel is gone, the context ends or output returns an error. The kernel may then still be at work:
// the outputs of this cell are dropped from then on.
func (c *Client) Execute(ctx context.Context, r Request, output func(Message) error) error {
	if r.Metadata == nil {
		r.Metadata = struct{}{}
	}
	id, err := c.request("execute_request", r.Metadata, executeRequest{Code: r.Code, Silent: r.Silent,
		StoreHistory: !r.Silent})
	if err != nil {
		return errors.Join(ErrGone, err)
	}
	replied, idle := false, false
	var reply Message
	grace := time.NewTimer(idleGrace)
	defer grace.Stop()
	for !replied || !idle {
		select {
		case m := <-c.replies:
			if m.Parent.ID == id {
				replied, reply = true, m
			}
			grace.Reset(idleGrace)
		case m := <-c.outputs:
			grace.Reset(idleGrace)
			switch {
			case m.Parent.ID != id:
			case m.Header.Type == "status":
				idle = idle || state(m) == "idle"
			default:
				err = output(m)
			}
			if err != nil {
				return err
			}
		case <-grace.C:
			if replied {
				return output(reply)
			}
		case <-c.gone:
			return ErrGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return output(reply)
}

// Settle waits until the kernel has worked off everything that it was asked before.
func (c *Client) Settle(ctx context.Context) error {
	id, err := c.request("kernel_info_request", struct{}{}, struct{}{})
	if err != nil {
		return errors.Join(ErrGone, err)
	}
	for {
		select {
		case m := <-c.replies:
			if m.Parent.ID == id {
				return nil
			}
		case <-c.outputs: // of a cell that nobody waits for
		case <-c.gone:
			return ErrGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// state returns the execution state in a status message.
func state(m Message) string {
	var s struct {
		State string `json:"execution_state"`
	}
	_ = json.Unmarshal(m.Content, &s) // anything else is no state
	return s.State
}

// Interrupt asks the kernel to interrupt the cell, for kernels that want a message for it.
func (c *Client) Interrupt(ctx context.Context) error {
	control, err := c.dial(ctx, c.conn.Control, zmtp.Dealer)
	if err != nil {
		return err
	}
	defer control.Close()
	frames, err := encode(c.conn.Key, c.header("interrupt_request"), struct{}{}, struct{}{})
	if err != nil {
		return err
	}
	if err := control.Send(frames...); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = control.Close() })
	defer stop()
	_, err = control.Receive() // the reply: the kernel has the request
	return err
}
