package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
)

// TestRefusal checks that a simulated sandbox is told of refusals like any other. It has no
// sockets, so the refusal names no program.
func TestRefusal(t *testing.T) {
	d := sim.New(sim.Options{})
	t.Cleanup(func() { _ = d.Close() })
	id := carrel.NewID()
	inst, err := d.Create(t.Context(), driver.Spec{ID: id, Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 50}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inst.Destroy(context.WithoutCancel(t.Context())) })
	conn := guest.NewConn(func(ctx context.Context, port uint16) (net.Conn, error) { return inst.Dial(ctx, port) }, guest.ConnOptions{})
	t.Cleanup(func() { _ = conn.Close() })
	ev := carrel.Decision{ID: id, Protocol: "dns", Name: "evil\x1b[2J.example.com", Method: "A", Rule: "default", Reason: "no rule allows it"}
	var stderr bytes.Buffer
	p, err := conn.Start(t.Context(), carrel.Command{Shell: "read line; echo got $line >&2", OpenStdin: true, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := conn.Refused(t.Context(), guest.Refusal{Event: ev, Line: guest.RefusalLine(ev), SourcePort: 4711, UDP: true})
	if err != nil || reply.Process != "" {
		t.Errorf("%+v, %v", reply, err)
	}
	if _, err := p.Write([]byte("it\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "carrel: denied dns evil[2J.example.com A: no rule allows it. See /run/carrel/denied.jsonl\ngot it\n"; stderr.String() != want {
		t.Errorf("the command's standard error is %q, want %q", stderr.String(), want)
	}
	f, err := conn.Files("").Read(t.Context(), guest.DeniedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	var got carrel.Decision
	if err := json.Unmarshal(raw, &got); err != nil || got.Name != ev.Name || strings.Contains(string(raw), "\x1b") {
		t.Errorf("%q, %v", raw, err)
	}
}
