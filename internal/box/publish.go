//go:build linux

package box

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// door is a published port.
type door struct {
	listener net.Listener
	inside   uint16
}

// pendingDial waits for the stage's answer.
type pendingDial chan *os.File

// doors are the published ports of a box.
type doors struct {
	list []door
	work sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	next    int
	pending map[int]pendingDial
	open    map[net.Conn]bool
}

// openDoors listens outside. It accepts no connection before the box runs.
func (b *Box) openDoors() error {
	if len(b.spec.Publish) == 0 {
		return nil
	}
	b.doors = &doors{pending: map[int]pendingDial{}, open: map[net.Conn]bool{}}
	for _, p := range b.spec.Publish {
		l, err := net.Listen("tcp", p.Outside)
		if err != nil {
			return &carrel.Error{Op: "publish port", Kind: carrel.Conflict, Err: err, Hint: "choose another port, or 0 for any"}
		}
		b.doors.list = append(b.doors.list, door{l, p.Inside})
	}
	return nil
}

// serveDoors accepts connections.
func (b *Box) serveDoors() {
	if b.doors == nil {
		return
	}
	for _, d := range b.doors.list {
		b.doors.work.Go(func() {
			for {
				c, err := d.listener.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil { // for example: no free descriptor
					time.Sleep(10 * time.Millisecond)
					continue
				}
				b.doors.work.Go(func() { b.pass(c, d.inside) })
			}
		})
	}
}

// pass relays one connection.
func (b *Box) pass(outside net.Conn, port uint16) {
	defer outside.Close()
	if !b.doors.keep(outside) {
		return
	}
	defer b.doors.forget(outside)
	inside, err := b.dialInside(port)
	if err != nil {
		return
	}
	defer inside.Close()
	if !b.doors.keep(inside) {
		return
	}
	defer b.doors.forget(inside)
	done := make(chan struct{})
	go func() {
		defer close(done)
		relay(inside, outside)
	}()
	relay(outside, inside)
	<-done
}

// relay copies one direction and reports its end.
func relay(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	if c, ok := dst.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
}

// dialInside asks the stage for a connection to a port of the box.
func (b *Box) dialInside(port uint16) (net.Conn, error) {
	d := b.doors
	answer := make(pendingDial, 1)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, net.ErrClosed
	}
	d.next++
	id := d.next
	d.pending[id] = answer
	d.mu.Unlock()
	if err := b.conn.send(message{Word: dial, ID: id, Port: port}); err != nil {
		return nil, err
	}
	f := <-answer
	if f == nil {
		return nil, fmt.Errorf("nobody listens on port %d inside", port)
	}
	defer f.Close()
	return net.FileConn(f)
}

// answered passes on the stage's answer.
func (d *doors) answered(id int, f *os.File) {
	if d != nil {
		d.mu.Lock()
		answer, ok := d.pending[id]
		delete(d.pending, id)
		d.mu.Unlock()
		if ok {
			answer <- f
			return
		}
	}
	if f != nil {
		_ = f.Close()
	}
}

func (d *doors) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.open[c] = true
	}
	return !d.closed
}

func (d *doors) forget(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
}

// close closes all connections and waits until they have ended.
func (d *doors) close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.closed = true
	for id, answer := range d.pending {
		delete(d.pending, id)
		answer <- nil
	}
	for c := range d.open {
		_ = c.Close()
	}
	d.mu.Unlock()
	for _, one := range d.list {
		_ = one.listener.Close()
	}
	d.work.Wait()
}

// Published returns the addresses outside, in the order of Spec.Publish.
func (b *Box) Published() []string {
	if b.doors == nil {
		return nil
	}
	out := make([]string, 0, len(b.doors.list))
	for _, d := range b.doors.list {
		out = append(out, d.listener.Addr().String())
	}
	return out
}
