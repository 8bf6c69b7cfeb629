package oshost

import (
	"context"
	"net"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestSocketOwner finds a program by its port, over TCP and UDP.
func TestSocketOwner(t *testing.T) {
	_, err := exec.LookPath("bash")
	testenv.Need(t, "bash", err)
	s := New(Options{})
	defer s.Close()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer udp.Close()
	cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+strings.Replace(tcp.Addr().String(), ":", "/", 1)+
		" 4<>/dev/udp/"+strings.Replace(udp.LocalAddr().String(), ":", "/", 1)+"; echo hello >&4; read line <&3")
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c, err := tcp.Accept()
	must(t, err)
	defer c.Close()
	_, from, err := udp.ReadFrom(make([]byte, 10))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, port := range []int{c.RemoteAddr().(*net.TCPAddr).Port, from.(*net.UDPAddr).Port} {
		isUDP := port == from.(*net.UDPAddr).Port
		got, ok := s.SocketOwner(ctx, isUDP, uint16(port))
		if !ok || got.PID != cmd.Process.Pid || got.Name != "bash" || !slices.Contains(got.Ancestors, os.Getpid()) {
			t.Errorf("udp=%v: %+v, %v", isUDP, got, ok)
		}
	}
	if got, ok := s.SocketOwner(ctx, false, uint16(tcp.Addr().(*net.TCPAddr).Port)); ok && got.PID == os.Getpid() {
		t.Errorf("a listener is no client: %+v", got)
	}
	if got, ok := s.SocketOwner(ctx, false, 1); ok {
		t.Errorf("nobody's port: %+v", got)
	}
	over, stop := context.WithCancel(ctx)
	stop()
	if got, ok := s.SocketOwner(over, false, uint16(c.RemoteAddr().(*net.TCPAddr).Port)); ok {
		t.Errorf("when it is too late: %+v", got)
	}
}

func TestSocketInodes(t *testing.T) {
	// As Linux and gVisor have it.
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 100 1 0000000000000000 100 0 0 10 0
   1: 0201A8C0:01BB 09710CCB:01BB 02 00000000:00000000 00:00000000 00000000  1000        0 101 1 0000000000000000 100 0 0 10 -1
   2: 0201A8C0:1000 09710CCB:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 102 1 0000000000000000 100 0 0 10 -1
   3: 0201A8C0:01BB 09710CCB:01BB 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0000000000000000
 4: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 01 00000000:00000000 00:00000000 00000000     0        0      103 1 0x0 0 0 0 0 -1
   5: broken:01BB
`
	if got := socketInodes(strings.NewReader(table), false, 443); !reflect.DeepEqual(got, []uint64{101, 103}) {
		t.Errorf("tcp: %v", got)
	}
	if got := socketInodes(strings.NewReader(table), true, 443); !reflect.DeepEqual(got, []uint64{100, 101, 103}) {
		t.Errorf("udp has no listeners: %v", got)
	}
}

func TestParseStat(t *testing.T) {
	for text, want := range map[string]struct {
		name            string
		parent, session int
	}{
		"12 (curl) S 7 12 5 34816 12":    {"curl", 7, 5},
		"12 (a) b (c)) R 1 2 3 4":        {"a) b (c)", 1, 3},
		"12 (evil) S 99 99\n) S 7 12 5 ": {"evil) S 99 99\n", 7, 5},
		"12 (x) S 7":                     {"x", 0, 0},
		"12 x":                           {},
		")(":                             {},
		"":                               {},
	} {
		name, parent, session := parseStat(text)
		if name != want.name || parent != want.parent || session != want.session {
			t.Errorf("%q: %q %d %d", text, name, parent, session)
		}
	}
}

func FuzzSocketTables(f *testing.F) {
	f.Add("   1: 0201A8C0:01BB 09710CCB:01BB 02 0:0 0:0 0 1000 0 101 1", "12 (curl) S 7 12 5 34816 12", uint16(443))
	f.Add(":01BB", "((", uint16(443))
	f.Fuzz(func(t *testing.T, table, stat string, port uint16) {
		if got := socketInodes(strings.NewReader(table), port%2 == 0, port); len(got) > maxSockets {
			t.Errorf("%d sockets", len(got))
		}
		if name, _, _ := parseStat(stat); !strings.Contains(stat, name) {
			t.Errorf("%q has no %q", stat, name)
		}
	})
}
