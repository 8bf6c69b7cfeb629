package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Type is the type of a socket.
type Type string

// The types of sockets that this package can be.
const (
	Dealer Type = "DEALER"
	Sub    Type = "SUB"
)

// peers are the types that each type may talk to.
var peers = map[Type][]string{
	Dealer: {"ROUTER", "REP", "DEALER"},
	Sub:    {"PUB", "XPUB"},
}

const (
	greetingSize = 64
	// maxCommand bounds a command. The longest one is READY with its properties.
	maxCommand = 64 << 10
	// maxFrames bounds the frames of one message.
	maxFrames = 1024
	// handshakeTimeout bounds the handshake if the context has no earlier end.
	handshakeTimeout = 10 * time.Second
)

// The flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// ErrProtocol means that the peer does not speak this protocol.
var ErrProtocol = errors.New("not ZMTP 3")

// Options describe this end of a connection.
type Options struct {
	Type Type
	// Identity is the routing ID that a ROUTER gets, if not empty.
	Identity []byte
	// MaxMessage is the most bytes of a message that are kept in memory.
	MaxMessage int64
}

// Message is a message of one or more frames.
type Message struct {
	Frames [][]byte
	// Lost counts the bytes that were left out because the message was too long. A frame that lost
	// bytes is empty.
	Lost int64
}

// Conn is a connection after its handshake. One goroutine may receive while others send.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
	max  int64

	mu  sync.Mutex // guards writes
	out *bufio.Writer
}

// Dial connects to an address and does the handshake.
func Dial(ctx context.Context, network, address string, opts Options) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c, err := New(ctx, conn, opts)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return c, nil
}

// New does the handshake on a connection. The caller closes the connection if New fails.
func New(ctx context.Context, conn net.Conn, opts Options) (*Conn, error) {
	c := &Conn{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), max: opts.MaxMessage,
		out: bufio.NewWriterSize(conn, 4<<10)}
	end := time.Now().Add(handshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	_ = conn.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	err := c.handshake(opts)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // a closed connection says so at its first use
	return c, nil
}

// Close closes the connection. A Receive that waits returns an error.
func (c *Conn) Close() error { return c.conn.Close() }

func (c *Conn) handshake(opts Options) error {
	if err := c.greet(); err != nil {
		return err
	}
	ready := property(nil, "Socket-Type", []byte(opts.Type))
	if len(opts.Identity) > 0 {
		ready = property(ready, "Identity", opts.Identity)
	}
	if err := c.writeCommand("READY", ready); err != nil {
		return err
	}
	name, body, err := c.readCommand()
	switch {
	case err != nil:
		return err
	case name == "ERROR":
		return fmt.Errorf("the peer refuses: %q", body)
	case name != "READY":
		return fmt.Errorf("%w: command %q in the handshake", ErrProtocol, name)
	}
	props, err := properties(body)
	if err != nil {
		return err
	}
	for _, t := range peers[opts.Type] {
		if props["socket-type"] == t {
			return nil
		}
	}
	return fmt.Errorf("a %s socket can't talk to a %q socket", opts.Type, props["socket-type"])
}

// greet exchanges greetings: version 3.0, mechanism NULL.
func (c *Conn) greet() error {
	var g [greetingSize]byte
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:32], "NULL")
	if _, err := c.conn.Write(g[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.in, g[:]); err != nil {
		return err
	}
	if g[0] != 0xff || g[9]&1 == 0 || g[10] < 3 {
		return ErrProtocol
	}
	if m := bytes.TrimRight(g[12:32], "\x00"); string(m) != "NULL" {
		return fmt.Errorf("the peer wants the mechanism %q, not NULL", m)
	}
	return nil
}

// property appends a property to the body of a READY command.
func property(body []byte, name string, value []byte) []byte {
	body = append(body, byte(len(name)))
	body = append(body, name...)
	body = binary.BigEndian.AppendUint32(body, uint32(len(value)))
	return append(body, value...)
}

// properties reads the body of a READY command. The names are in lower case.
func properties(body []byte) (map[string]string, error) {
	out := map[string]string{}
	for len(body) > 0 {
		n := int(body[0])
		if len(body) < 1+n+4 {
			return nil, fmt.Errorf("%w: a property is cut off", ErrProtocol)
		}
		name, rest := string(bytes.ToLower(body[1:1+n])), body[1+n:]
		size := binary.BigEndian.Uint32(rest)
		if uint64(len(rest)-4) < uint64(size) {
			return nil, fmt.Errorf("%w: a property is cut off", ErrProtocol)
		}
		out[name] = string(rest[4 : 4+size])
		body = rest[4+size:]
	}
	return out, nil
}

// Subscribe asks a publisher for the messages whose first frame begins with prefix.
func (c *Conn) Subscribe(prefix string) error { return c.Send(append([]byte{1}, prefix...)) }

// Send writes one message.
func (c *Conn) Send(frames ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := c.writeFrame(flags, f); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

func (c *Conn) writeFrame(flags byte, body []byte) error {
	head := make([]byte, 0, 9)
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64(append(head, flags|flagLong), uint64(len(body)))
	} else {
		head = append(head, flags, byte(len(body)))
	}
	if _, err := c.out.Write(head); err != nil {
		return err
	}
	_, err := c.out.Write(body)
	return err
}

func (c *Conn) writeCommand(name string, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := append([]byte{byte(len(name))}, name...)
	if err := c.writeFrame(flagCommand, append(full, body...)); err != nil {
		return err
	}
	return c.out.Flush()
}

// readHead reads the flags and the length of a frame.
func (c *Conn) readHead() (flags byte, size uint64, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, 0, fmt.Errorf("%w: flags %#x", ErrProtocol, flags)
	}
	if flags&flagLong == 0 {
		b, err := c.in.ReadByte()
		return flags, uint64(b), noEOF(err)
	}
	var long [8]byte
	if _, err := io.ReadFull(c.in, long[:]); err != nil {
		return 0, 0, noEOF(err)
	}
	if size = binary.BigEndian.Uint64(long[:]); size > 1<<62 {
		return 0, 0, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, size)
	}
	return flags, size, nil
}

// readCommand reads a frame that has to be a command.
func (c *Conn) readCommand() (name string, body []byte, err error) {
	flags, size, err := c.readHead()
	if err != nil {
		return "", nil, err
	}
	if flags&flagCommand == 0 {
		return "", nil, fmt.Errorf("%w: no command", ErrProtocol)
	}
	return c.commandBody(size)
}

func (c *Conn) commandBody(size uint64) (name string, body []byte, err error) {
	if size == 0 || size > maxCommand {
		return "", nil, fmt.Errorf("%w: a command of %d bytes", ErrProtocol, size)
	}
	full := make([]byte, size)
	if _, err := io.ReadFull(c.in, full); err != nil {
		return "", nil, noEOF(err)
	}
	n := int(full[0])
	if 1+n > len(full) {
		return "", nil, fmt.Errorf("%w: a command's name is cut off", ErrProtocol)
	}
	return string(full[1 : 1+n]), full[1+n:], nil
}

// Receive reads one message. It answers the peer's commands on the way.
func (c *Conn) Receive() (Message, error) {
	var m Message
	var kept int64
	for {
		flags, size, err := c.readHead()
		if err != nil {
			if len(m.Frames) > 0 {
				err = noEOF(err)
			}
			return Message{}, err
		}
		if flags&flagCommand != 0 {
			if err := c.command(size); err != nil {
				return Message{}, err
			}
			continue
		}
		if len(m.Frames) == maxFrames {
			return Message{}, fmt.Errorf("%w: more than %d frames", ErrProtocol, maxFrames)
		}
		var body []byte
		if left := c.max - kept; size > uint64(max(left, 0)) {
			_, err = io.CopyN(io.Discard, c.in, int64(size))
			m.Lost += int64(size)
		} else if body, err = c.body(size); err == nil {
			kept += int64(size)
		}
		if err != nil {
			return Message{}, noEOF(err)
		}
		m.Frames = append(m.Frames, body)
		if flags&flagMore == 0 {
			return m, nil
		}
	}
}

// grow is how much memory a frame gets before its bytes are there.
const grow = 1 << 20

// body reads a frame's bytes. The announced size alone does not make it allocate much.
func (c *Conn) body(size uint64) ([]byte, error) {
	if size <= grow {
		b := make([]byte, size)
		_, err := io.ReadFull(c.in, b)
		return b, err
	}
	var b bytes.Buffer
	b.Grow(grow)
	_, err := io.CopyN(&b, c.in, int64(size))
	return b.Bytes(), err
}

// command reads and answers a command that comes between messages.
func (c *Conn) command(size uint64) error {
	name, body, err := c.commandBody(size)
	if err != nil {
		return err
	}
	if name == "PING" && len(body) >= 2 { // the first two bytes are a time to live
		return c.writeCommand("PONG", body[2:])
	}
	return nil
}

// noEOF makes an end in the middle of something an error of its own.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
