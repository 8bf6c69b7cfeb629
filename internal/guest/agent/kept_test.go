package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// keeper returns the host's side of a guest that keeps little output.
func keeper(t *testing.T, limits agent.KeptLimits) *guest.Conn {
	t.Helper()
	g := newGuest(t, func(c *agent.Config) { c.Kept = limits })
	addr := g.Listener.Addr().String()
	c := guest.NewConn(func(ctx context.Context, _ uint16) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}, guest.ConnOptions{})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// left starts a script and leaves it.
func left(t *testing.T, c *guest.Conn, script string) carrel.ProcessRecord {
	t.Helper()
	p, err := c.Start(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", script}, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	out, err := c.Output(t.Context(), carrel.OutputQuery{Process: fmt.Sprint(p.PID())})
	if err != nil {
		t.Fatal(err)
	}
	return out.ProcessRecord
}

// ended waits for a process's end and returns the last of its output.
func ended(t *testing.T, c *guest.Conn, serial int64) (rec carrel.ProcessRecord, output string) {
	t.Helper()
	var got strings.Builder
	for q := (carrel.OutputQuery{Serial: serial, Wait: 10 * time.Second}); ; {
		out, err := c.Output(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out.Pieces {
			got.Write(p.Data)
		}
		if q.From = out.Next; out.Over() {
			return out.ProcessRecord, got.String()
		}
	}
}

// TestKeptBounds shows that kept output has a bound for each process and for all, and that the
// number of remembered ended processes has one.
func TestKeptBounds(t *testing.T) {
	limits := agent.KeptLimits{Process: 256 << 10, Total: 512 << 10, Ended: 5}
	c := keeper(t, limits)
	var serials []int64
	for i := range 8 {
		r := left(t, c, fmt.Sprintf("yes %d | head -c 1000000; exit %d", i, i))
		if _, output := ended(t, c, r.Serial); len(output) == 0 {
			t.Errorf("nothing was kept of process %d", i)
		}
		serials = append(serials, r.Serial)
	}
	all, err := c.Records(t.Context())
	if err != nil || len(all) != limits.Ended {
		t.Fatalf("remembered are %d processes, %v, want %d", len(all), err, limits.Ended)
	}
	total := int64(0)
	for i, r := range all {
		total += r.Kept
		if r.Serial != serials[i+3] || r.ExitCode != i+3 || r.Written != 1000000 || r.Kept > int64(limits.Process) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if total > int64(limits.Total) || all[0].Kept != 0 || all[4].Kept < int64(limits.Process)/2 {
		t.Errorf("%d bytes are kept: the first %d, the last %d", total, all[0].Kept, all[4].Kept)
	}
	if _, err := c.Output(t.Context(), carrel.OutputQuery{Serial: serials[0]}); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("one that is forgotten gave %v", err)
	}
}

// TestKeptFlood shows that the guest does not grow when a process prints without end.
func TestKeptFlood(t *testing.T) {
	size := int64(4 << 30)
	if testing.Short() {
		size = 256 << 20
	}
	c := keeper(t, agent.KeptLimits{})
	r := left(t, c, fmt.Sprintf("head -c %d /dev/zero", size))
	var mem runtime.MemStats
	peak := uint64(0)
	testenv.Eventually(t, "all is printed", func() bool {
		runtime.ReadMemStats(&mem)
		peak = max(peak, mem.HeapInuse)
		out, err := c.Output(t.Context(), carrel.OutputQuery{Serial: r.Serial, From: 1 << 62})
		return err == nil && out.Written == size && !out.Ended.IsZero()
	})
	t.Logf("the heap was %d MiB at most", peak>>20)
	if peak > 48<<20 {
		t.Errorf("the heap grew to %d MiB", peak>>20)
	}
}

// TestKeptQuiet shows that a process that prints much does not push out the output of one that
// prints little.
func TestKeptQuiet(t *testing.T) {
	c := keeper(t, agent.KeptLimits{Process: 256 << 10, Total: 300 << 10})
	quiet := left(t, c, "echo precious; exec sleep 300")
	for range 3 {
		left(t, c, "yes | head -c 3000000; exec sleep 300")
	}
	testenv.Eventually(t, "the floods are over", func() bool {
		all, err := c.Records(t.Context())
		n := 0
		for _, r := range all {
			if r.Written == 3000000 {
				n++
			}
		}
		return err == nil && n == 3
	})
	out, err := c.Output(t.Context(), carrel.OutputQuery{Serial: quiet.Serial})
	if err != nil || len(out.Pieces) != 1 || string(out.Pieces[0].Data) != "precious\n" {
		t.Errorf("of the quiet one is left %+v, %v", out.Pieces, err)
	}
}

// TestKeptWhenLeft starts processes as clients do. The output of a process that its client leaves
// is kept, as with E2B's background commands. A process that its client follows to the end is
// forgotten.
func TestKeptWhenLeft(t *testing.T) {
	c := keeper(t, agent.KeptLimits{})
	if _, err := c.Run(t.Context(), carrel.Command{Args: []string{"/bin/echo", "followed"}}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Start(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", "echo begun; sleep 0.3; echo done"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	rec, output := ended(t, c, 2)
	if all, err := c.Records(t.Context()); err != nil || len(all) != 1 || rec.PID != p.PID() || output != "begun\ndone\n" {
		t.Errorf("%+v, %v, %q", all, err, output)
	}
}

// TestKeptPositions shows that pieces follow one another without a gap, however large they are.
func TestKeptPositions(t *testing.T) {
	c := keeper(t, agent.KeptLimits{})
	r := left(t, c, "seq 1 5000; echo err >&2; seq 5001 5100")
	_, whole := ended(t, c, r.Serial)
	for _, most := range []int{1 << 10, 4093} {
		var got strings.Builder
		for q := (carrel.OutputQuery{Serial: r.Serial, Most: most}); ; {
			out, err := c.Output(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, p := range out.Pieces {
				got.Write(p.Data)
				n += len(p.Data)
			}
			if n > most || out.From != q.From {
				t.Fatalf("%d bytes from %d, asked for %d from %d", n, out.From, most, q.From)
			}
			if q.From = out.Next; out.Over() {
				break
			}
		}
		if got.String() != whole || !strings.Contains(whole, "err\n") {
			t.Errorf("pieces of %d give %d bytes, want %d", most, got.Len(), len(whole))
		}
	}
	for _, bad := range []string{"?process=1&from=x", "?serial=-1", ""} {
		resp, err := c.Transport().RoundTrip(mustGet(t, guest.OutputPath+bad))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != 400 {
			t.Errorf("%q gave %d", bad, resp.StatusCode)
		}
	}
}

// TestKeptHammer reads while many processes write and end.
func TestKeptHammer(t *testing.T) {
	c := keeper(t, agent.KeptLimits{Process: 64 << 10, Total: 128 << 10, Ended: 3})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				all, _ := c.Records(ctx)
				for _, r := range all {
					_, _ = c.Output(ctx, carrel.OutputQuery{Serial: r.Serial, Most: 1000})
				}
			}
		})
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 5 {
				if _, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/sh", "-c", "seq 1 3000; seq 1 3000 >&2"}, Keep: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
}

func mustGet(t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://guest"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
