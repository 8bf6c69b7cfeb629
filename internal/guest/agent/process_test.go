package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// guestUnderTest is an agent over the real Linux, behind a real HTTP server.
type guestUnderTest struct {
	*httptest.Server
	client processconnect.ProcessClient
}

// newGuest starts an agent whose default user is the user of the tests. At the end it checks that
// the agent leaves nothing behind.
func newGuest(t testing.TB, change ...func(*agent.Config)) *guestUnderTest {
	t.Helper()
	before := goleak.IgnoreCurrent()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	sys := oshost.New(oshost.Options{})
	cfg := agent.Config{System: sys, DefaultUser: me.Username, DefaultWorkdir: t.TempDir(), KeepAlive: time.Minute}
	for _, f := range change {
		f(&cfg)
	}
	a := agent.New(cfg)
	srv := httptest.NewUnstartedServer(a.Handler())
	srv.Listener = a.Listen(srv.Listener)
	srv.Config.ConnContext = agent.ConnContext
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv.Config.Protocols = &p
	srv.Start()
	transport := &http.Transport{DisableCompression: true}
	srv.Client().Transport = transport
	g := &guestUnderTest{srv, processconnect.NewProcessClient(&http.Client{Transport: transport}, srv.URL, connect.WithProtoJSON())}
	t.Cleanup(func() {
		a.Close()
		transport.CloseIdleConnections()
		srv.Close()
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(time.Minute); ; { // Find itself waits for a second
			if err := goleak.Find(before); err == nil {
				break
			} else if time.Now().After(end) {
				t.Error(err)
				break
			}
		}
	})
	return g
}

// sh returns a request to run a shell line without standard input.
func sh(line string) *process.StartRequest {
	off := false
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}}, Stdin: &off}
}

// events are the events that a stream delivered.
type events struct {
	pid                 uint32
	stdout, stderr, tty bytes.Buffer
	keepalives          int
	end                 *process.ProcessEvent_EndEvent
	first               bool // the first event was start
	n                   int
}

func (e *events) add(ev *process.ProcessEvent) {
	e.n++
	switch v := ev.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		e.pid, e.first = v.Start.GetPid(), e.n == 1
	case *process.ProcessEvent_Data:
		e.stdout.Write(v.Data.GetStdout())
		e.stderr.Write(v.Data.GetStderr())
		e.tty.Write(v.Data.GetPty())
	case *process.ProcessEvent_Keepalive:
		e.keepalives++
	case *process.ProcessEvent_End:
		e.end = v.End
	}
}

// run runs a request to its end.
func (g *guestUnderTest) run(ctx context.Context, req *process.StartRequest, headers ...string) (*events, error) {
	r := connect.NewRequest(req)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header().Set(headers[i], headers[i+1])
	}
	stream, err := g.client.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	e := &events{}
	for stream.Receive() {
		e.add(stream.Msg().GetEvent())
	}
	return e, stream.Err()
}

// mustRun runs a request that must succeed.
func (g *guestUnderTest) mustRun(t testing.TB, req *process.StartRequest, headers ...string) *events {
	t.Helper()
	e, err := g.run(t.Context(), req, headers...)
	if err != nil {
		t.Fatal(err)
	}
	if !e.first || e.end == nil {
		t.Fatalf("stream without start first or end: %+v", e)
	}
	return e
}

// started is a process whose stream the test reads itself.
type started struct {
	*connect.ServerStreamForClient[process.StartResponse]
	pid    uint32
	cancel context.CancelFunc
}

// start starts a process and returns after its start event.
func (g *guestUnderTest) start(t testing.TB, req *process.StartRequest) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := g.client.Start(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	pid := stream.Msg().GetEvent().GetStart().GetPid()
	if pid == 0 {
		t.Fatalf("first event is %v", stream.Msg())
	}
	return &started{stream, pid, cancel}
}

// until reads events until the terminal or standard output has shown want.
func (s *started) until(t testing.TB, want string) {
	t.Helper()
	e := &events{}
	for s.Receive() {
		e.add(s.Msg().GetEvent())
		if strings.Contains(e.stdout.String()+e.tty.String(), want) {
			return
		}
	}
	t.Fatalf("no %q in %q%q: %v", want, e.stdout.String(), e.tty.String(), s.Err())
}

// finish reads to the end.
func (s *started) finish(t testing.TB) *events {
	t.Helper()
	e := &events{}
	for s.Receive() {
		e.add(s.Msg().GetEvent())
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		t.Fatal(err)
	}
	return e
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
}

// connectTo opens a new connection to a process and reads its events to the end.
func (g *guestUnderTest) connectTo(t testing.TB, sel *process.ProcessSelector) (*events, error) {
	t.Helper()
	stream, err := g.client.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: sel}))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	e := &events{}
	for stream.Receive() {
		e.add(stream.Msg().GetEvent())
	}
	return e, stream.Err()
}

// wantError checks a Connect error's code, and that its text contains part.
func wantError(t testing.TB, err error, code connect.Code, part string) {
	t.Helper()
	if connect.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v, want %v with %q", err, code, part)
	}
}

func TestRun(t *testing.T) {
	g := newGuest(t)
	// Descriptors that the test process itself inherited are not our leak.
	const listFDs = "ls /proc/self/fd | sort -n | tr '\\n' ' '"
	base, err := exec.Command("/bin/sh", "-c", listFDs).Output()
	if err != nil {
		t.Fatal(err)
	}
	inherited := string(base)
	for _, c := range []struct {
		name, line     string
		stdout, stderr string
		code           int32
		exited         bool
		status, errMsg string
	}{
		{"success", "echo out; echo err >&2", "out\n", "err\n", 0, true, "exit status 0", ""},
		{"failure", "exit 3", "", "", 3, true, "exit status 3", "exit status 3"},
		{"killed", "kill -9 $$", "", "", -1, false, "signal: killed", "signal: killed"},
		{"stdin off", "cat; echo done", "done\n", "", 0, true, "exit status 0", ""},
		{"session of its own", `[ "$(ps -o sid= -p $$ 2>/dev/null | tr -d ' ')" = $$ ] || ! command -v ps >/dev/null && echo own`, "own\n", "", 0, true, "exit status 0", ""},
		{"no descriptors of the guest's", listFDs, inherited, "", 0, true, "exit status 0", ""},
		{"output is blocking", "awk '/flags/ {print (substr($2, length($2)-3, 1) >= 4)}' /proc/self/fdinfo/1", "0\n", "", 0, true, "exit status 0", ""},
		{"no final newline", "printf abc", "abc", "", 0, true, "exit status 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := g.mustRun(t, sh(c.line))
			if e.stdout.String() != c.stdout || e.stderr.String() != c.stderr {
				t.Errorf("stdout %q, stderr %q", e.stdout.String(), e.stderr.String())
			}
			if e.end.ExitCode != c.code || e.end.Exited != c.exited || e.end.Status != c.status || e.end.GetError() != c.errMsg {
				t.Errorf("end %v", e.end)
			}
		})
	}
}

func TestStartRefused(t *testing.T) {
	g := newGuest(t)
	cfg := func(f func(*process.StartRequest)) *process.StartRequest {
		r := sh("true")
		f(r)
		return r
	}
	str := func(s string) *string { return &s }
	for _, c := range []struct {
		name    string
		req     *process.StartRequest
		headers []string
		code    connect.Code
		part    string
	}{
		{"unknown user", sh("true"), []string{"Authorization", "Basic bm9ib2R5LWhlcmU6"}, connect.CodeUnauthenticated, "invalid username: 'nobody-here'"},
		{"missing cwd", cfg(func(r *process.StartRequest) { r.Process.Cwd = str("/no/such") }), nil, connect.CodeInvalidArgument, "cwd '/no/such' does not exist"},
		{"cwd of another", cfg(func(r *process.StartRequest) { r.Process.Cwd = str("~root/x") }), nil, connect.CodeInvalidArgument, "cannot expand user-specific home dir"},
		{"cwd is a file", cfg(func(r *process.StartRequest) { r.Process.Cwd = str("/etc/passwd") }), nil, connect.CodeInvalidArgument, "chdir /etc/passwd: not a directory"},
		{"NUL in cwd", cfg(func(r *process.StartRequest) { r.Process.Cwd = str("/a\x00b") }), nil, connect.CodeInvalidArgument, "process.cwd"},
		{"no such program", cfg(func(r *process.StartRequest) { r.Process.Cmd = "no-such-program" }), nil, connect.CodeInvalidArgument, "executable file not found in $PATH"},
		{"no program", cfg(func(r *process.StartRequest) { r.Process.Cmd = "" }), nil, connect.CodeInvalidArgument, "no command"},
		{"no process", &process.StartRequest{}, nil, connect.CodeInvalidArgument, "process: missing"},
		{"NUL in argument", cfg(func(r *process.StartRequest) { r.Process.Args = []string{"-c", "a\x00"} }), nil, connect.CodeInvalidArgument, "process.args[1]"},
		{"NUL in program", cfg(func(r *process.StartRequest) { r.Process.Cmd = "a\x00" }), nil, connect.CodeInvalidArgument, "process.cmd"},
		{"bad variable", cfg(func(r *process.StartRequest) { r.Process.Envs = map[string]string{"A=B": "x"} }), nil, connect.CodeInvalidArgument, "process.envs"},
		{"NUL in variable", cfg(func(r *process.StartRequest) { r.Process.Envs = map[string]string{"A": "x\x00"} }), nil, connect.CodeInvalidArgument, "process.envs.A"},
		{"huge terminal", cfg(func(r *process.StartRequest) { r.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 70000, Rows: 1}} }), nil, connect.CodeInvalidArgument, "pty.size"},
		{"bad timeout", sh("true"), []string{"Connect-Timeout-Ms", "soon"}, connect.CodeInvalidArgument, "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := g.run(t.Context(), c.req, c.headers...)
			wantError(t, err, c.code, c.part)
		})
	}
	// A relative directory is no error: it begins at the user's home.
	me, _ := user.Current()
	e, err := g.run(t.Context(), cfg(func(r *process.StartRequest) { r.Process.Cwd = str("."); r.Process.Args[1] = "pwd" }))
	if _, absent := os.Stat(me.HomeDir); absent != nil {
		wantError(t, err, connect.CodeInvalidArgument, "cwd '"+me.HomeDir+"' does not exist")
	} else if err != nil || e.stdout.String() != me.HomeDir+"\n" {
		t.Errorf("cwd . is %q, %v", e.stdout.String(), err)
	}
}

func TestEnvironment(t *testing.T) {
	g := newGuest(t, func(c *agent.Config) {
		c.EnvVars = map[string]string{"FROM": "sandbox", "KEPT": "yes", "HOME": "/moved"}
	})
	t.Setenv("HOST_SECRET", "leaked")
	req := sh("env")
	req.Process.Envs = map[string]string{"FROM": "request", "EMPTY": ""}
	got := "\n" + g.mustRun(t, req).stdout.String()
	me, _ := user.Current()
	for _, want := range []string{"FROM=request", "KEPT=yes", "HOME=/moved", "EMPTY=", "USER=" + me.Username, "LOGNAME=" + me.Username, "PATH=/usr/local/sbin:", "SHELL=/"} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Contains(got, "HOST_SECRET") || strings.Contains(got, "TERM=") {
		t.Errorf("too much in %s", got)
	}
}

func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Need(t, "root", errors.New("root, to become another user"))
	}
	g := newGuest(t, func(c *agent.Config) { c.DefaultWorkdir = "/" })
	for user, want := range map[string]string{"bm9ib2R5Og==": "nobody 65534 /nonexistent", "cm9vdDo=": "root 0 /root"} {
		e := g.mustRun(t, sh(`echo $(id -un) $(id -u) $HOME; [ "$(id -G)" = "$(id -G $USER)" ]`), "Authorization", "Basic "+user)
		if e.stdout.String() != want+"\n" || e.end.ExitCode != 0 {
			t.Errorf("got %q, %v", e.stdout.String(), e.end)
		}
	}
}

func TestStdin(t *testing.T) {
	g := newGuest(t)
	ctx := t.Context()
	req := sh("cat; echo end")
	req.Stdin = nil // unset means open
	p := g.start(t, req)
	input := func(b []byte) *process.ProcessInput {
		return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: b}}
	}
	if _, err := g.client.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid), Input: input([]byte("one\n"))})); err != nil {
		t.Fatal(err)
	}
	p.until(t, "one\n")
	_, err := g.client.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid),
		Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x")}}}))
	wantError(t, err, connect.CodeFailedPrecondition, "error writing to tty: tty not assigned to process")
	_, err = g.client.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid)}))
	wantError(t, err, connect.CodeInvalidArgument, "input")
	_, err = g.client.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPID(p.pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 1, Rows: 1}}}))
	wantError(t, err, connect.CodeFailedPrecondition, "tty not assigned")

	up := g.client.StreamInput(ctx)
	for _, m := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byPID(p.pid)}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input([]byte("two\n"))}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input([]byte("three\n"))}}},
	} {
		if err := up.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := up.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is fine
		if _, err := g.client.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPID(p.pid)})); err != nil {
			if connect.CodeOf(err) == connect.CodeNotFound {
				break // it has ended already
			}
			t.Fatal(err)
		}
	}
	if e := p.finish(t); e.stdout.String() != "two\nthree\nend\n" || e.end.GetExitCode() != 0 {
		t.Errorf("got %q, %v", e.stdout.String(), e.end)
	}

	off := g.start(t, sh("sleep 60"))
	_, err = g.client.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPID(off.pid), Input: input([]byte("x"))}))
	wantError(t, err, connect.CodeFailedPrecondition, "error writing to stdin: stdin not enabled or closed")

	up = g.client.StreamInput(ctx)
	_ = up.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input([]byte("x"))}}})
	_, err = up.CloseAndReceive()
	wantError(t, err, connect.CodeInvalidArgument, "before start")
}

// TestStdinBlocked shows that a process that does not read can't hold its clients. A write ends
// with its request, and the process can still be used and ended.
func TestStdinBlocked(t *testing.T) {
	g := newGuest(t)
	req := sh("sleep 60")
	req.Stdin = nil
	p := g.start(t, req)
	big := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := g.client.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid), Input: big}))
	wantError(t, err, connect.CodeDeadlineExceeded, "")
	if _, err := g.client.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(p.pid)})); err != nil {
		t.Error(err)
	}
	// A write that is blocked when the process ends fails.
	req = sh("head -c 1; sleep 60") // it shows that the write has begun
	req.Stdin = nil
	p2 := g.start(t, req)
	failed := make(chan error, 1)
	go func() {
		_, err := g.client.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(p2.pid), Input: big}))
		failed <- err
	}()
	p2.until(t, "\x00")
	g.kill(t, p2.pid)
	wantError(t, <-failed, connect.CodeFailedPrecondition, "error writing to stdin")
}

// kill sends SIGKILL.
func (g *guestUnderTest) kill(t testing.TB, pid uint32) {
	t.Helper()
	if _, err := g.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(pid), Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Error(err)
	}
}

func TestSignals(t *testing.T) {
	g := newGuest(t)
	// The whole group gets the signal. Otherwise the sleep would hold the pipe.
	p := g.start(t, sh("sleep 3000 & sleep 3000"))
	if _, err := g.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(p.pid), Signal: process.Signal_SIGNAL_SIGTERM})); err != nil {
		t.Fatal(err)
	}
	if e := p.finish(t); e.end.GetStatus() != "signal: terminated" || e.end.GetExited() || e.end.GetExitCode() != -1 {
		t.Errorf("end %v", e.end)
	}
	for _, sel := range []*process.ProcessSelector{byPID(p.pid), byTag("none")} {
		_, err := g.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: sel, Signal: process.Signal_SIGNAL_SIGKILL}))
		wantError(t, err, connect.CodeNotFound, "not found")
	}
	q := g.start(t, sh("sleep 60"))
	for _, sig := range []process.Signal{0, 1, 99} {
		_, err := g.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(q.pid), Signal: sig}))
		wantError(t, err, connect.CodeInvalidArgument, "signal")
	}
	_, err := g.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Signal: process.Signal_SIGNAL_SIGKILL}))
	wantError(t, err, connect.CodeInvalidArgument, "selector")
}

func TestListAndTags(t *testing.T) {
	g := newGuest(t)
	tagged := func(tag string) *process.StartRequest {
		r := sh("sleep 60")
		r.Tag = &tag
		r.Process.Envs = map[string]string{"A": "1"}
		return r
	}
	a, b := g.start(t, tagged("x")), g.start(t, tagged("x"))
	c := g.start(t, sh("sleep 60"))
	list, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	found := map[uint32]*process.ProcessInfo{}
	for _, p := range list.Msg.GetProcesses() {
		found[p.GetPid()] = p
	}
	if len(found) != 3 || found[a.pid].GetTag() != "x" || found[c.pid].Tag != nil || found[b.pid].GetConfig().GetEnvs()["A"] != "1" {
		t.Errorf("list %v", list.Msg)
	}
	if _, err := g.client.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byTag("x"), Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	if e := b.finish(t); e.end == nil { // the youngest with that tag
		t.Error("no end")
	}
	list, _ = g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if len(list.Msg.GetProcesses()) != 2 {
		t.Errorf("list after kill %v", list.Msg)
	}
}

func TestTimeout(t *testing.T) {
	g := newGuest(t)
	// Send only the header: the client's own context must not end the process. A slow machine gets
	// more time to write something.
	for _, limit := range []string{"300", "3000", "30000"} {
		e, err := g.run(t.Context(), sh("echo on; sleep 3000"), "Connect-Timeout-Ms", limit)
		wantError(t, err, connect.CodeDeadlineExceeded, "")
		if out := e.stdout.String(); out == "" && limit != "30000" {
			continue
		} else if out != "on\n" {
			t.Errorf("got %q in %s ms", out, limit)
		}
		awaitGone(t, g, e.pid)
		break
	}
	// 0 means no limit.
	if e := g.mustRun(t, sh("sleep 0.1; echo done"), "Connect-Timeout-Ms", "0"); e.stdout.String() != "done\n" {
		t.Errorf("got %q", e.stdout.String())
	}
	// The time limit holds without the client, and a listener hears of the end.
	ctx, cancel := context.WithCancel(t.Context())
	req := connect.NewRequest(sh("sleep 3000"))
	req.Header().Set("Connect-Timeout-Ms", "2000")
	stream, err := g.client.Start(ctx, req)
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	pid := stream.Msg().GetEvent().GetStart().GetPid()
	cancel()
	_ = stream.Close() // cancelled: nothing to learn
	got, err := g.connectTo(t, byPID(pid))
	if err != nil || got.end.GetStatus() != "signal: killed" {
		t.Errorf("end %v, %v", got, err)
	}
}

// awaitGone waits until a process is no longer listed.
func awaitGone(t testing.TB, g *guestUnderTest, pid uint32) {
	t.Helper()
	testenv.EventuallyNil(t, fmt.Sprintf("process %d is gone", pid), func() error {
		list, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Msg.GetProcesses() {
			if p.GetPid() == pid {
				return fmt.Errorf("it is still there: %v", p)
			}
		}
		return nil
	})
}

func TestDisconnectAndReconnect(t *testing.T) {
	g := newGuest(t, trustAll)
	dir := t.TempDir()
	p := g.start(t, sh(fmt.Sprintf("echo before; while [ ! -e %s/go ]; do sleep 0.02; done; echo while-away; touch %[1]s/wrote; while [ ! -e %[1]s/end ]; do sleep 0.02; done; echo after; exit 4", dir)))
	p.until(t, "before\n")
	p.cancel()
	_ = p.Close() // cancelled: nothing to learn
	g.activity(t, func(a guest.Activity) bool { return a.Streams == 0 })
	touch := func(name string) {
		if err := os.WriteFile(dir+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("go")
	testenv.EventuallyNil(t, "it has written", func() error { _, err := os.Stat(dir + "/wrote"); return err })
	time.Sleep(50 * time.Millisecond)
	done := make(chan *events)
	go func() {
		e, err := g.connectTo(t, byPID(p.pid))
		if err != nil {
			t.Error(err)
		}
		done <- e
	}()
	time.Sleep(50 * time.Millisecond)
	touch("end")
	e := <-done
	if e == nil || !e.first || e.pid != p.pid || e.stdout.String() != "while-away\nafter\n" || e.end.GetExitCode() != 4 {
		t.Errorf("got %+v", e)
	}
	_, err := g.connectTo(t, byPID(p.pid))
	wantError(t, err, connect.CodeNotFound, fmt.Sprintf("process with pid %d not found", p.pid))
}

// TestConnectAfterEnd shows that a client can still get the exit status of a process that ended
// while no client listened.
func TestConnectAfterEnd(t *testing.T) {
	g := newGuest(t)
	tag := "job"
	req := sh("sleep 0.2; echo result; exit 7")
	req.Tag = &tag
	p := g.start(t, req)
	p.cancel()
	_ = p.Close() // cancelled: nothing to learn
	awaitGone(t, g, p.pid)
	e, err := g.connectTo(t, byTag(tag))
	if err != nil || e.stdout.String() != "result\n" || e.end.GetExitCode() != 7 {
		t.Errorf("got %+v, %v", e, err)
	}
	_, err = g.connectTo(t, byTag(tag)) // told once
	wantError(t, err, connect.CodeNotFound, "process with tag job not found")
}

// TestManyListeners shows that every listener gets all output.
func TestManyListeners(t *testing.T) {
	g := newGuest(t)
	req := sh("read x; seq 1 20000")
	req.Stdin = nil
	p := g.start(t, req)
	var wg sync.WaitGroup
	sums := make([]int, 4)
	joined := make(chan struct{}, len(sums))
	for i := range sums {
		wg.Go(func() {
			stream, err := g.client.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byPID(p.pid)}))
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			for stream.Receive() {
				ev := stream.Msg().GetEvent()
				if ev.GetStart() != nil {
					joined <- struct{}{}
				}
				sums[i] += len(ev.GetData().GetStdout())
			}
		})
	}
	for range sums {
		<-joined
	}
	if _, err := g.client.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid),
		Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("\n")}}})); err != nil {
		t.Fatal(err)
	}
	want := p.finish(t).stdout.Len()
	wg.Wait()
	for i, n := range sums {
		if n != want || want != 108894 {
			t.Errorf("listener %d got %d of %d bytes", i, n, want)
		}
	}
}

func TestBackgroundChild(t *testing.T) {
	g := newGuest(t)
	began := time.Now()
	e := g.mustRun(t, sh("echo parent; (sleep 0.6; echo late; echo survived > \"$PWD/mark\"; sleep 3000) & echo $! "))
	if d := time.Since(began); d > 5*time.Minute {
		t.Errorf("the end came after %v: with the child", d)
	}
	lines := strings.Fields(e.stdout.String())
	if len(lines) != 2 || lines[0] != "parent" || e.end.GetExitCode() != 0 {
		t.Fatalf("got %q, %v", e.stdout.String(), e.end)
	}
	// After its echo the child writes on, into a pipe that nobody reads.
	pid, _ := strconv.Atoi(lines[1])
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	testenv.EventuallyNil(t, "the background child survives", func() error {
		data, err := os.ReadFile(dir + "/mark")
		if err == nil && string(data) != "survived\n" {
			err = fmt.Errorf("its mark is %q", data)
		}
		return err
	})
	g.mustRun(t, sh(fmt.Sprintf("pkill -P %d; kill %[1]d", pid)))
}

// TestBackgroundChildOnPTY does the same on a terminal. There no closing of a pipe shows the end.
func TestBackgroundChildOnPTY(t *testing.T) {
	var left []uint32
	t.Cleanup(func() { // after the agent has closed; it must not wait for them
		for _, pid := range left {
			_ = syscall.Kill(-int(pid), syscall.SIGKILL) // it may be gone
		}
	})
	g := newGuest(t)
	for _, line := range []string{"trap '' HUP; sleep 3000 & echo parent", "trap '' HUP; while :; do echo spam; done & sleep 0.1; echo parent"} {
		req := sh(line)
		req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
		began := time.Now()
		e := g.mustRun(t, req)
		if d := time.Since(began); d > 5*time.Minute || !strings.Contains(e.tty.String(), "parent\r\n") || e.end.GetExitCode() != 0 {
			t.Errorf("%s: %v after %v, %d bytes", line, e.end, d, e.tty.Len())
		}
		left = append(left, e.pid)
	}
}

func TestPTY(t *testing.T) {
	g := newGuest(t)
	req := sh("tty >/dev/null || exit 9; echo T=$TERM; stty size; trap 'stty size' WINCH; while ! read line; do :; done; echo got:$line; stty size; exit 5")
	req.Stdin = nil
	req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	p := g.start(t, req)
	p.until(t, "T=xterm-256color\r\n24 80")
	if _, err := g.client.Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: byPID(p.pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 132, Rows: 50}}})); err != nil {
		t.Fatal(err)
	}
	send := func(in *process.ProcessInput) error {
		_, err := g.client.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(p.pid), Input: in}))
		return err
	}
	wantError(t, send(&process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}), connect.CodeFailedPrecondition, "input should be written to the pty")
	_, err := g.client.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(p.pid)}))
	wantError(t, err, connect.CodeFailedPrecondition, "cannot close stdin for PTY process")
	if err := send(&process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("hello\n")}}); err != nil {
		t.Fatal(err)
	}
	e := p.finish(t)
	if out := e.tty.String(); !strings.Contains(out, "got:hello\r\n50 132\r\n") || e.stdout.Len() != 0 || e.end.GetExitCode() != 5 {
		t.Errorf("got %q, %v", out, e.end)
	}
	// Control-C interrupts the foreground process, control-D ends the input.
	req = sh("trap 'echo int' INT; cat; cat; echo end")
	req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	p = g.start(t, req)
	for _, step := range []struct{ keys, want string }{{"one\n", "one\r\none\r\n"}, {"\x03", "int\r\n"}, {"two\n", "two\r\ntwo\r\n"}, {"\x04", "end\r\n"}} {
		if err := send(&process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(step.keys)}}); err != nil {
			t.Fatal(err)
		}
		p.until(t, step.want) // the line comes from the terminal and from cat, so cat runs
	}
}

func TestKeepAlive(t *testing.T) {
	g := newGuest(t, func(c *agent.Config) { c.KeepAlive = 50 * time.Millisecond })
	p, e := g.start(t, sh("sleep 3000")), &events{}
	for e.keepalives < 2 && p.Receive() {
		e.add(p.Msg().GetEvent())
	}
	g.kill(t, p.pid)
	if p.finish(t); e.keepalives < 2 {
		t.Errorf("%d keepalives", e.keepalives)
	}
	if e := g.mustRun(t, sh("sleep 0.4"), "Keepalive-Ping-Interval", "50"); e.keepalives != 0 {
		t.Errorf("%d keepalives, asked for one in 50 s", e.keepalives)
	}
	began := time.Now()
	if e := g.mustRun(t, sh("sleep 1.3"), "Keepalive-Ping-Interval", "1"); e.keepalives < 1 || e.keepalives > int(time.Since(began)/time.Second) {
		t.Errorf("%d keepalives in %v, asked for one a second", e.keepalives, time.Since(began))
	}
}

// TestStreaming shows that output arrives as it is written, not only in large pieces.
func TestStreaming(t *testing.T) {
	g := newGuest(t)
	p := g.start(t, sh("echo first; sleep 3000"))
	p.until(t, "first\n")
	g.kill(t, p.pid)
}

func TestHundredProcesses(t *testing.T) {
	g := newGuest(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			e, err := g.run(t.Context(), sh(fmt.Sprintf("sleep 0.1; echo %d; exit %[1]d", i)))
			if err != nil || e.stdout.String() != fmt.Sprintf("%d\n", i) || e.end.GetExitCode() != int32(i) {
				t.Errorf("process %d: %+v, %v", i, e, err)
			}
		})
	}
	wg.Wait()
	list, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestCloseWithEverythingOpen closes the agent with a client, a process and a child of it. All
// three must end.
func TestCloseWithEverythingOpen(t *testing.T) {
	g := newGuest(t)
	req := sh("sleep 60 & yes")
	g.start(t, req)
	g.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-i"}}, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}})
	resp, err := http.Get(g.URL + "/health")
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // empty
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}
