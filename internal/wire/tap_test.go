package wire_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/wire"
)

// sandboxKinds are all types of links. Each gives the same promises.
var sandboxKinds = []struct {
	name string
	link func(t *testing.T, opts wire.Options) (*wire.Wire, driver.Link, insider)
}{
	{"socket", func(t *testing.T, opts wire.Options) (*wire.Wire, driver.Link, insider) {
		w, _, l, g := newLink(t, opts)
		return w, l, insideStack{g}
	}},
	{"TAP", onTAP(tap.Config{})},
	{"plain TAP", onTAP(tap.Config{Plain: true})},
	{"TAP with small frames", onTAP(tap.Config{MTU: 1500})},
	{"pair", onTAP(tap.Config{Pair: true})},
	{"pair with small frames", onTAP(tap.Config{Pair: true, MTU: 1500})},
}

func onTAP(c tap.Config) func(*testing.T, wire.Options) (*wire.Wire, driver.Link, insider) {
	return func(t *testing.T, opts wire.Options) (*wire.Wire, driver.Link, insider) {
		n := newNamespace(t, c)
		w := wire.New(opts)
		t.Cleanup(func() { _ = w.Close() })
		mtu := c.MTU
		if mtu == 0 {
			mtu = tap.DefaultMTU
		}
		return w, n.attach(w, mtu), n
	}
}

// TestKinds shows that all types of links behave alike.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range sandboxKinds {
		t.Run(kind.name, func(t *testing.T) {
			tcp, udp := canary(t)
			outside := &wire.Table{
				Names: map[string][]string{"api.example.com": {"203.0.113.9", "2001:db8::9"}},
				Dial: map[string]string{"203.0.113.9:80": tcp, "[2001:db8::9]:80": tcp, "203.0.113.9:9": udp, "[2001:db8::9]:9": udp,
					"203.0.113.9:81": "127.0.0.1:1"},
			}
			_, l, in := kind.link(t, wire.Options{Dialer: outside, Resolver: outside, Local: sayID,
				Egress: always(carrel.Network{Internet: true, DenyOut: []string{"198.51.100.0/24"}})})
			t.Run("in", func(t *testing.T) { testIn(t, l, in) })
			t.Run("out", func(t *testing.T) { testOut(t, in) })
			t.Run("refusals", func(t *testing.T) { testRefusals(t, l, in) })
			t.Run("names", func(t *testing.T) { testNames(t, in) })
			t.Run("packets", func(t *testing.T) { testPackets(t, in) })
		})
	}
}

// transfer sends random bytes both ways at once through an echo, and compares sums. It closes each
// direction separately.
func transfer(t *testing.T, c net.Conn, size int64) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	sent, got := sha256.New(), sha256.New()
	var wg sync.WaitGroup
	wg.Go(func() {
		random := io.LimitReader(rand.New(rand.NewSource(size)), size)
		if _, err := io.Copy(c, io.TeeReader(random, sent)); err != nil {
			t.Error(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	n, err := io.Copy(got, c)
	wg.Wait()
	if err != nil || n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d of %d bytes came back, or others: %v", n, size, err)
	}
}

func testIn(t *testing.T, l driver.Link, in insider) {
	echo(t, in.listen(8080))
	for _, size := range []int64{1, 70_000, 8 << 20} {
		c, err := l.Dial(within(t, time.Minute), 8080)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, c, size)
		_ = c.Close()
	}
}

func testOut(t *testing.T, in insider) {
	for _, to := range []string{"203.0.113.9", "2001:db8::9"} {
		for _, size := range []int64{1, 70_000, 8 << 20} {
			c, err := in.dial(within(t, time.Minute), to, 80)
			if err != nil {
				t.Fatal(to, err)
			}
			transfer(t, c, size)
			_ = c.Close()
		}
	}
}

// testRefusals shows that a denied or missing destination is refused at once.
func testRefusals(t *testing.T, l driver.Link, in insider) {
	refused := func(err error) bool {
		return errors.Is(err, syscall.ECONNREFUSED) || err != nil && strings.Contains(err.Error(), "refused")
	}
	for _, c := range []struct {
		what, to string
		port     uint16
	}{{"denied", "198.51.100.7", 80}, {"private", "192.168.1.1", 80}, {"closed outside", "203.0.113.9", 81},
		{"the gateway", driver.GatewayIPv6, 81}} {
		conn, err := in.dial(within(t, time.Minute), c.to, c.port)
		if err == nil {
			// The program may see that a connection is reset before its first byte.
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			n, readErr := conn.Read(make([]byte, 1))
			_ = conn.Close()
			if n != 0 || isTimeout(readErr) {
				t.Errorf("%s: read gave %d, %v", c.what, n, readErr)
			}
		} else if !refused(err) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if _, err := l.Dial(within(t, time.Minute), 81); !refused(err) {
		t.Errorf("nobody listens inside: %v", err)
	}
	if _, kernel := in.(*namespace); !kernel {
		return // the stack's test adapter hides ICMP errors
	}
	u := in.udp("198.51.100.7", 9)
	_ = u.SetDeadline(time.Now().Add(time.Minute))
	_, err := u.Write([]byte("x"))
	if err == nil {
		_, err = u.Read(make([]byte, 1))
	}
	if !refused(err) {
		t.Errorf("denied UDP: %v", err)
	}
}

func testNames(t *testing.T, in insider) {
	for _, c := range []struct {
		name string
		kind uint16
		code int
		want string
	}{
		{"api.example.com.", dns.TypeA, dns.RcodeSuccess, "203.0.113.9"},
		{"api.example.com.", dns.TypeAAAA, dns.RcodeSuccess, "2001:db8::9"},
		{"www.example.net.", dns.TypeA, dns.RcodeNameError, ""},
	} {
		for _, gateway := range []string{driver.GatewayIPv4, driver.GatewayIPv6} {
			q := new(dns.Msg).SetQuestion(c.name, c.kind)
			stream, err := in.dial(within(t, time.Minute), gateway, 53)
			if err != nil {
				t.Fatal(err)
			}
			for _, conn := range []*dns.Conn{{Conn: packetConn{in.udp(gateway, 53)}}, {Conn: stream}} {
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				if err := conn.WriteMsg(q); err != nil {
					t.Fatal(err)
				}
				a, err := conn.ReadMsg()
				if err != nil {
					t.Fatal(err)
				}
				if a.Rcode != c.code || c.want != "" && (len(a.Answer) != 1 || !strings.Contains(a.Answer[0].String(), c.want)) {
					t.Errorf("%s: %v", c.name, a)
				}
				_ = conn.Close()
			}
		}
	}
}

// testPackets shows that datagrams of all sizes come back unchanged.
func testPackets(t *testing.T, in insider) {
	for _, to := range []string{"203.0.113.9", "2001:db8::9"} {
		u := in.udp(to, 9)
		for _, size := range []int{1, 1000, 1472, 9000, 60_000} {
			sent := make([]byte, size)
			_, _ = rand.New(rand.NewSource(int64(size))).Read(sent)
			got := make([]byte, 1<<16)
			_ = u.SetDeadline(time.Now().Add(time.Minute))
			if _, err := u.Write(sent); err != nil {
				t.Fatal(err)
			}
			if n, err := u.Read(got); err != nil || !bytes.Equal(got[:n], sent) {
				t.Errorf("%d bytes to %s: %d came back: %v", size, to, n, err)
			}
		}
	}
}

// TestTAPRestart shows that a new stack on the same file can take over, again and again.
func TestTAPRestart(t *testing.T) {
	n := newNamespace(t, tap.Config{})
	echo(t, n.listen(8080))
	for range 3 {
		w := wire.New(wire.Options{})
		l := n.attach(w, tap.DefaultMTU)
		c, err := l.Dial(within(t, time.Minute), 8080)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, c, 100_000)
		open, err := l.Dial(within(t, time.Minute), 8080)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(open); err == nil {
			t.Error("a connection of the closed stack ended without an error")
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTAPKept shows that the keeper holds the file while no daemon runs, and gives it to one daemon
// after the other.
func TestTAPKept(t *testing.T) {
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "keeper")
	if err := keeper.Start(t.Context(), "", socket); err != nil {
		t.Fatal(err)
	}
	k, err := keeper.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close() // it ends by itself when it holds nothing and is not asked
	n := newNamespace(t, tap.Config{})
	if err := errors.Join(k.Put(t.Context(), "box", n.link), n.link.Close()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Delete(context.Background(), "box"); err != nil {
			t.Error(err)
		}
	}()
	echo(t, n.listen(8080))
	for range 2 {
		f, err := k.Get(t.Context(), "box")
		if err != nil {
			t.Fatal(err)
		}
		w := wire.New(wire.Options{})
		l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: tap.DefaultMTU}, f)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Dial(within(t, time.Minute), 8080)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, c, 100_000)
		_ = c.Close()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTAPGone ends the namespace. Its connections and dials must end with it.
func TestTAPGone(t *testing.T) {
	accepted := make(chan net.Conn, 1)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		c, err := server.Accept()
		if err == nil {
			accepted <- c
		}
	}()
	n := newNamespace(t, tap.Config{})
	w := wire.New(wire.Options{Dialer: &wire.Table{Dial: map[string]string{"203.0.113.9:80": server.Addr().String()}},
		Egress: always(carrel.Network{Internet: true})})
	defer w.Close()
	l := n.attach(w, tap.DefaultMTU)
	inside, err := n.dial(t.Context(), "203.0.113.9", 80)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	outside := <-accepted
	defer outside.Close()
	if err := inside.Close(); err != nil { // an open socket of the namespace would keep it alive
		t.Fatal(err)
	}
	n.end()
	_ = outside.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, outside); isTimeout(err) {
		t.Error("its connection outlives it")
	}
	for end := time.Now().Add(30 * time.Second); ; {
		_, err := l.Dial(within(t, time.Minute), 80)
		if errors.Is(err, syscall.ECONNRESET) {
			break
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("dialling a dead namespace: %v", err)
		}
	}
}

// hostileFrames returns frames of any content, for both types of links.
func hostileFrames() [][]byte {
	head := slices.Concat(mac(driver.GatewayMAC), mac(driver.GuestMAC))
	v4, v6 := slices.Concat(head, []byte{8, 0}), slices.Concat(head, []byte{0x86, 0xdd})
	frames := [][]byte{
		v4, v6, slices.Concat(v4, []byte{0x45}), slices.Concat(v4, bytes.Repeat([]byte{0x45}, 60)), slices.Concat(v4, bytes.Repeat([]byte{0x4f}, 60)),
		slices.Concat(v6, bytes.Repeat([]byte{0x60}, 900)), slices.Concat(head, []byte{8, 6}, bytes.Repeat([]byte{0xff}, 28)),
		bytes.Repeat([]byte{0xff}, 60), slices.Concat(head, []byte{0x81, 0}, make([]byte, 60)), slices.Concat(v4, bytes.Repeat([]byte{1}, 60_000)),
	}
	r := rand.New(rand.NewSource(1))
	for range 500 {
		b := make([]byte, 20+r.Intn(2000))
		_, _ = r.Read(b)
		b[0], b[9] = 0x45, byte(r.Intn(20)) // a valid version, and a protocol that may exist
		frames = append(frames, slices.Concat(v4, b))
		b = slices.Clone(b)
		b[0], b[6] = 0x60, byte(r.Intn(64))
		frames = append(frames, slices.Concat(v6, b))
	}
	return frames
}

// TestTAPHostile acts as a root of the namespace. It sends any frame, with any claim about segments
// and checksums, and switches the link off and on. The wire must serve it as before.
func TestTAPHostile(t *testing.T) {
	n := newNamespace(t, tap.Config{})
	w := wire.New(wire.Options{})
	defer w.Close()
	l := n.attach(w, tap.DefaultMTU)
	echo(t, n.listen(8080))
	works := func() {
		t.Helper()
		c, err := l.Dial(within(t, time.Minute), 8080)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		transfer(t, c, 10_000)
	}
	works()
	p := n.packet()
	fd := int(p.Fd())
	send := func(b []byte) { _ = unix.Send(fd, b, 0) } // the kernel itself refuses some
	for _, f := range hostileFrames() {
		send(f)
	}
	works()
	// From here on, each frame has a header of its own with all its claims.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(2))
	for _, f := range hostileFrames() {
		header := make([]byte, 10)
		_, _ = r.Read(header)
		header[0], header[1] = byte(r.Intn(4)), []byte{0, 1, 3, 4, 5, 0x81}[r.Intn(6)]
		if r.Intn(2) == 0 {
			header[3], header[5], header[7], header[9] = 0, byte(r.Intn(4)), 0, 0
		}
		send(slices.Concat(header, f))
	}
	works()
	for range 3 {
		if _, err := n.ask(wish{Do: "down"}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Dial(within(t, 50*time.Millisecond), 8080); err == nil {
			t.Error("dialled over a link that is switched off")
		}
		if _, err := n.ask(wish{Do: "up"}); err != nil {
			t.Fatal(err)
		}
	}
	works()
}

// TestMany opens thousands of connections from one namespace. All are open before the first is
// answered.
func TestMany(t *testing.T) {
	count := 5000
	if testing.Short() || os.Geteuid() != 0 {
		count = 500
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	count = min(count, int(limit.Cur)/2-200) // this process has both ends of outgoing connections
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer server.Close()
	all := make(chan struct{})
	in := make(chan struct{}, count)
	wg.Go(func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				b := make([]byte, 6)
				if _, err := io.ReadFull(c, b); err != nil {
					t.Error(err)
				}
				in <- struct{}{}
				select {
				case <-all:
				case <-t.Context().Done():
				}
				_, _ = c.Write(b)
			})
		}
	})
	w := wire.New(wire.Options{Dialer: &wire.Table{Dial: map[string]string{"203.0.113.9:80": server.Addr().String()}},
		Egress: always(carrel.Network{Internet: true})})
	defer w.Close()
	cmd := insideCommand("many", "203.0.113.9:80", strconv.Itoa(count))
	var out bytes.Buffer
	cmd.Stdout = &out
	ended := startInside(t, cmd, w)
	wg.Go(func() {
		defer close(all)
		for range count {
			select {
			case <-in:
			case <-t.Context().Done():
				return
			}
		}
	})
	if err := <-ended; err != nil || out.String() != "all answered\n" {
		t.Errorf("%v, %s", err, out.String())
	}
}

// startInside starts a program in a namespace of its own. The channel gets its result.
func startInside(t testing.TB, cmd *exec.Cmd, w *wire.Wire) <-chan error {
	t.Helper()
	link, err := tap.Spawn(cmd, tap.Config{Device: os.Getenv(deviceVariable)})
	needNamespaces(t, err)
	if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: tap.DefaultMTU}, link); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- cmd.Wait()
		close(done)
	}()
	return done
}

// stranger is nobody's uid.
const stranger = 54321

// TestTAPUnprivileged runs the tests of TAP links as a user without privileges.
func TestTAPUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // they ran as such a user
	}
	t.Parallel() // it waits for a process of its own
	dir, err := os.MkdirTemp("", "carrel-tap-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	device := filepath.Join(dir, "tun")
	// Most hosts let every user open it.
	if err := errors.Join(os.Chmod(dir, 0o755), unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))), os.Chmod(device, 0o666)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^(TestKinds|TestTAPRestart|TestTAPKept|TestTAPGone|TestTAPHostile|TestMany)$", "-test.count=1", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOCOVERDIR=") }),
		deviceVariable+"="+device, "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as uid %d: %v\n%s", stranger, err, out)
	}
}
