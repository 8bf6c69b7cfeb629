package hostdoor

import (
	"net"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
)

// Late is a [Door] that opens later: links exist before the service does. The zero
// value is closed; it is safe for concurrent use.
type Late struct{ door atomic.Pointer[Door] }

// Open opens it: from now on d serves.
func (l *Late) Open(d *Door) { l.door.Store(d) }

// ServeConn is the wire's Options.Local. Whoever asks before the door is open is told
// nothing.
func (l *Late) ServeConn(id carrel.ID, c net.Conn) {
	if d := l.door.Load(); d != nil {
		d.ServeConn(id, c)
		return
	}
	_ = c.Close()
}
