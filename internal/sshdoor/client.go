package sshdoor

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// client is one connection after its handshake.
type client struct {
	door   *Door
	conn   *ssh.ServerConn
	target target
	key    carrel.SSHKey // its name and project

	mu       sync.Mutex
	channels int // open
	idle     *time.Timer
}

// serve serves the connection until it ends.
func (c *client) serve(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(c.door.caller(c.door.ctx, c.key))
	c.idle = time.AfterFunc(c.door.opts.IdleTime, func() { _ = c.conn.Close() })
	var wg sync.WaitGroup
	wg.Go(func() { c.answer(requests) })
	wg.Go(func() { c.keepAlive(ctx) })
	for n := range channels {
		open := c.session
		switch n.ChannelType() {
		case "session":
		case "direct-tcpip":
			open = c.forward
		default:
			_ = n.Reject(ssh.UnknownChannelType, "not served here")
			continue
		}
		if !c.enter() {
			_ = n.Reject(ssh.ResourceShortage, "too many sessions and forwards on this connection")
			continue
		}
		wg.Go(func() {
			defer c.leave()
			open(ctx, n)
		})
	}
	cancel()
	c.idle.Stop()
	_ = c.conn.Close()
	wg.Wait()
}

// answer refuses the client's requests about the connection, above all to listen for the client.
func (c *client) answer(requests <-chan *ssh.Request) {
	for r := range requests {
		if r.WantReply {
			_ = r.Reply(r.Type == "keepalive@openssh.com", nil)
		}
	}
}

// keepAlive detects a client that has gone without closing the connection.
func (c *client) keepAlive(ctx context.Context) {
	tick := time.NewTicker(c.door.opts.AliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		gone := time.AfterFunc(2*c.door.opts.AliveEvery, func() { _ = c.conn.Close() })
		_, _, err := c.conn.SendRequest("keepalive@openssh.com", true, nil)
		gone.Stop()
		if err != nil {
			return
		}
	}
}

// enter counts a new channel. The connection is not idle while it has one.
func (c *client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels >= c.door.opts.MaxChannels {
		return false
	}
	c.channels++
	c.idle.Stop()
	return true
}

func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels--; c.channels == 0 {
		c.idle.Reset(c.door.opts.IdleTime)
	}
}

// computer returns access to the inside of the sandbox.
func (c *client) computer(ctx context.Context) (carrel.Computer, error) {
	return c.door.opts.Sandboxes.Computer(ctx, c.target.id)
}

// note gives what the client does to the audit trail. Names of programs are not told: they can hold
// secrets.
func (c *client) note(ctx context.Context, what string) {
	if c.door.opts.Journal == nil {
		return
	}
	from, _, err := net.SplitHostPort(c.conn.RemoteAddr().String())
	if err != nil {
		from = ""
	}
	caller, _ := carrel.CallerIn(ctx)
	c.door.opts.Journal.Note(request.Operation{Kind: carrel.TrailEnter, Caller: caller, From: from,
		Op: "ssh " + what, Targets: []string{string(c.target.id)}})
}
