package hostdoor

import (
	"net"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
)

// Late is a [Door] that opens later, because links exist before the service does. The zero value is
// closed. It is safe for concurrent use.
type Late struct{ door atomic.Pointer[Door] }

// Open sets the door that serves from now on.
func (l *Late) Open(d *Door) { l.door.Store(d) }

// ServeConn is the wire's Options.Local. Before Open, it answers nothing.
func (l *Late) ServeConn(id carrel.ID, c net.Conn) {
	if d := l.door.Load(); d != nil {
		d.ServeConn(id, c)
		return
	}
	_ = c.Close()
}
