package sim

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// maxLocal bounds one sandbox's connections to its host.
const maxLocal = 8

// hostDoor is a sandbox's way to its host.
type hostDoor struct {
	serve  func(carrel.ID, net.Conn) // nil when the host serves no requests
	slots  chan struct{}
	ctx    context.Context // ends with the sandbox
	cancel context.CancelFunc
	busy   sync.WaitGroup
}

func (h *hostDoor) init(serve func(carrel.ID, net.Conn)) {
	h.serve, h.slots = serve, make(chan struct{}, maxLocal)
	h.ctx, h.cancel = context.WithCancel(context.Background())
}

// close closes the connections and waits for their servers.
func (h *hostDoor) close() {
	h.cancel()
	h.busy.Wait()
}

// dialLocal connects the guest to its host: it hands a connection to Options.Local, as package wire
// does for sandboxes with a link.
func (i *instance) dialLocal(ctx context.Context) (net.Conn, error) {
	if i.host.serve == nil {
		return nil, refused("dial host", i.id, syscall.ECONNREFUSED)
	}
	select {
	case i.host.slots <- struct{}{}:
	default:
		return nil, refused("dial host", i.id, syscall.ECONNREFUSED)
	}
	host, inside := pair()
	// The end of the sandbox ends its connections.
	stop := context.AfterFunc(i.host.ctx, func() { _ = host.Close(); _ = inside.Close() })
	i.host.busy.Go(func() {
		defer func() { stop(); _ = host.Close(); <-i.host.slots }()
		i.host.serve(i.id, host)
	})
	return inside, ctx.Err()
}

// token gets an identity token for a program inside.
func (i *instance) token(ctx context.Context, name, audience string) (string, error) {
	t, err := guest.Host{Dial: i.dialLocal}.Token(ctx, name, audience)
	return t.Value, err
}
