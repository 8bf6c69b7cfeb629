package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/filesystem"
	"github.com/carrel-dev/carrel/internal/guest/filesystem/filesystemconnect"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/testenv"
)

const leaving = "the sandbox was paused"

// leave tells a guest to end its streams.
func (g *guestUnderTest) leave(t testing.TB) {
	t.Helper()
	if code, _, body := g.ask(t, "POST", guest.LeavePath, `{"reason":"`+leaving+`"}`); code != 204 {
		t.Fatal(code, body)
	}
}

// wantLeft checks that a stream ended with the reason.
func wantLeft(t testing.TB, what string, err error) {
	t.Helper()
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(fmt.Sprint(err), leaving) {
		t.Errorf("%s ended with %v, want unavailable: %s", what, err, leaving)
	}
}

// TestStdoutStallsAfterResume is a user's complaint: a stream that was open at a pause brought no
// more output. The stream must end with the reason. A new stream must bring the output since then,
// and all later output.
func TestStdoutStallsAfterResume(t *testing.T) {
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("tty=%v", tty), func(t *testing.T) {
			g := newGuest(t, trustAll)
			req := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh",
				Args: []string{"-c", "echo first; while read line; do echo got-$line; done"}}}
			if tty {
				req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
			}
			input := func(text string) *process.ProcessInput {
				if tty {
					return &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(text)}}
				}
				return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}
			}
			say := func(pid uint32, text string) {
				t.Helper()
				if _, err := g.client.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(pid), Input: input(text)})); err != nil {
					t.Fatal(err)
				}
			}
			s := g.start(t, req)
			s.until(t, "first")
			for round := range 3 {
				g.leave(t)
				for s.Receive() {
				}
				wantLeft(t, "the stream", s.Err())
				list, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
				if err != nil || len(list.Msg.GetProcesses()) != 1 || list.Msg.GetProcesses()[0].GetPid() != s.pid {
					t.Fatal("it is not listed:", list, err)
				}
				say(s.pid, fmt.Sprintf("meanwhile%d\n", round))
				again, err := g.client.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byPID(s.pid)}))
				if err != nil {
					t.Fatal(err)
				}
				read := func(want string) {
					t.Helper()
					e := &events{}
					for again.Receive() {
						e.add(again.Msg().GetEvent())
						if strings.Contains(e.stdout.String()+e.tty.String(), want) {
							return
						}
					}
					t.Fatalf("no %q in %q%q: %v", want, e.stdout.String(), e.tty.String(), again.Err())
				}
				read(fmt.Sprintf("got-meanwhile%d", round))
				say(s.pid, fmt.Sprintf("after%d\n", round))
				read(fmt.Sprintf("got-after%d", round))
				s = &started{ServerStreamForClient: nil, pid: s.pid}
				if round < 2 {
					g.leave(t)
					for again.Receive() {
					}
					wantLeft(t, "the second stream", again.Err())
					s = g.attach(t, s.pid)
				} else if err := again.Close(); err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
					t.Log(err)
				}
			}
		})
	}
}

// attach is like start, but for a running process: its stream has the type of a Start's.
func (g *guestUnderTest) attach(t testing.TB, pid uint32) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	// The two streams' messages are the same on the wire.
	c := connect.NewClient[process.ConnectRequest, process.StartResponse](g.Client(), g.URL+"/process.Process/Connect", connect.WithProtoJSON())
	stream, err := c.CallServerStream(ctx, connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	return &started{stream, pid, cancel}
}

// TestPidNotFoundAfterResume is another complaint: after a process ended while no client was
// connected, its exit status could not be read.
func TestPidNotFoundAfterResume(t *testing.T) {
	g := newGuest(t, trustAll)
	release := filepath.Join(t.TempDir(), "go")
	s := g.start(t, sh("while ! test -e "+release+"; do sleep 0.01; done; echo last words; exit 7"))
	g.leave(t)
	for s.Receive() {
	}
	wantLeft(t, "the stream", s.Err())
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := g.connectTo(t, byPID(s.pid))
	if err != nil || e.end.GetExitCode() != 7 || e.stdout.String() != "last words\n" {
		t.Fatalf("%v: %q, %v", err, e.stdout.String(), e.end)
	}
}

// TestLeaveWatch shows that the stream of a watched directory ends with the reason, over both
// versions of HTTP.
func TestLeaveWatch(t *testing.T) {
	g := newGuest(t, trustAll)
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &h2}
	defer transport.CloseIdleConnections()
	for name, client := range map[string]*http.Client{"HTTP/1.1": g.Client(), "HTTP/2": {Transport: transport}} {
		c := filesystemconnect.NewFilesystemClient(client, g.URL, connect.WithGRPC())
		if name == "HTTP/1.1" {
			c = filesystemconnect.NewFilesystemClient(client, g.URL, connect.WithProtoJSON())
		}
		stream, err := c.WatchDir(t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: t.TempDir()}))
		if err != nil || !stream.Receive() {
			t.Fatal(name, err)
		}
		g.leave(t)
		for stream.Receive() {
		}
		wantLeft(t, name, stream.Err())
		_ = stream.Close()
	}
	// The connections can serve other requests.
	for range 5 {
		if e := g.mustRun(t, sh("echo on")); e.stdout.String() != "on\n" {
			t.Error(e.stdout.String())
		}
	}
}

// TestLeaveInput shows that calls end too if they wait for a process, or for their own client.
func TestLeaveInput(t *testing.T) {
	g := newGuest(t, trustAll)
	p := g.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sleep", Args: []string{"600"}}})
	blocked := make(chan error, 1)
	go func() {
		_, err := g.client.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid),
			Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}}}))
		blocked <- err
	}()
	talk := g.client.StreamInput(t.Context())
	if err := talk.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byPID(p.pid)}}}); err != nil {
		t.Fatal(err)
	}
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 3 && a.Processes == 1 })
	g.leave(t)
	if err := <-blocked; connect.CodeOf(err) != connect.CodeUnavailable {
		t.Error("SendInput ended with", err) // the reason comes only if all input had arrived
	}
	_, err := talk.CloseAndReceive()
	wantLeft(t, "StreamInput", err)
	for p.Receive() {
	}
	wantLeft(t, "Start", p.Err())
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 0 && a.Processes == 1 })
}

// activity asks until the guest's activity satisfies is.
func (g *guestUnderTest) activity(t testing.TB, is func(guest.Activity) bool) {
	t.Helper()
	testenv.EventuallyNil(t, "the activity is as wanted", func() error {
		code, _, body := g.ask(t, "GET", guest.ActivityPath, "")
		var a guest.Activity
		if err := json.Unmarshal([]byte(body), &a); err != nil || code != 200 {
			t.Fatal(code, body, err)
		}
		if !is(a) {
			return fmt.Errorf("it is %+v", a)
		}
		return nil
	})
}

// TestLeaveTransfers shows that uploads, downloads and tunnels break off, and that none looks
// complete.
func TestLeaveTransfers(t *testing.T) {
	g := newGuest(t, trustAll)
	big := filepath.Join(t.TempDir(), "big")
	if err := errors.Join(os.WriteFile(big, nil, 0o600), os.Truncate(big, 64<<20)); err != nil {
		t.Fatal(err)
	}
	download, err := g.Client().Get(g.URL + "/files?path=" + big)
	if err != nil || download.StatusCode != 200 {
		t.Fatal(download, err)
	}
	defer download.Body.Close()

	body, feed := io.Pipe()
	defer feed.Close()
	uploaded := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", g.URL+"/files?path="+big+".up", body)
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := g.Client().Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		uploaded <- err
	}()
	if _, err := feed.Write(make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tunnel, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	fmt.Fprintf(tunnel, "GET %s%d HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", guest.TunnelPath, l.Addr().(*net.TCPAddr).Port, guest.TunnelProtocol)
	r := bufio.NewReader(tunnel)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	inner, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()

	g.activity(t, func(a guest.Activity) bool { return a.Streams == 3 })
	g.leave(t)
	if n, err := io.Copy(io.Discard, download.Body); err == nil || n == 64<<20 {
		t.Errorf("the download looks complete: %d, %v", n, err)
	}
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 0 })
	_ = feed.CloseWithError(io.ErrUnexpectedEOF) // net/http's client waits for its body's reader
	if err := <-uploaded; err == nil {
		t.Error("the upload was answered")
	}
	for name, c := range map[string]io.Reader{"tunnel": r, "listener": inner} {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
			t.Errorf("%s: %d, %v; want a broken connection", name, n, err)
		}
	}
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 0 })
}

// TestLeaveDeafClient shows that a client that takes nothing can't delay a pause, and that the next
// client gets the output it did not take.
func TestLeaveDeafClient(t *testing.T) {
	g := newGuest(t, trustAll)
	c, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"process":{"cmd":"/bin/sh","args":["-c","yes | head -c 8000000; echo END; sleep 600"]},"tag":"loud"}`
	frame := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	fmt.Fprintf(c, "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\nContent-Length: %d\r\n\r\n%s", len(frame), frame)
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 1 && a.Processes == 1 })
	time.Sleep(200 * time.Millisecond) // for the sockets to fill; if they don't, the test is easier
	g.leave(t)
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 0 })
	stream, err := g.client.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byTag("loud")}))
	if err != nil {
		t.Fatal(err)
	}
	for e := (&events{}); stream.Receive(); e.stdout.Reset() {
		e.add(stream.Msg().GetEvent())
		if strings.Contains(e.stdout.String(), "END") {
			_ = stream.Close()
			return
		}
	}
	t.Fatal("the output does not go on:", stream.Err())
}

// TestLeaveIsTheHosts shows that no process inside can end streams or read the activity.
func TestLeaveIsTheHosts(t *testing.T) {
	g := newGuest(t)
	for _, c := range []struct{ method, path string }{{"POST", guest.LeavePath}, {"GET", guest.ActivityPath}} {
		if code, _, body := g.ask(t, c.method, c.path, `{"reason":"mischief"}`); code != 403 {
			t.Error(c.path, code, body)
		}
		if !guest.Internal(c.path) {
			t.Error(c.path, "is open to the gateway")
		}
	}
	h := newGuest(t, trustAll)
	for _, c := range []struct {
		body string
		code int
	}{{"", 400}, {"{", 400}, {"{}", 400}, {`{"reason":7}`, 400}, {`{"reason":"` + strings.Repeat("x", 2<<10) + `"}`, 400}} {
		if code, _, body := h.ask(t, "POST", guest.LeavePath, c.body); code != c.code {
			t.Errorf("%.20s: %d %s", c.body, code, body)
		}
	}
}

// TestActivity counts the started processes, without the template's own command.
func TestActivity(t *testing.T) {
	g := newGuest(t, trustAll)
	g.activity(t, func(a guest.Activity) bool { return a == guest.Activity{} })
	own := guest.StartTag
	req := sh("sleep 600")
	req.Tag = &own
	s := g.start(t, req)
	s.cancel()
	g.activity(t, func(a guest.Activity) bool { return a == guest.Activity{} })
	o := g.start(t, sh("sleep 600"))
	g.activity(t, func(a guest.Activity) bool { return a == guest.Activity{Processes: 1, Streams: 1} })
	o.cancel()
	g.activity(t, func(a guest.Activity) bool { return a == guest.Activity{Processes: 1} })
}
