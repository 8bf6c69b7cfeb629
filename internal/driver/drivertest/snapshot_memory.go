package drivertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// witnessPort is the port of the witness inside.
const witnessPort = 8090

// testimony is the witness's answer; see the attack program's part "witness".
type testimony struct {
	PID              int
	Token, Heap      string
	Ticks            int64
	MaxGap           time.Duration
	File, Pipe, Loop string
	Held             []string
	Unix             int64
	Random, Hostname string
}

// startWitness starts the witness. It returns the first testimony and collects the witness's
// output.
func (b *box) startWitness(t testing.TB) testimony {
	t.Helper()
	b.upload(t)
	p, err := b.conn.Start(t.Context(), carrel.Command{Args: []string{attackInside, "witness", fmt.Sprintf("0.0.0.0:%d", witnessPort)},
		User: "root", Dir: "/", Tag: "witness"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return b.ask(t)
}

// tell sends a line to the witness over a new connection. It returns the connection and the first
// line of the answer.
func (b *box) tell(t testing.TB, line string) (net.Conn, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var c net.Conn
	testenv.EventuallyNil(t, "the witness answers", func() (err error) { c, err = b.in.Dial(ctx, witnessPort); return err })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = fmt.Fprintln(c, line)
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatalf("the witness answers %q with %q, %v", line, answer, err)
	}
	_ = c.SetDeadline(time.Time{})
	return c, answer
}

// ask returns the witness's testimony.
func (b *box) ask(t testing.TB) testimony {
	t.Helper()
	c, line := b.tell(t, "ask")
	c.Close()
	var a testimony
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("the witness says %q: %v", line, err)
	}
	return a
}

// hold opens a connection from outside to the witness. The witness keeps it open.
func (b *box) hold(t testing.TB) net.Conn {
	t.Helper()
	c, line := b.tell(t, "hold")
	t.Cleanup(func() { c.Close() })
	if line != "held\n" {
		t.Fatalf("the witness says %q", line)
	}
	return c
}

// wantEcho checks that a held connection lives.
func wantEcho(t testing.TB, c net.Conn, text string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err := fmt.Fprintln(c, text)
	line := ""
	if err == nil {
		line, err = bufio.NewReader(c).ReadString('\n')
	}
	if err != nil || line != text+"\n" {
		t.Errorf("the connection that was held says %q, %v; want %q", line, err, text)
	}
}

// wantKept compares a testimony with an earlier one of the same process. round is the number of
// questions to the pipe so far.
func (a testimony) wantKept(t testing.TB, before testimony, round int) {
	t.Helper()
	if a.PID != before.PID || a.Token != before.Token || a.Heap != before.Heap {
		t.Errorf("the process is another: %+v, was %+v", a, before)
	}
	if a.Ticks < before.Ticks {
		t.Errorf("it went back in time: %d ticks, had %d", a.Ticks, before.Ticks)
	}
	if a.File != "ok" {
		t.Errorf("the open file without a name: %s", a.File)
	}
	if want := fmt.Sprint(round, " still there"); a.Pipe != want {
		t.Errorf("the pipe between two processes says %q, want %q", a.Pipe, want)
	}
	if a.Loop != "still there" {
		t.Errorf("the connection inside says %q", a.Loop)
	}
}

func (s *suite) testMemorySurvives(t *testing.T) {
	if !s.info.Capabilities.MemorySnapshot {
		testenv.Inapplicable(t, "the driver says that its snapshots hold no memory")
	}
	d := s.open(t)
	b := s.box(t, d)
	first := b.startWitness(t)
	outside := b.hold(t)
	wantEcho(t, outside, "before")
	m := b.snapshot(t, driver.SnapshotOptions{})
	t.Run("original", func(t *testing.T) {
		wantEcho(t, outside, "after")
		a := b.ask(t)
		a.wantKept(t, first, 2)
		if len(a.Held) != 1 || a.Held[0] != "open" {
			t.Errorf("its connection from outside is %v", a.Held)
		}
	})
	for _, name := range []string{"first copy", "second copy"} {
		t.Run(name, func(t *testing.T) {
			r := s.restore(t, d, m, driver.RestoreOptions{})
			a := r.ask(t)
			a.wantKept(t, first, 2)
			r.wantHeldClosed(t)
			if later := r.ask(t); later.Ticks <= a.Ticks {
				t.Errorf("it does not go on: %d ticks, then %d", a.Ticks, later.Ticks)
			}
			wantEcho(t, outside, "still the original's")
			r.testGuestKept(t, first.PID)
		})
	}
	t.Run("generation", func(t *testing.T) {
		r := s.restore(t, d, m, driver.RestoreOptions{})
		held := r.hold(t)
		before := r.ask(t)
		again := s.restore(t, d, r.snapshot(t, driver.SnapshotOptions{}), driver.RestoreOptions{})
		again.ask(t).wantKept(t, before, 3)
		wantEcho(t, held, "open")
		again.wantHeldClosed(t)
	})
}

// wantHeldClosed waits until every connection from outside has ended inside.
func (b *box) wantHeldClosed(t testing.TB) {
	t.Helper()
	testenv.EventuallyNil(t, "connections from outside end in the restored copy", func() error {
		held := b.ask(t).Held
		if len(held) == 0 || slices.ContainsFunc(held, func(h string) bool { return !strings.HasPrefix(h, "closed") }) {
			return fmt.Errorf("they are %v", held)
		}
		return nil
	})
}

// lines collects the output lines of a process.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

// testGuestKept checks that the guest still knows its process and passes on the process's output.
func (b *box) testGuestKept(t testing.TB, pid int) {
	t.Helper()
	list, err := b.conn.Processes(t.Context())
	if err != nil || len(list) != 1 || list[0].PID != pid || list[0].Tag != "witness" {
		t.Errorf("the guest's processes are %+v, %v; want the one of pid %d", list, err, pid)
	}
	var out lines
	p, err := b.conn.Attach(t.Context(), pid, &out, nil)
	if err != nil {
		t.Errorf("attach after restore: %v", err)
		return
	}
	defer p.Close()
	c, _ := b.tell(t, "say a word after restore")
	c.Close()
	testenv.Eventually(t, "what the process prints after the restore comes out", func() bool { return out.has("a word after restore") })
}

// testRefreshed checks the state that every restored sandbox must get anew.
func (s *suite) testRefreshed(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	random := "head -c 32 /dev/urandom | base64"
	if s.attack != "" {
		b.upload(t)
		random = attackInside + " random"
	}
	if s.info.Capabilities.MemorySnapshot {
		b.startWitness(t)
	}
	m := b.snapshot(t, driver.SnapshotOptions{})
	seen := map[string]string{b.must(t, random): "the original"}
	for i := range 3 {
		r := s.restore(t, d, m, driver.RestoreOptions{})
		if s.info.Capabilities.MemorySnapshot {
			from := time.Now()
			a := r.ask(t)
			if at := time.Unix(0, a.Unix); at.Before(from.Add(-2*time.Second)) || at.After(time.Now().Add(2*time.Second)) {
				t.Errorf("the clock of a restored process says %v at %v", at, from)
			}
			if other := seen[a.Random]; other != "" || a.Random == "" {
				t.Errorf("copy %d draws the same random bytes as %s: %q", i, other, a.Random)
			}
			seen[a.Random] = fmt.Sprint("copy ", i)
		}
		got := r.must(t, random)
		if other := seen[got]; other != "" || len(got) < 32 {
			t.Errorf("copy %d draws the same random bytes as %s: %q", i, other, got)
		}
		seen[got] = fmt.Sprint("copy ", i)
		stamp, err := r.conn.Files("root").Write(t.Context(), "/tmp/stamp", strings.NewReader("now"))
		if err != nil || time.Since(stamp.Modified).Abs() > time.Minute {
			t.Errorf("a file written after the restore is of %v, %v", stamp.Modified, err)
		}
	}
}
