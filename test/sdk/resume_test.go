package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// counting writes numbers for a while. Each must arrive once, in order.
const counting = "i=0; while [ $i -lt 60 ]; do echo tick $i; i=$((i+1)); sleep 0.05; done; exit 7"

// TestResume breaks a command's stream, in each tier, and goes on from the last position. The
// unmodified SDKs of today don't do that yet (see the messages in TestMessages). So the test sends
// what E2B's next ones send, in the same form: Connect with JSON, through the daemon.
func TestResume(t *testing.T) { resumes(t, daemontest.Start(t), carrel.Sim, carrel.NS, carrel.GVisor) }

// TestMachineResume does the same with a virtual machine.
func TestMachineResume(t *testing.T) {
	resumes(t, daemontest.Start(t, daemontest.Machines(t)...), carrel.MicroVM)
}

func resumes(t *testing.T, d *daemontest.Daemon, tiers ...carrel.Tier) {
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) {
			opts := carrel.CreateOptions{Tier: tier, Timeout: 5 * time.Minute}
			if tier == carrel.Sim {
				opts.Template = "sim"
			}
			sb, err := svc.Create(t.Context(), opts)
			if carrel.KindOf(err) == carrel.Unsupported {
				testenv.Need(t, string(tier), err)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := &breaking{t: t, sb: sb, rpc: processconnect.NewProcessClient(http.DefaultClient,
				d.URL, connect.WithProtoJSON())}
			b.start()
			b.more("tick 3\n") // and the connection breaks
			if tier == carrel.GVisor || tier == carrel.MicroVM {
				if _, err := svc.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, _, err := svc.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			b.more("tick 20\n")
			b.more("")
			var want strings.Builder
			for i := range 60 {
				fmt.Fprintf(&want, "tick %d\n", i)
			}
			if b.got.String() != want.String() || b.end.GetExitCode() != 7 {
				t.Errorf("%q %v", b.got.String(), b.end)
			}
			err = b.connect(&process.OutputOffsets{Stdout: 1 << 30})
			if connect.CodeOf(err) != connect.CodeOutOfRange {
				t.Errorf("a position beyond the end: %v", err)
			}
		})
	}
}

// breaking is a client whose connection breaks now and then.
type breaking struct {
	t   *testing.T
	sb  carrel.Sandbox
	rpc processconnect.ProcessClient

	pid  uint32
	at   uint64
	got  strings.Builder
	end  *process.ProcessEvent_EndEvent
	open interface{ Receive() bool } // the stream
	next func() *process.ProcessEvent
	stop context.CancelFunc
	err  func() error
}

// address puts the sandbox and its token into a request.
func (b *breaking) address(h http.Header) {
	h.Set("E2b-Sandbox-Id", string(b.sb.ID))
	h.Set("E2b-Sandbox-Port", "49983")
	h.Set("X-Access-Token", b.sb.AccessToken)
}

func (b *breaking) start() {
	b.t.Helper()
	off := false
	req := connect.NewRequest(&process.StartRequest{Stdin: &off,
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", counting}}})
	b.address(req.Header())
	ctx, stop := context.WithCancel(b.t.Context())
	s, err := b.rpc.Start(ctx, req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.open, b.stop, b.err = s, stop, s.Err
	b.next = func() *process.ProcessEvent { return s.Msg().GetEvent() }
}

// connect follows the process from a position.
func (b *breaking) connect(from *process.OutputOffsets) error {
	req := connect.NewRequest(&process.ConnectRequest{ResumeFrom: from,
		Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: b.pid}}})
	b.address(req.Header())
	ctx, stop := context.WithCancel(b.t.Context())
	s, err := b.rpc.Connect(ctx, req)
	if err == nil && !s.Receive() { // the start
		err = errors.Join(s.Err(), s.Close())
	}
	if err != nil {
		stop()
		return err
	}
	b.open, b.stop, b.err = s, stop, s.Err
	b.next = func() *process.ProcessEvent { return s.Msg().GetEvent() }
	return nil
}

// more reads until a text has come, or to the end for "". It connects first, where the last stream
// was broken.
func (b *breaking) more(text string) {
	b.t.Helper()
	if b.pid != 0 {
		if err := b.connect(&process.OutputOffsets{Stdout: b.at}); err != nil {
			b.t.Fatal(err)
		}
	}
	defer b.stop()
	for b.open.Receive() {
		e := b.next()
		if s := e.GetStart(); s != nil {
			b.pid = s.Pid
		}
		if d := e.GetData(); d != nil {
			if d.GetOffset() != b.at {
				b.t.Fatalf("output at %d instead of %d", d.GetOffset(), b.at)
			}
			b.at += uint64(len(d.GetStdout()))
			b.got.Write(d.GetStdout())
		}
		if b.end = e.GetEnd(); text != "" && strings.Contains(b.got.String(), text) {
			return
		}
	}
	if err := b.err(); err != nil {
		b.t.Fatal(err)
	}
}
