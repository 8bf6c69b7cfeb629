//go:build linux

package box_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func init() { helpers["serve"] = serve }

// serve answers connections on a port inside.
func serve() {
	l, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		panic(err)
	}
	println("up")
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			text, _ := io.ReadAll(c)
			_, _ = io.WriteString(c, strings.ToUpper(string(text)))
			_ = c.Close()
		}()
	}
}

func TestClosedNetwork(t *testing.T) {
	names := make(chan string, 100)
	o := box.Options{Events: box.Events{Name: func(n string) { names <- n }}}
	out, _ := output(t, shell(`cat /proc/net/dev | grep -c :; cat /etc/resolv.conf; getent hosts example.com && echo found; getent hosts localhost >/dev/null && echo local`), o)
	if !strings.HasPrefix(out, "1\nnameserver 127.0.0.1\n") || strings.Contains(out, "found") || !strings.HasSuffix(out, "local\n") {
		t.Errorf("%q", out)
	}
	select {
	case n := <-names:
		if n != "example.com" {
			t.Errorf("told %q", n)
		}
	case <-time.After(30 * time.Second):
		t.Error("no name was told")
	}
}

func TestPublish(t *testing.T) {
	need(t)
	for _, c := range []struct {
		inside  string
		network box.Network
	}{{"127.0.0.1:8080", box.Closed}, {"[::1]:8080", box.Closed}, {"127.0.0.1:8080", box.Wired}} {
		t.Run(string(c.network)+" "+c.inside, func(t *testing.T) {
			s := helper(t, "serve", c.inside)
			s.Network = c.network
			s.Publish = []box.Publish{{Outside: "127.0.0.1:0", Inside: 8080}, {Outside: "127.0.0.1:0", Inside: 9}}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			b, err := box.Start(t.Context(), s, box.Options{Stderr: w})
			_ = w.Close()
			if err != nil {
				t.Fatal(err)
			}
			if link := b.Link(); link != nil {
				defer link.Close()
			}
			if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			at := b.Published()
			if len(at) != 2 {
				t.Fatal(at)
			}
			for range 20 {
				c, err := net.Dial("tcp", at[0])
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(c, "hello")
				_ = c.(*net.TCPConn).CloseWrite()
				if text, err := io.ReadAll(c); err != nil || string(text) != "HELLO" {
					t.Errorf("%q %v", text, err)
				}
				_ = c.Close()
			}
			c, err := net.Dial("tcp", at[1]) // nobody listens inside
			if err != nil {
				t.Fatal(err)
			}
			if text, _ := io.ReadAll(c); len(text) != 0 {
				t.Errorf("%q", text)
			}
			_ = c.Close()
			_ = b.Kill()
			_, _ = b.Wait()
			if _, err := net.Dial("tcp", at[0]); err == nil {
				t.Error("the port is still open")
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := plain("true")
	s.Publish = []box.Publish{{Outside: l.Addr().String(), Inside: 1}}
	if _, err := box.Start(t.Context(), s, box.Options{}); !errors.Is(err, carrel.Conflict) {
		t.Error(err)
	}
}

func TestWired(t *testing.T) {
	need(t)
	s := shell("cat /etc/resolv.conf /proc/net/route")
	s.Network = box.Wired
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := box.Start(t.Context(), s, box.Options{Stdout: w})
	_ = w.Close()
	if errors.Is(err, carrel.Unsupported) && os.Geteuid() != 0 {
		if carrel.HintOf(err) == "" || !strings.Contains(err.Error(), "/dev/net/tun") {
			t.Errorf("%v, hint %q", err, carrel.HintOf(err))
		}
		testenv.Need(t, "tun", err)
	}
	if err != nil {
		t.Fatal(err, carrel.HintOf(err))
	}
	defer b.Link().Close()
	text, _ := io.ReadAll(r)
	if !strings.Contains(string(text), "nameserver 10.73.0.1") || !strings.Contains(string(text), "eth0") {
		t.Errorf("%q", text)
	}
	if _, err := b.Wait(); err != nil {
		t.Error(err)
	}
}

func TestHostNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	for _, n := range []box.Network{box.Host, box.Closed} {
		s := plain("/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+l.Addr().String()[len("127.0.0.1:"):])
		s.Network = n
		if _, exit := output(t, s, box.Options{}); (exit.Code == 0) != (n == box.Host) {
			t.Errorf("%s: %+v", n, exit)
		}
	}
}

func TestWatched(t *testing.T) {
	s := shell("mkdir /tmp/a; mkdir /tmp/refused; ls /tmp")
	s.Seccomp = seccomp.Filter{WatchWrites: true, Deny: seccomp.Dangerous(), Namespaces: true, TTY: true}
	asked := make(chan string, 100)
	out, _ := output(t, s, box.Options{Watch: func(b *box.Box, c seccomp.Call) seccomp.Answer {
		if b.Root() == nil {
			t.Error("no root")
		}
		if !strings.HasPrefix(c.Name, "mkdir") {
			return seccomp.Answer{Continue: true}
		}
		arg := 0
		if c.Name == "mkdirat" {
			arg = 1
		}
		path, err := c.Text(c.Args[arg], 4096)
		if err != nil {
			t.Error(err)
		}
		asked <- path
		if path == "/tmp/refused" {
			return seccomp.Answer{Errno: unix.EACCES}
		}
		return seccomp.Answer{Continue: true}
	}})
	if !strings.HasSuffix(out, "\na\n") || strings.Contains(out, "\nrefused\n") || len(asked) != 2 {
		t.Errorf("%q, %d", out, len(asked))
	}
}
