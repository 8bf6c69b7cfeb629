package drivertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// testOutput checks the kept output of processes that no client follows.
func (s *suite) testOutput(t *testing.T) {
	d := s.open(t)
	t.Run("kept", func(t *testing.T) {
		b := s.box(t, d)
		serial := b.leave(t, "echo one; echo two >&2; exit 3", "job")
		rec := b.over(t, serial)
		if rec.ExitCode != 3 || rec.Tag != "job" || rec.Written != 8 || rec.Kept != 8 {
			t.Errorf("the record is %+v", rec)
		}
		if out, errs := b.kept(t, serial); out != "one\n" || errs != "two\n" {
			t.Errorf("kept are %q and %q", out, errs)
		}
		if _, err := b.conn.Output(t.Context(), carrel.OutputQuery{Process: "no such"}); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("output of nothing gave %v", err)
		}
		// A process that a client followed to its end is not remembered.
		b.must(t, "echo foreground")
		if all, err := b.conn.Records(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("remembered are %+v, %v", all, err)
		}
	})
	t.Run("waits", func(t *testing.T) {
		b := s.box(t, d)
		serial := b.leave(t, "while ! test -e /tmp/go; do sleep 0.05; done; echo late", "")
		got := make(chan carrel.ProcessOutput, 1)
		go func() {
			out, _ := b.conn.Output(context.WithoutCancel(t.Context()), carrel.OutputQuery{Serial: serial, Wait: 20 * time.Second})
			got <- out
		}()
		b.must(t, "touch /tmp/go")
		if out := <-got; len(out.Pieces) != 1 || string(out.Pieces[0].Data) != "late\n" {
			t.Errorf("waiting gave %+v", out)
		}
	})
	t.Run("flood", func(t *testing.T) {
		if testing.Short() {
			testenv.Inapplicable(t, "not with -short: loads the machine")
		}
		s.testFlood(t, s.box(t, d))
	})
	t.Run("memory", func(t *testing.T) {
		if !s.info.Capabilities.MemorySnapshot {
			testenv.Inapplicable(t, "what is kept lies in memory, which the driver's snapshots do not hold")
		}
		b := s.box(t, d)
		serial := b.leave(t, "echo before; exit 4", "")
		b.over(t, serial)
		m := b.snapshot(t, driver.SnapshotOptions{})
		for range 2 {
			fork := s.restore(t, d, m, driver.RestoreOptions{})
			if rec := fork.over(t, serial); rec.ExitCode != 4 {
				t.Errorf("after the restore: %+v", rec)
			}
			if out, _ := fork.kept(t, serial); out != "before\n" {
				t.Errorf("after the restore %q is kept", out)
			}
		}
	})
}

// testFlood makes several processes print much more than the sandbox keeps.
func (s *suite) testFlood(t *testing.T, b *box) {
	const processes = 8
	lines := 1000
	if s.Slow {
		lines = 200
	}
	size := int64(lines * (15<<12 + 1))
	script := "s=0123456789abcde; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do s=$s$s; done; " +
		fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $s; i=$((i+1)); done; echo end", lines)
	var serials []int64
	for range processes {
		serials = append(serials, b.leave(t, script, ""))
	}
	for _, serial := range serials {
		if rec := b.over(t, serial); rec.Written != size+4 || rec.Kept > guest.KeptProcess {
			t.Errorf("of %d bytes %d are kept", rec.Written, rec.Kept)
		}
	}
	all, err := b.conn.Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kept int64
	for _, rec := range all {
		kept += rec.Kept
	}
	if kept == 0 || kept > guest.KeptTotal {
		t.Errorf("%d bytes are kept in all", kept)
	}
	if out, _ := b.kept(t, serials[processes-1]); !strings.HasSuffix(out, "end\n") && out != "" {
		t.Error("the end is missing")
	}
}

// leave starts a script, leaves it, and returns its serial number.
func (b *box) leave(t testing.TB, script, tag string) int64 {
	t.Helper()
	p, err := b.conn.Start(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", script}, Dir: "/", User: "root", Tag: tag, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	out, err := b.conn.Output(t.Context(), carrel.OutputQuery{Process: fmt.Sprint(p.PID())})
	if err != nil {
		t.Fatal(err)
	}
	return out.Serial
}

// over waits for a process's end.
func (b *box) over(t testing.TB, serial int64) (rec carrel.ProcessRecord) {
	t.Helper()
	testenv.EventuallyNil(t, "the process ends", func() error {
		out, err := b.conn.Output(t.Context(), carrel.OutputQuery{Serial: serial, From: 1 << 62, Most: 1, Wait: time.Second})
		if rec = out.ProcessRecord; err == nil && rec.Ended.IsZero() {
			return fmt.Errorf("it runs: %+v", rec)
		}
		return err
	})
	return rec
}

// kept reads all kept output of a process.
func (b *box) kept(t testing.TB, serial int64) (stdout, stderr string) {
	t.Helper()
	for q := (carrel.OutputQuery{Serial: serial}); ; {
		out, err := b.conn.Output(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out.Pieces {
			if p.Stream == "stderr" {
				stderr += string(p.Data)
			} else {
				stdout += string(p.Data)
			}
		}
		if q.From = out.Next; len(out.Pieces) == 0 {
			return stdout, stderr
		}
	}
}
