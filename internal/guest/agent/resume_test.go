package agent_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// follower is a client that goes on after a break, as E2B's SDKs do.
type follower struct {
	pid    uint32
	at     *process.OutputOffsets
	stdout bytes.Buffer
	stderr bytes.Buffer
	end    *process.ProcessEvent_EndEvent
}

// hear takes one event. It fails on a gap and on output that came twice.
func (f *follower) hear(t *testing.T, e *process.ProcessEvent) {
	t.Helper()
	if s := e.GetStart(); s != nil {
		if s.Offsets == nil {
			t.Fatal("the start has no positions")
		}
		f.pid, f.at = s.Pid, s.Offsets
	}
	if d := e.GetData(); d != nil {
		out, at := &f.stdout, &f.at.Stdout
		if d.GetStderr() != nil {
			out, at = &f.stderr, &f.at.Stderr
		}
		data := append(d.GetStdout(), d.GetStderr()...)
		if d.Offset == nil || *d.Offset != *at {
			t.Fatalf("output at %v instead of %d", d.Offset, *at)
		}
		*at += uint64(len(data))
		out.Write(data)
	}
	if e.GetEnd() != nil {
		f.end = e.GetEnd()
	}
}

// start starts a script and reads until enough says so. Then the connection breaks.
func (f *follower) start(t *testing.T, g *guestUnderTest, script string, enough func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := g.client.Start(ctx, connect.NewRequest(sh(script)))
	if err != nil {
		t.Fatal(err)
	}
	for !enough() && stream.Receive() {
		f.hear(t, stream.Msg().GetEvent())
	}
}

// again connects after a break, and reads to the end.
func (f *follower) again(t *testing.T, g *guestUnderTest, from *process.OutputOffsets) error {
	t.Helper()
	stream, err := g.client.Connect(t.Context(),
		connect.NewRequest(&process.ConnectRequest{ResumeFrom: from,
			Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: f.pid}}}))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		f.hear(t, stream.Msg().GetEvent())
	}
	return stream.Err()
}

// TestResumeOutput breaks a stream in the middle of two outputs. The client gets each byte once.
func TestResumeOutput(t *testing.T) {
	g := newGuest(t)
	gate := filepath.Join(t.TempDir(), "gate")
	var f follower
	f.start(t, g, "printf one; printf err >&2; "+untilThere(gate)+" printf two; printf or >&2; exit 3",
		func() bool { return f.stdout.Len() > 0 && f.stderr.Len() > 0 })
	back := &process.OutputOffsets{Stdout: 1, Stderr: 3} // the client lost the rest of the first piece
	f.stdout.Truncate(1)
	touch(t, gate)
	if err := f.again(t, g, back); err != nil {
		t.Fatal(err)
	}
	if f.stdout.String() != "onetwo" || f.stderr.String() != "error" || f.end.GetExitCode() != 3 {
		t.Fatalf("%q %q %v", f.stdout.String(), f.stderr.String(), f.end)
	}
	// The end was sent, but that client did not hear it. It asks once more.
	f.end = nil
	f.stdout.Reset()
	if err := f.again(t, g, &process.OutputOffsets{Stderr: 5}); err != nil ||
		f.end.GetExitCode() != 3 || f.stdout.String() != "onetwo" {
		t.Fatalf("after the end: %v %v %q", err, f.end, f.stdout.String())
	}
}

// TestResumeLost says so when the output is not there any more, or never was.
func TestResumeLost(t *testing.T) {
	g := newGuest(t, func(c *agent.Config) { c.Kept = agent.KeptLimits{Process: 64 << 10} })
	var f follower
	f.start(t, g, "printf begin; head -c 3000000 /dev/zero; printf end; sleep 60",
		func() bool { return f.stdout.Len() >= 3_000_008 })
	for name, at := range map[string]*process.OutputOffsets{
		"too early": {}, "too late": {Stdout: 1 << 40},
		"of another output": {Stdout: f.at.Stdout, Stderr: 1}} {
		err := f.again(t, g, at)
		if connect.CodeOf(err) != connect.CodeOutOfRange ||
			!strings.Contains(err.Error(), "resume_from") {
			t.Errorf("%s: %v", name, err)
		}
	}
	nobody := follower{pid: f.pid + 100_000}
	if err := nobody.again(t, g, &process.OutputOffsets{}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("no such process: %v", err)
	}
}

// TestResumeFull resumes where the output that nobody took is as much as is kept. The process must
// be able to write on: the new client has all of that already.
func TestResumeFull(t *testing.T) {
	g := newGuest(t)
	dir := t.TempDir()
	much, gate := filepath.Join(dir, "much"), filepath.Join(dir, "gate")
	var f follower
	f.start(t, g, "printf x; sleep 0.1; head -c 2000000 /dev/zero; touch "+much+"; "+untilThere(gate)+" printf end",
		func() bool { return f.stdout.Len() > 0 })
	testenv.Eventually(t, "2 MB are written", func() bool {
		_, err := os.Stat(much)
		return err == nil
	})
	f.stdout.Reset()
	done := make(chan error, 1)
	go func() {
		at := &process.OutputOffsets{Stdout: 2_000_001}
		stream, err := g.client.Connect(t.Context(),
			connect.NewRequest(&process.ConnectRequest{ResumeFrom: at,
				Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: f.pid}}}))
		if err == nil && stream.Receive() { // the start: it has joined
			err = os.WriteFile(gate, nil, 0o600)
		}
		for err == nil && stream.Receive() {
			f.stdout.Write(stream.Msg().GetEvent().GetData().GetStdout())
		}
		if err == nil {
			err = stream.Err()
		}
		done <- err
	}()
	if err := <-done; err != nil || f.stdout.String() != "end" {
		t.Fatalf("%v %q", err, f.stdout.String())
	}
}

// untilThere is a shell's wait for a file.
func untilThere(file string) string { return "until [ -e " + file + " ]; do sleep 0.02; done;" }

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
