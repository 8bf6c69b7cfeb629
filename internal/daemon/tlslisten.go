package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/accept"
)

// handshakeTime bounds a TLS handshake.
const handshakeTime = 10 * time.Second

// tlsListener makes the TLS handshake of each connection in its own goroutine, so that a slow
// client delays nobody. Its connections give decrypted bytes, so that the next listener can inspect
// them before HTTP (see gateway.StrictListener).
type tlsListener struct {
	net.Listener
	cfg   *tls.Config
	ready chan net.Conn
	ended chan struct{} // closed when the listener below has ended
	err   error         // why
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// NewTLSListener is a listener of TLS connections whose handshakes delay nobody.
func NewTLSListener(l net.Listener, cfg *tls.Config) net.Listener { return newTLSListener(l, cfg) }

// newTLSListener starts to accept. Close ends that, and the handshakes under way.
func newTLSListener(l net.Listener, cfg *tls.Config) net.Listener {
	cfg = cfg.Clone()
	for _, p := range []string{"h2", "http/1.1"} {
		if !slices.Contains(cfg.NextProtos, p) {
			cfg.NextProtos = append(cfg.NextProtos, p)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &tlsListener{Listener: l, cfg: cfg, ready: make(chan net.Conn), ended: make(chan struct{}), stop: stop}
	t.wg.Go(func() { t.accept(ctx) })
	return t
}

func (t *tlsListener) accept(ctx context.Context) {
	defer close(t.ended)
	t.err = accept.All(ctx, t.Listener, func(raw net.Conn) { t.wg.Go(func() { t.shake(ctx, raw) }) })
}

// shake makes a handshake and passes the connection on.
func (t *tlsListener) shake(ctx context.Context, raw net.Conn) {
	c := tls.Server(raw, t.cfg)
	shaking, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := c.HandshakeContext(shaking); err != nil {
		_ = raw.Close()
		return
	}
	if c.ConnectionState().NegotiatedProtocol == "acme-tls/1" { // it ends after the handshake
		_ = c.Close()
		return
	}
	select {
	case t.ready <- c:
	case <-ctx.Done():
		_ = raw.Close()
	}
}

// Accept implements net.Listener.
func (t *tlsListener) Accept() (net.Conn, error) {
	select {
	case c := <-t.ready:
		return c, nil
	case <-t.ended:
		return nil, t.err
	}
}

// Close implements net.Listener.
func (t *tlsListener) Close() error {
	err := t.Listener.Close()
	t.stop()
	t.wg.Wait()
	return err
}
