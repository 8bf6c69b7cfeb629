package sshdoor

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
)

// directTCP is the request of a direct-tcpip channel (RFC 4254, section 7.2).
type directTCP struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// forward connects a channel with a port of the sandbox.
func (c *client) forward(ctx context.Context, n ssh.NewChannel) {
	var want directTCP
	if ssh.Unmarshal(n.ExtraData(), &want) != nil || want.Port == 0 || want.Port > 65535 {
		_ = n.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	if !c.own(want.Host) {
		_ = n.Reject(ssh.Prohibited, "only the sandbox's own localhost is reached from here")
		return
	}
	if want.Port == uint32(carrel.GuestPort) {
		// A connection from this host over the link may do things that only the host may do.
		_ = n.Reject(ssh.Prohibited, "this port is the sandbox's own guest")
		return
	}
	computer, err := c.computer(ctx)
	if err != nil {
		_ = n.Reject(ssh.ConnectionFailed, publicText(err))
		return
	}
	c.note(ctx, "port "+strconv.Itoa(int(want.Port)))
	inside, err := computer.Dial(ctx, uint16(want.Port))
	if err != nil {
		_ = n.Reject(ssh.ConnectionFailed, publicText(err))
		return
	}
	defer inside.Close()
	ch, requests, err := n.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	splice(ctx, ch, inside)
}

// own reports whether a host name means the sandbox itself.
func (c *client) own(host string) bool {
	if strings.EqualFold(host, "localhost") || strings.EqualFold(host, string(c.target.id)) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// splice copies both ways until both have ended, or one breaks.
func splice(ctx context.Context, ch ssh.Channel, inside net.Conn) {
	broken := func() {
		_ = ch.Close()
		_ = inside.Close()
	}
	defer context.AfterFunc(ctx, broken)()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := io.Copy(ch, inside)
		if err != nil || ch.CloseWrite() != nil {
			broken()
		}
	})
	wg.Go(func() {
		_, err := io.Copy(inside, ch)
		half, ok := inside.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			broken()
		}
	})
	wg.Wait()
}

// publicText returns an error in one line, with its hint.
func publicText(err error) string {
	text := err.Error()
	if hint := carrel.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
