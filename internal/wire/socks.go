package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// Constants of SOCKS5, RFC 1928, and its passwords, RFC 1929.
const (
	socksVersion    = 5
	socksNoPassword = 0
	socksPassword   = 2
	socksConnect    = 1
	socksIPv4       = 1
	socksName       = 3
	socksIPv6       = 4
)

// dialProxy connects through the sandbox's proxy. For a flow that is allowed by its name, it sends
// the name, and the proxy finds the address. The wire looks up the proxy's own name, each time. A
// proxy at an address that is out of reach for sandboxes is refused.
func (e *egress) dialProxy(ctx context.Context, r *rules, f policy.Flow, v policy.Verdict) (net.Conn, error) {
	c, err := e.dialProxyItself(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("egress proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	host := f.Addr.String()
	if v.ByName != "" {
		host = v.ByName
	}
	err = socks(c, r.proxy, host, f.Port)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("egress proxy: %w", err)
	}
	return c, nil
}

func (e *egress) dialProxyItself(ctx context.Context, r *rules) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(r.proxy.Address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	var to []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		to = []netip.Addr{a}
	} else if to, err = e.names.lookup(ctx, r, host, netip.Addr{}); err != nil {
		return nil, err
	}
	if to = slices.DeleteFunc(to, func(a netip.Addr) bool { return !r.reachable(a) }); len(to) == 0 {
		return nil, fmt.Errorf("%s is out of reach for sandboxes", host)
	}
	return e.dialFirst(ctx, "tcp", to, uint16(port))
}

// socks asks the proxy at the other end of c for a connection.
func socks(c io.ReadWriter, proxy *carrel.EgressProxy, host string, port uint16) error {
	method := byte(socksNoPassword)
	if proxy.Username != "" || proxy.Password != "" {
		method = socksPassword
	}
	answer := make([]byte, 2)
	if err := exchange(c, []byte{socksVersion, 1, method}, answer); err != nil {
		return err
	}
	if answer[0] != socksVersion || answer[1] != method {
		return errors.New("it does not take the way of signing in that is set")
	}
	if method == socksPassword {
		// Package policy refuses names longer than a byte can count.
		b := append([]byte{1, byte(len(proxy.Username))}, proxy.Username...)
		b = append(append(b, byte(len(proxy.Password))), proxy.Password...)
		if err := exchange(c, b, answer); err != nil {
			return err
		}
		if answer[1] != 0 {
			return errors.New("it refuses the user name or password")
		}
	}
	b := []byte{socksVersion, socksConnect, 0}
	if a, err := netip.ParseAddr(host); err != nil {
		if len(host) > 255 {
			return errors.New("name too long")
		}
		b = append(append(b, socksName, byte(len(host))), host...)
	} else if a.Is4() {
		b = append(append(b, socksIPv4), a.AsSlice()...)
	} else {
		b = append(append(b, socksIPv6), a.AsSlice()...)
	}
	head := make([]byte, 4)
	if err := exchange(c, append(b, byte(port>>8), byte(port)), head); err != nil {
		return err
	}
	if head[0] != socksVersion || head[1] != 0 {
		return fmt.Errorf("it can't connect (code %d)", head[1])
	}
	return skipBound(c, head[3])
}

// skipBound reads and ignores the address that the proxy connects from.
func skipBound(r io.Reader, kind byte) error {
	size := 0
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return err
		}
		size = int(n[0])
	default:
		return errors.New("broken answer")
	}
	_, err := io.ReadFull(r, make([]byte, size+2))
	return err
}

func exchange(c io.ReadWriter, question, answer []byte) error {
	if _, err := c.Write(question); err != nil {
		return err
	}
	_, err := io.ReadFull(c, answer)
	return err
}
