package net

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

const (
	unreadStreams = 200
	// unreadMost is the most memory that these streams may cost the daemon: its budget of receive
	// buffers, and 512 KiB for each stream's first buffer and what copies it.
	unreadMost = 64<<20 + unreadStreams*512<<10
)

// reader is a client that asks for one stream and reads as much as it likes.
type reader struct {
	conn net.Conn
	body io.Reader
}

// ask asks for a stream and reads the headers of the answer. Its own buffer is small, so that the
// daemon holds what is not read.
func ask(t *testing.T, h *house, sb carrel.Sandbox, port int, method, path, kind,
	body string) reader {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"E2b-Sandbox-Id": string(sb.ID),
		"E2b-Sandbox-Port": fmt.Sprint(port),
		"X-Access-Token":   sb.AccessToken, "Content-Type": kind, "Connect-Protocol-Version": "1"} {
		req.Header.Set(k, v)
	}
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 4<<10), req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s: %s %s", method, path, resp.Status, why)
	}
	return reader{c, resp.Body}
}

// memory is the daemon's own memory, without that of its files.
func (h *house) memory(t *testing.T) (bytes int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	if _, err := fmt.Sscanf(rest, "%d kB", &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}

// settled waits until the daemon's memory and the bytes that the sandbox sends grow no more.
func (h *house) settled(t *testing.T) int {
	t.Helper()
	last, same := h.memory(t), 0
	testenv.Eventually(t, "the daemon's memory stays as it is", func() bool {
		now := h.memory(t)
		if now > last+1<<20 {
			last, same = now, 0
		}
		same++
		return same == 12
	})
	return last
}

// TestUnread shows that streams that nobody reads cost the daemon a bounded memory: the output of
// processes, files, and answers of ports. One that is read still brings everything, also one that
// was not read for a while.
func TestUnread(t *testing.T) {
	h := open(t, newOutside(t))
	d := h.desk(t, nil)
	sb, err := h.svc.Get(t.Context(), d.id)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(64 << 20)
	if testing.Short() {
		size = 16 << 20 // more than what lies on the way
	}
	want, _, _ := strings.Cut(d.must(t, fmt.Sprintf(
		"head -c %d /dev/urandom >/tmp/big && sha256sum </tmp/big", size), " "), " ")
	d.must(t, `cd /tmp && (setsid python3 -m http.server 8000 >/dev/null 2>&1 &)
		for i in $(seq 600); do curl -sI http://127.0.0.1:8000/ && exit; sleep 0.05; done; exit 1`, "200")
	file := func() reader { return ask(t, h, sb, 49983, "GET", "/files?path=/tmp/big", "", "") }
	port := func() reader { return ask(t, h, sb, 8000, "GET", "/big", "", "") }
	yes := `{"process":{"cmd":"yes"}}`
	output := func() reader {
		return ask(t, h, sb, 49983, "POST", "/process.Process/Start", "application/connect+json",
			"\x00\x00\x00\x00"+string(rune(len(yes)))+yes)
	}
	check := func(what string, r reader) {
		t.Helper()
		sum := sha256.New()
		n, err := io.Copy(sum, r.body)
		if got := fmt.Sprintf("%x", sum.Sum(nil)); err != nil || n != size || got != want {
			t.Errorf("%s: %d bytes of %d, %v, checksum %s, want %s", what, n, size, err, got, want)
		}
		_ = r.conn.Close()
	}
	check("first", file())

	before := h.settled(t)
	var files, ports []reader
	for range unreadStreams / 4 {
		files, ports = append(files, file()), append(ports, port())
		output()
		output()
	}
	if more := h.settled(t) - before; more > unreadMost {
		t.Errorf("%d streams that nobody reads cost the daemon %d MiB, want at most %d", unreadStreams,
			more>>20, unreadMost>>20)
	} else {
		t.Logf("%d streams that nobody reads: %d MiB", unreadStreams, more>>20)
	}
	check("a file besides them", file())
	check("a port besides them", port())
	check("a file after a while", files[0])
	check("a port after a while", ports[0])
}
