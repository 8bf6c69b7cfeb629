package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// rawSockets tries to open sockets below TCP and UDP.
func rawSockets([]string) {
	for _, s := range []struct {
		name                 string
		family, kind, number int
	}{
		{"packet raw", unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		{"packet dgram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300},
		{"raw icmp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw any", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"raw icmp6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	} {
		fd, err := unix.Socket(s.family, s.kind, s.number)
		result("socket "+s.name, err, "made")
		if err == nil {
			unix.Close(fd)
		}
	}
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
		control("sockets", "stream sockets can be made")
		unix.Close(fd)
	}
}

// unixSockets connects to the host's sockets. Arguments: PATH… ("@" begins an abstract one).
func unixSockets(args []string) {
	for _, a := range args {
		for _, p := range []string{a, "/proc/1/root" + a, "/proc/self/root/.." + a} {
			if strings.HasPrefix(a, "@") && p != a {
				continue
			}
			c, err := net.DialTimeout("unix", p, time.Second)
			if err == nil {
				c.Close()
			}
			result("unix "+p, err, "connected")
		}
	}
	if l, err := net.Listen("unix", fmt.Sprintf("@inside-%d", os.Getpid())); err == nil {
		if c, err := net.Dial("unix", l.Addr().String()); err == nil {
			control("unix", "a socket inside is reached")
			c.Close()
		}
		l.Close()
	}
}

// connect opens TCP connections and sends UDP packets. Arguments: ADDRESS…
func connect(args []string) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			control("connect", "a listener inside is reached")
			c.Close()
		}
		l.Close()
	}
	for _, a := range args {
		start := time.Now()
		c, err := net.DialTimeout("tcp", a, 3*time.Second)
		if err == nil {
			c.Close()
		}
		result("tcp "+a, err, "connected after %v", time.Since(start))
		if u, err := net.Dial("udp", a); err == nil {
			_, _ = u.Write([]byte("attack"))
			u.Close()
		}
	}
}

// names asks every known kind of resolver for a name. Arguments: NAME SERVER…
func names(args []string) {
	for _, server := range args[1:] {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, server)
		}}
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		start := time.Now()
		got, err := r.LookupHost(ctx, args[0])
		result("dns "+server, err, "%v", got)
		control("dns "+server, "%d ms", time.Since(start).Milliseconds())
		cancel()
	}
}

// listen accepts on an address and answers each connection with a line. Arguments: ADDRESS LINE. It
// reports when it listens, and prints every peer.
func listen(args []string) {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		fmt.Println("listen\trefused\t" + err.Error())
		os.Exit(1)
	}
	control("listen", "ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		worked("accept", "%s", c.RemoteAddr())
		_, _ = fmt.Fprintln(c, args[1])
		c.Close()
	}
}
