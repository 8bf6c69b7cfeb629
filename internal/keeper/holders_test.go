package keeper_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// kept puts a new pipe and returns its reading end. Only the holders have the writing end.
func kept(t *testing.T, h keeper.Holder, name string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := h.Put(t.Context(), name, w); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	return r
}

// works takes a pipe back and sends something through it.
func works(t *testing.T, h keeper.Holder, name string, r *os.File) {
	t.Helper()
	w, err := h.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := io.WriteString(w, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// TestOneOfTwoIsEnough kills one of two keepers while no daemon is there. The next daemon finds
// everything, and afterwards the new keeper alone is enough.
func TestOneOfTwoIsEnough(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	onePath, one := start(t)
	twoPath, two := start(t)
	h := keeper.Join(t.Context(), log, one, two)
	a, b := kept(t, h, "a"), kept(t, h, "b")
	_, _ = one.Close(), two.Close() // the daemon is gone
	kill := func(path string) {
		p := pid(t, path)
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "it dies", func() bool { return pid(t, path) != p })
	}
	kill(onePath)
	next := func() (*keeper.Holders, func()) {
		var all []keeper.Holder
		var clients []*keeper.Client
		for _, path := range []string{onePath, twoPath} {
			if err := keeper.Start(t.Context(), "", path); err != nil {
				t.Fatal(err)
			}
			c, err := keeper.Dial(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			all, clients = append(all, c), append(clients, c)
		}
		return keeper.Join(t.Context(), log, all...),
			func() { _, _ = clients[0].Close(), clients[1].Close() }
	}
	h, leave := next()
	works(t, h, "a", a)
	works(t, h, "b", b)
	leave()
	kill(twoPath) // the first has a copy again
	h, leave = next()
	defer leave()
	works(t, h, "a", a)
	if err := h.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Get(t.Context(), "a"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a deleted one: %v", err)
	}
	if rest, err := io.ReadAll(a); err != nil || len(rest) != 0 { // nobody holds it any more
		t.Errorf("%q, %v", rest, err)
	}
	works(t, h, "b", b)
}

// silent is a holder that can't be asked.
type silent struct{ keeper.Holder }

func (silent) Get(context.Context, string) (*os.File, error) { return nil, errors.New("silent") }

// TestSilenceIsNoLoss shows that a file counts as lost only if every holder says so.
func TestSilenceIsNoLoss(t *testing.T) {
	_, one := start(t)
	h := keeper.Join(t.Context(), slog.New(slog.DiscardHandler), one, silent{one})
	if _, err := h.Get(t.Context(), "a"); err == nil || carrel.KindOf(err) == carrel.NotFound {
		t.Errorf("%v", err)
	}
}

// notifySocket plays the part of systemd: it stores what it is given.
func notifySocket(t *testing.T) (string, func() (string, []*os.File)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path, func() (string, []*os.File) {
		t.Helper()
		_ = l.SetReadDeadline(time.Now().Add(time.Minute))
		buf, oob := make([]byte, 4096), make([]byte, 1024)
		n, m, _, _, err := l.ReadMsgUnix(buf, oob)
		if err != nil {
			t.Fatal(err)
		}
		var files []*os.File
		msgs, err := unix.ParseSocketControlMessage(oob[:m])
		if err != nil {
			t.Fatal(err)
		}
		for _, msg := range msgs {
			fds, err := unix.ParseUnixRights(&msg)
			if err != nil {
				t.Fatal(err)
			}
			_, name, _ := strings.Cut(string(buf[:n]), "FDNAME=")
			for _, fd := range fds {
				files = append(files, os.NewFile(uintptr(fd), name))
			}
		}
		return string(buf[:n]), files
	}
}

// TestSupervisorStore gives a file to a supervisor and gets it back in the next process.
func TestSupervisorStore(t *testing.T) {
	path, hear := notifySocket(t)
	s, _ := keeper.NewSupervisor(path, nil)
	r := kept(t, s, "gvisor/x")
	said, files := hear()
	if said != "FDSTORE=1\nFDNAME=carrel/gvisor/x" || len(files) != 1 {
		t.Fatalf("it was told %q, with %d files", said, len(files))
	}
	if err := s.Close(); err != nil { // that process is over
		t.Fatal(err)
	}
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s, rest := keeper.NewSupervisor(path, append(files, other))
	defer s.Close()
	if len(rest) != 1 || rest[0] != other {
		t.Errorf("the rest is %v", rest)
	}
	works(t, s, "gvisor/x", r)
	if _, err := s.Get(t.Context(), "gvisor/y"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("another: %v", err)
	}
	if err := s.Delete(t.Context(), "gvisor/x"); err != nil {
		t.Fatal(err)
	}
	if said, _ := hear(); said != "FDSTOREREMOVE=1\nFDNAME=carrel/gvisor/x" {
		t.Errorf("it was told %q", said)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, bad := range []string{"", "a:b", "é", strings.Repeat("x", 250)} {
		if err := s.Put(t.Context(), bad, f); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("name %.10q gave %v", bad, err)
		}
	}
}
