package web

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// closeTimeout is how long a server may go on after the sandbox has finished.
const closeTimeout = 10 * time.Second

// serveWebSocket forwards the server's agreement, and then bytes both ways. It does not inspect the
// sandbox's bytes. It removes secrets from the server's bytes.
func (h *http1) serveWebSocket(e *exchange, u *upstream) {
	scrub := e.scrub()
	h.out = append(h.appendAnswer(h.out[:0], &answer{how: noBody}, scrub, false), "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	defer func() {
		h.drop()
		h.ended(e, http.StatusSwitchingProtocols)
	}()
	if h.write(h.out) != nil {
		return
	}
	up := make(chan struct{})
	go func() {
		defer close(up)
		copyFrom(u.conn, h.in)
		if w, ok := u.conn.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
		_ = u.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	}()
	to := &countingConn{Conn: h.conn, n: &h.wrote}
	if scrub == nil {
		copyFrom(to, u.in)
	} else {
		_ = scrubFrames(to, u.in, scrub)
	}
	_ = h.conn.SetReadDeadline(time.Unix(1, 0))
	_ = u.conn.Close()
	<-up
	_ = h.conn.SetReadDeadline(time.Time{})
}

// countingConn counts the bytes written.
type countingConn struct {
	net.Conn
	n *int64
}

// Write implements io.Writer.
func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	*c.n += int64(n)
	return n, err
}

// copyFrom copies until either side ends.
func copyFrom(to io.Writer, from io.Reader) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	b := (*buf)[:cap(*buf)]
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Bits of a frame's first two bytes.
const (
	frameFinal    = 0x80
	frameReserved = 0x70
	frameCode     = 0x0f
	frameControl  = 0x08
	frameMasked   = 0x80
)

// scrubFrames copies the frames of a WebSocket server. A message's text is one stream, however it
// is cut into frames, and may be sent in other frames than it came in.
func scrubFrames(to io.Writer, from io.Reader, set *needles) error {
	message := scrubber{set: set}
	inBuf, outBuf := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	defer buffers.Put(inBuf)
	defer buffers.Put(outBuf)
	in := (*inBuf)[:bigBuffer/2]
	var code byte // of the present message, until its first frame is sent
	for {
		var head [14]byte
		if _, err := io.ReadFull(from, head[:2]); err != nil {
			return err
		}
		if head[0]&frameReserved != 0 || head[1]&frameMasked != 0 {
			return errors.New("the server sends frames in a form that was not agreed on")
		}
		length, err := frameLength(from, head[1], head[2:])
		if err != nil {
			return err
		}
		final := head[0]&frameFinal != 0
		if c := head[0] & frameCode; c >= frameControl {
			if length > 125 || !final {
				return errors.New("a control frame is too long")
			}
			if _, err := io.ReadFull(from, in[:length]); err != nil {
				return err
			}
			if _, err := to.Write(appendFrame((*outBuf)[:0], head[0], set.strike(in[:length]))); err != nil {
				return err
			}
			continue
		} else if c != 0 {
			code = c
		}
		for {
			n := min(length, int64(len(in)))
			if _, err := io.ReadFull(from, in[:n]); err != nil {
				return err
			}
			length -= n
			text := message.next(nil, in[:n])
			last := final && length == 0
			first := code
			if last {
				text = message.rest(text)
				first |= frameFinal
			}
			if len(text) > 0 || last || length == 0 {
				if _, err := to.Write(appendFrame((*outBuf)[:0], first, text)); err != nil {
					return err
				}
				code = 0
			}
			if length == 0 {
				break
			}
		}
	}
}

// frameLength reads the rest of a frame's head.
func frameLength(from io.Reader, second byte, b []byte) (int64, error) {
	switch n := int64(second &^ frameMasked); n {
	case 126:
		_, err := io.ReadFull(from, b[:2])
		return int64(binary.BigEndian.Uint16(b)), err
	case 127:
		_, err := io.ReadFull(from, b[:8])
		v := binary.BigEndian.Uint64(b)
		if err == nil && v > 1<<62 {
			err = errors.New("a frame is too long")
		}
		return int64(v), err
	default:
		return n, nil
	}
}

// appendFrame writes an unmasked frame.
func appendFrame(b []byte, first byte, payload []byte) []byte {
	b = append(b, first)
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}
