package wire_test

import (
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/wire"
)

// BenchmarkTAP moves bytes between a program in a namespace and a server on loopback. It is made
// for profiles. The official figures come from bench.
func BenchmarkTAP(b *testing.B) {
	for _, program := range []string{"flood", "drain"} {
		for name, c := range map[string]tap.Config{"TAP": {}, "plain": {Plain: true}, "1500": {MTU: 1500}} {
			b.Run(program+"/"+name, func(b *testing.B) { benchTAP(b, program, c) })
		}
	}
}

func benchTAP(b *testing.B, program string, c tap.Config) {
	const size = 64 << 20
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := server.Accept()
		if err == nil {
			defer conn.Close()
			block := make([]byte, 1<<20)
			if program == "flood" {
				_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, conn, block)
			}
			for i := 0; program == "drain" && err == nil && i < b.N*size; i += len(block) {
				_, err = conn.Write(block)
			}
		}
		served <- err
	}()
	w := wire.New(wire.Options{Dialer: &wire.Table{Dial: map[string]string{"203.0.113.9:80": server.Addr().String()}},
		Egress: always(carrel.Network{Internet: true})})
	defer w.Close()
	cmd := insideCommand(program, "203.0.113.9:80", strconv.Itoa(b.N*size))
	link, err := tap.Spawn(cmd, c)
	needNamespaces(b, err)
	mtu := c.MTU
	if mtu == 0 {
		mtu = tap.DefaultMTU
	}
	b.SetBytes(size)
	b.ResetTimer()
	if _, err := w.Attach(b.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: mtu}, link); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	if err := <-served; err != nil {
		b.Fatal(err)
	}
}
