package wire

import "gvisor.dev/gvisor/pkg/tcpip"

const (
	// maxWindow is the largest TCP buffer in each direction.
	maxWindow = 4 << 20
	// firstWindow is the size at the start. It grows with use.
	firstWindow = 256 << 10
)

// windowClasses are the TCP buffers of connections to the outside. The first connections may grow
// as they need. A connection that is made while more than from others are open has size bytes in
// each direction. A hostile sandbox with friends outside can fill the buffers of all its
// connections and never read. So their sum must be bounded: it stays below 1.2 GiB for the 8192
// allowed connections.
var windowClasses = []struct{ from, size int }{
	{1024, 32 << 10},
	{64, 128 << 10},
}

// fit bounds the buffers of a new connection of the sandbox.
func (e *egress) fit(ep tcpip.Endpoint) {
	e.mu.Lock()
	open := e.conns
	e.mu.Unlock()
	for _, c := range windowClasses {
		if open > c.from {
			ep.SocketOptions().SetReceiveBufferSize(int64(c.size), true)
			ep.SocketOptions().SetSendBufferSize(int64(c.size), true)
			return
		}
	}
}
