package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestBigOutput shows that 100 MB (50 with -short) arrive complete, and that neither side holds more
// than a little of it.
func TestBigOutput(t *testing.T) {
	g := newGuest(t)
	size := int64(100 << 20)
	if testing.Short() {
		size /= 2
	}
	req := connect.NewRequest(sh(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' 'y'; printf end >&2", size)))
	stream, err := g.client.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var total int64
	var stderr bytes.Buffer
	var peak uint64
	began := time.Now()
	var mem runtime.MemStats
	for n := 0; stream.Receive(); n++ {
		d := stream.Msg().GetEvent().GetData()
		if n := bytes.Count(d.GetStdout(), []byte("y")); n != len(d.GetStdout()) {
			t.Fatalf("%d of %d bytes are wrong after %d", len(d.GetStdout())-n, len(d.GetStdout()), total)
		}
		total += int64(len(d.GetStdout()))
		stderr.Write(d.GetStderr())
		if n%200 == 0 {
			runtime.ReadMemStats(&mem)
			peak = max(peak, mem.HeapInuse)
		}
	}
	if stream.Err() != nil || total != size || stderr.String() != "end" {
		t.Fatalf("%d bytes, %q, %v", total, stderr.String(), stream.Err())
	}
	t.Logf("%.0f MB/s, heap of server and client at most %d MiB", float64(total)/1e6/time.Since(began).Seconds(), peak>>20)
	if peak > uint64(size)*2/3 {
		t.Errorf("heap of server and client grew to %d MiB", peak>>20)
	}
}

// startRaw starts a process over a bare TCP connection. It returns the connection and reads nothing
// from it.
func startRaw(t *testing.T, g *guestUnderTest, line string) net.Conn {
	t.Helper()
	u, _ := url.Parse(g.URL)
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	body := `{"process":{"cmd":"/bin/sh","args":["-c","` + line + `"]},"stdin":false}`
	var b bytes.Buffer
	b.WriteByte(0)
	_ = binary.Write(&b, binary.BigEndian, uint32(len(body))) // into memory
	b.WriteString(body)
	req, _ := http.NewRequest("POST", g.URL+"/process.Process/Start", &b)
	req.Header.Set("Content-Type", "application/connect+json")
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestStalledClient shows that a client that takes nothing slows the process down only until the
// client goes. The next client gets the output that it did not take.
func TestStalledClient(t *testing.T) {
	g := newGuest(t)
	mark := t.TempDir() + "/mark"
	conn := startRaw(t, g, "echo $$; head -c 8000000 /dev/zero; echo done; touch "+mark+"; sleep 60")
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		t.Fatal(err)
	}
	start := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(resp.Body, start); err != nil || !bytes.Contains(start, []byte(`"pid"`)) {
		t.Fatalf("%q, %v", start, err)
	}
	time.Sleep(300 * time.Millisecond)
	list, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 {
		t.Fatal(list, err)
	}
	pid := list.Msg.GetProcesses()[0].GetPid()
	if e := g.mustRun(t, sh("test -e "+mark)); e.end.GetExitCode() != 1 {
		t.Fatal("8 MB were swallowed while the client took none")
	}
	_ = conn.Close()
	awaitFile(t, g, mark)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := g.client.Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var kept []byte
	for !bytes.HasSuffix(kept, []byte("done\n")) && stream.Receive() {
		kept = append(kept, stream.Msg().GetEvent().GetData().GetStdout()...)
	}
	if !bytes.HasSuffix(kept, []byte("done\n")) || len(kept) < 512<<10 || len(kept) > 2<<20 {
		t.Errorf("kept %d bytes, %v", len(kept), stream.Err())
	}
}

// awaitFile waits until a file exists.
func awaitFile(t *testing.T, g *guestUnderTest, name string) {
	t.Helper()
	testenv.Eventually(t, "there is "+name, func() bool { return g.mustRun(t, sh("test -e "+name)).end.GetExitCode() == 0 })
}

// TestUnheardOutputIsBounded shows that output without a listener is kept up to a limit. The newest
// output is kept, also if it comes in single bytes.
func TestUnheardOutputIsBounded(t *testing.T) {
	g := newGuest(t)
	mark := t.TempDir() + "/mark"
	p := g.start(t, sh("sleep 0.2; seq 1 400000; touch "+mark+"; sleep 60"))
	p.cancel()
	_ = p.Close() // cancelled: nothing to learn
	awaitFile(t, g, mark)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := g.client.Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: byPID(p.pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var kept strings.Builder
	for !strings.HasSuffix(kept.String(), "400000\n") && stream.Receive() {
		kept.Write(stream.Msg().GetEvent().GetData().GetStdout())
	}
	if n := kept.Len(); n < 900<<10 || n > 1<<20 {
		t.Errorf("kept %d bytes", n)
	}
	lines := strings.Split(kept.String(), "\n")
	for i, want := len(lines)-2, 400000; i > 0; i, want = i-1, want-1 {
		if lines[i] != itoa(want) {
			t.Fatalf("line %d from the end is %q", len(lines)-1-i, lines[i])
		}
	}
}

func itoa(n int) string {
	var b [20]byte
	i := len(b)
	for ; n > 0 || i == len(b); n /= 10 {
		i--
		b[i] = byte('0' + n%10)
	}
	return string(b[i:])
}

// TestOutputUpToTheEnd shows that all output and the end arrive, however the process ends. Output
// from just before its death is not lost.
func TestOutputUpToTheEnd(t *testing.T) {
	g := newGuest(t)
	want := sha256.Sum256(bytes.Repeat([]byte("z"), 300000))
	for range 10 {
		e := g.mustRun(t, sh("head -c 300000 /dev/zero | tr '\\0' z; kill -9 $$"))
		if sum := sha256.Sum256(e.stdout.Bytes()); sum != want || e.end.GetStatus() != "signal: killed" {
			t.Fatalf("%d bytes %s, %v", e.stdout.Len(), hex.EncodeToString(sum[:4]), e.end)
		}
	}
}
