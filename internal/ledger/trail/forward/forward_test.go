package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// sink keeps the numbers that it was sent.
type sink struct {
	mu   sync.Mutex
	away int // so many tries fail
	got  []int64
}

func (s *sink) Send(_ context.Context, records []carrel.TrailRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away > 0 {
		s.away--
		return errors.New("away")
	}
	for _, r := range records {
		s.got = append(s.got, r.Seq)
	}
	return nil
}

func (*sink) Close() error { return nil }

func (s *sink) last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) == 0 {
		return 0
	}
	return s.got[len(s.got)-1]
}

func filled(t *testing.T, n int) *trail.Trail {
	t.Helper()
	tr, err := trail.Open(t.TempDir(), trail.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	note(tr, n)
	return tr
}

func note(tr *trail.Trail, n int) {
	for i := range n {
		tr.Note(trail.Entry{Kind: carrel.TrailChange, Op: "POST /sandboxes", Caller: carrel.Caller{Key: "ci"}, Targets: []string{fmt.Sprint("a\nb", i)}})
	}
}

// TestGoesOn sends to a destination that is away at first, stops, and goes on.
func TestGoesOn(t *testing.T) {
	tr, to, file := filled(t, 700), &sink{away: 1}, filepath.Join(t.TempDir(), "position.json")
	for want := range int64(2) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); Run(ctx, tr, to, "test", file, nil, slog.New(slog.DiscardHandler)) }()
		testenv.Eventually(t, "the records", func() bool { return to.last() >= 700*(want+1) })
		stop()
		<-done
		note(tr, 700)
	}
	for i, seq := range to.got {
		if seq != int64(i)+1 {
			t.Fatalf("record %d came as number %d", seq, i+1)
		}
	}
}

// TestEndsWhileAway ends a sending while the destination is away and records wait.
func TestEndsWhileAway(t *testing.T) {
	tr, to, progress := filled(t, 3), &sink{away: 1 << 30}, new(Progress)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, tr, to, "test", filepath.Join(t.TempDir(), "position.json"), progress, slog.New(slog.DiscardHandler))
	}()
	testenv.Eventually(t, "the first try", func() bool { to.mu.Lock(); defer to.mu.Unlock(); return to.away < 1<<30 })
	stop()
	testenv.Eventually(t, "the end", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	if progress.Taken() != 0 {
		t.Errorf("%d were taken", progress.Taken())
	}
}

// TestSyslog reads what a server over TCP gets.
func TestSyslog(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tr := filled(t, 3)
	s, err := NewSyslog("tcp://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	records, err := read(t.Context(), tr, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 16)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			var n int
			if _, err := fmt.Fscanf(in, "%d ", &n); err != nil {
				close(got)
				return
			}
			msg := make([]byte, n)
			if _, err := io.ReadFull(in, msg); err != nil {
				close(got)
				return
			}
			got <- string(msg)
		}
	}()
	if err := errors.Join(s.Send(t.Context(), records), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		msg := <-got
		head, line, ok := strings.Cut(msg, " - {")
		var back carrel.TrailRecord
		if err := json.Unmarshal([]byte("{"+line), &back); err != nil || !ok || back.Hash != r.Hash {
			t.Errorf("%q: %v", msg, err)
		}
		if !strings.HasPrefix(head, "<110>1 ") || len(strings.Fields(head)) != 6 || strings.ContainsAny(msg, "\n\r") {
			t.Errorf("%q", head)
		}
	}
	for _, bad := range []string{"", "127.0.0.1", "http://x", "udp://", "tcp://u@h", "unix://h/p", "udp://h/p", "tcp://h?x=1"} {
		if _, err := NewSyslog(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
