package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// hostileDriver makes sandboxes whose root user has replaced the guest by a program of its own,
// right after the start. The program accepts /init and /health, and answers everything else with
// attack.
type hostileDriver struct {
	*fakeDriver
	attack func(net.Conn)
}

func (d hostileDriver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	inst, err := d.fakeDriver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	box := inst.(*fakeBox)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/init" || r.URL.Path == "/health" {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		stop := context.AfterFunc(box.ctx(), func() { c.Close() })
		defer stop()
		d.attack(c)
		_, _ = io.Copy(io.Discard, c) // says no more, and stays
	}))
	go func() { <-box.ended; evil.Close() }()
	return hostileBox{box, evil.Listener.Addr().String()}, nil
}

type hostileBox struct {
	*fakeBox
	evil string
}

func (b hostileBox) Dial(ctx context.Context, _ uint16) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", b.evil)
}

// pour writes a piece again and again, for as long as the other side reads.
func pour(head, piece string) func(net.Conn) {
	many := []byte(strings.Repeat(piece, 1+(64<<10)/len(piece)))
	return func(c net.Conn) {
		if _, err := io.WriteString(c, head); err != nil {
			return
		}
		for {
			if _, err := c.Write(many); err != nil {
				return
			}
		}
	}
}

// TestHostileGuest makes every call that the daemon makes to a guest, and uses the gateway, while
// the guest answers with an attack. Each call must end in its time, memory must stay bounded, and
// the sandbox can be killed.
func TestHostileGuest(t *testing.T) {
	testenv.Long(t, "waits for time limits")
	const (
		ok     = "HTTP/1.1 200 OK\r\n"
		proto  = ok + "Content-Type: application/proto\r\n"
		stream = ok + "Content-Type: application/connect+proto\r\nTransfer-Encoding: chunked\r\n\r\n"
	)
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text) }
	}
	for name, attack := range map[string]func(net.Conn){
		"silence":              say(""),
		"endless headers":      pour(ok, "A: aaaaaaaaaaaaaaaa\r\n"),
		"endless header":       pour(ok+"A: ", "aaaaaaaaaaaaaaaa"),
		"endless hints":        pour("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
		"a terabyte":           pour(ok+"Content-Type: application/json\r\nContent-Length: 1099511627776\r\n\r\n", `{"a":"`),
		"a terabyte of proto":  pour(proto+"Content-Length: 1099511627776\r\n\r\n", "\x0a\xff\xff\xff\x7f"),
		"a promise":            say(proto + "Content-Length: 1099511627776\r\n\r\n"),
		"an envelope too big":  say(stream + "5\r\n\x00\xff\xff\xff\xff\r\n"),
		"endless messages":     pour(stream, "5\r\n\x00\x00\x00\x00\x00\r\n"),
		"a bomb":               say(proto + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"),
		"an endless trailer":   pour(ok+"Transfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nA: ", "aaaaaaaa"),
		"a redirect elsewhere": say("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
		"an upgrade":           pour("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "z"),
		"two answers":          say(ok + "Content-Length: 2\r\n\r\n{}" + ok + "Content-Length: 5\r\n\r\nother"),
		"an endless error":     pour("HTTP/1.1 500 No\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nxxxxx\r\n"),
		"no HTTP":              pour("", "\x00\xff\x1b[2J"),
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeDriver()
			d := run(t, testConfig(t), Options{Drivers: []driver.Driver{hostileDriver{fake, attack}}, KillOnClose: true})
			svc, err := client.New(d.URL(), d.Key())
			if err != nil {
				t.Fatal(err)
			}
			defer svc.Close()
			sb, err := svc.Create(t.Context(), carrel.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			suffer(t, svc, d, sb)
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if m.HeapInuse > 512<<20 {
				t.Errorf("the heap grew to %d MiB", m.HeapInuse>>20)
			}
			if err := svc.Kill(t.Context(), sb.ID); err != nil {
				t.Errorf("kill: %v", err)
			}
		})
	}
}

// suffer makes each kind of call to a hostile sandbox, in bounded time.
func suffer(t *testing.T, svc carrel.Service, d *running, sb carrel.Sandbox) {
	t.Helper()
	const patience = 200 * time.Millisecond
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	bounded := func(what string, must bool, call func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began := time.Now()
		err := call(ctx)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s took %v", what, took)
		}
		if must && err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	bounded("run", true, func(ctx context.Context) error {
		_, err := c.Run(ctx, carrel.Command{Shell: "true"})
		return err
	})
	bounded("list processes", false, func(ctx context.Context) error { _, err := c.Processes(ctx); return err })
	bounded("list records", true, func(ctx context.Context) error { _, err := c.Records(ctx); return err })
	bounded("read output", true, func(ctx context.Context) error {
		_, err := c.Output(ctx, carrel.OutputQuery{Process: "1", Wait: time.Hour})
		return err
	})
	bounded("stat", false, func(ctx context.Context) error { _, err := c.Files("").Stat(ctx, "/x"); return err })
	bounded("list", false, func(ctx context.Context) error { _, err := c.Files("").List(ctx, "/x", 1); return err })
	bounded("write", false, func(ctx context.Context) error {
		_, err := c.Files("").Write(ctx, "/x", bytes.NewReader(make([]byte, 1<<20)))
		return err
	})
	bounded("read", false, func(ctx context.Context) error {
		r, err := c.Files("").Read(ctx, "/x")
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	})
	bounded("tunnel", false, func(ctx context.Context) error {
		conn, err := c.Dial(ctx, 3000)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	bounded("metrics", false, func(ctx context.Context) error {
		_, err := svc.Metrics(ctx, sb.ID, time.Time{}, time.Time{})
		return err
	})
	bounded("gateway", false, func(ctx context.Context) error {
		req, _ := http.NewRequestWithContext(ctx, "GET", d.URL()+"/metrics", nil)
		req.Header.Set("E2b-Sandbox-Id", string(sb.ID))
		tr := &http.Transport{MaxResponseHeaderBytes: 4 << 20}
		defer tr.CloseIdleConnections()
		resp, err := tr.RoundTrip(req) // follows no redirect
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		raw, err := io.Copy(io.Discard, resp.Body)
		if err == nil && raw == 0 && resp.StatusCode == http.StatusOK {
			err = fmt.Errorf("an empty answer")
		}
		return err
	})
}
