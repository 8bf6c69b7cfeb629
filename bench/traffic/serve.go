package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// Ports are the server's ports, on all addresses.
type Ports struct {
	Sink   int // reads everything and returns the number of bytes
	Source int // reads a number and sends that many bytes
	Echo   int
	Gate   int // answers all once as many are open as the last input line said
}

// serve serves until its input ends.
func serve() error {
	g := &gate{full: make(chan struct{})}
	var p Ports
	for port, handle := range map[*int]func(net.Conn){&p.Sink: sink, &p.Source: source, &p.Echo: echoBack, &p.Gate: g.enter} {
		l, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			return err
		}
		*port = l.Addr().(*net.TCPAddr).Port
		go accept(l, handle)
	}
	if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
		return err
	}
	for {
		var n int
		if _, err := fmt.Fscanln(os.Stdin, &n); err != nil {
			return nil
		}
		g.reset(n)
		fmt.Println("{}")
	}
}

func accept(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "traffic:", err)
			os.Exit(1)
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

func sink(c net.Conn) {
	n, err := swallow(c)
	if err == nil {
		fmt.Fprintln(c, n)
	}
}

func source(c net.Conn) {
	var n int64
	if _, err := fmt.Fscanln(c, &n); err != nil {
		return
	}
	buf := make([]byte, block)
	for ; n > 0; n -= block {
		if _, err := c.Write(buf[:min(n, block)]); err != nil {
			return
		}
	}
}

func echoBack(c net.Conn) {
	b := make([]byte, 1)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// gate lets all connections through once enough have come.
type gate struct {
	mu   sync.Mutex
	wait int
	in   int
	full chan struct{}
}

func (g *gate) reset(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wait, g.in, g.full = n, 0, make(chan struct{})
}

func (g *gate) enter(c net.Conn) {
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	g.mu.Lock()
	g.in++
	full := g.full
	if g.in == g.wait {
		close(full)
	}
	g.mu.Unlock()
	<-full
	_, _ = c.Write(b)
}
