package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// Receive buffers of the host's connections to its sandboxes. They carry the output of processes,
// the files and the answers of ports. A client that stops reading leaves such a buffer full until
// it goes away. So each connection begins with a small buffer, and has a larger one only after its
// reader has read a lot. All that is above the small ones comes from one budget of the daemon.
const (
	// inboundBudget bounds the sum of what connections have above their first buffers.
	inboundBudget = 64 << 20
	// inboundMost is the largest buffer of one connection. A larger one makes nothing faster.
	inboundMost = 2 << 20
	// inboundEarned is how many bytes must be read for each byte of a larger buffer. A client that
	// reads nothing makes the daemon read some megabytes, because the host's sockets hold that much.
	// This must not enlarge a buffer.
	inboundEarned = 16
	// inboundShare is the part of the free budget that one step may take. So those who come late
	// find some left.
	inboundShare = 16
	// inboundRest is how often unused buffers are looked for.
	inboundRest = time.Second
)

// inboundClasses are the first buffers, by how many connections are open.
var inboundClasses = []struct{ from, size int }{
	{1024, 64 << 10},
	{256, 128 << 10},
	{0, firstWindow},
}

// inbounds shares the budget among the connections of all links.
type inbounds struct {
	budget int // bytes to share

	mu    sync.Mutex
	open  int
	taken int                   // bytes of the budget
	large map[*inbound]struct{} // those that took some
}

// inbound is one of the host's connections to a sandbox.
type inbound struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
	shared   *inbounds
	most     int
	got      atomic.Int64 // bytes read since the buffer was small
	next     atomic.Int64 // enlarge the buffer once got reaches this

	// Under shared.mu:
	first, size int
	seen        int64 // got, when it was last looked at
	closed      bool
}

// add makes c one of the connections. No buffer becomes larger than most.
func (s *inbounds) add(c *gonet.TCPConn, ep tcpip.Endpoint, most int) *inbound {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := &inbound{TCPConn: c, endpoint: ep, shared: s, most: min(most, inboundMost)}
	for _, class := range inboundClasses {
		if s.open >= class.from {
			in.first = min(class.size, in.most)
			break
		}
	}
	s.open++
	in.set(in.first)
	return in
}

// set changes the size of the buffer. The caller holds shared.mu.
func (in *inbound) set(size int) {
	in.size = size
	in.next.Store(int64(2 * size * inboundEarned))
	in.endpoint.SocketOptions().SetReceiveBufferSize(int64(size), true)
}

// Read implements net.Conn.
func (in *inbound) Read(b []byte) (int, error) {
	n, err := in.TCPConn.Read(b)
	if in.got.Add(int64(n)) >= in.next.Load() {
		in.shared.enlarge(in)
	}
	return n, err
}

// Close implements net.Conn.
func (in *inbound) Close() error {
	in.shared.remove(in)
	return in.TCPConn.Close()
}

// enlarge doubles the buffer of a connection, if the budget allows it. Otherwise the connection
// asks again after as many bytes.
func (s *inbounds) enlarge(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := in.got.Load()
	if in.closed || got < in.next.Load() {
		return // another reader did it
	}
	more := min(2*in.size, in.most) - in.size
	if more == 0 || more > (s.budget-s.taken)/inboundShare {
		in.next.Store(got + int64(2*in.size*inboundEarned))
		return
	}
	if s.large == nil {
		s.large = make(map[*inbound]struct{})
	}
	if len(s.large) == 0 {
		time.AfterFunc(inboundRest, s.rest)
	}
	s.large[in] = struct{}{}
	s.taken += more
	in.set(in.size + more)
}

// remove forgets a connection that ends.
func (s *inbounds) remove(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !in.closed {
		in.closed = true
		s.open--
		s.giveBack(in)
	}
}

// giveBack returns to the budget what a connection took. The caller holds mu.
func (s *inbounds) giveBack(in *inbound) {
	s.taken -= in.size - in.first
	in.size = in.first
	delete(s.large, in)
}

// rest makes the buffers small again of connections that are silent, such as those that wait in a
// pool. A connection with unread bytes keeps its part, because these bytes are there.
func (s *inbounds) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for in := range s.large {
		got := in.got.Load()
		silent := got == in.seen
		in.seen = got
		if unread, err := in.endpoint.GetSockOptInt(tcpip.ReceiveQueueSizeOption); !silent ||
			err != nil || unread > 0 {
			continue
		}
		s.giveBack(in)
		in.got.Store(0)
		in.seen = 0
		in.set(in.first)
	}
	if len(s.large) > 0 {
		time.AfterFunc(inboundRest, s.rest)
	}
}
