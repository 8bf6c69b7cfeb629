package interpreter_test

import (
	"context"
	"net"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client/interpreter"
	server "github.com/carrel-dev/carrel/internal/guest/interpreter"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// computer is a sandbox that has a code interpreter only.
type computer struct {
	carrel.Computer
	addr string
}

func (c computer) Dial(ctx context.Context, _ uint16) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
}

// open returns a client of a real server.
func open(t *testing.T, token string) *interpreter.Interpreter {
	t.Helper()
	_, err := exec.LookPath("bash")
	testenv.Need(t, "bash", err)
	s := server.New(server.Config{Dir: t.TempDir(),
		Environ: func(_ context.Context, got string) (map[string]string, error) {
			if got != "right" {
				return nil, server.ErrDenied
			}
			return nil, nil
		}})
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); s.Close() })
	in := interpreter.New(computer{addr: srv.Listener.Addr().String()}, token)
	t.Cleanup(in.Close)
	return in
}

func TestRun(t *testing.T) {
	in := open(t, "right")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := in.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	e, err := in.Run(ctx, interpreter.Cell{Code: "echo $A; echo err >&2; exit_with() { return 3; }; exit_with",
		Language: "bash", Env: map[string]string{"A": "one"}}, func(o interpreter.Output) {
		shown.WriteString(o.Stdout)
	})
	if err != nil || e.Stdout != "one\n" || e.Stderr != "err\n" || shown.String() != "one\n" ||
		e.Failure == nil || e.Failure.Value != "3" || e.Count != 1 {
		t.Errorf("%+v %v", e, err)
	}
	c, err := in.CreateContext(ctx, "bash", "/")
	if err != nil || c.Dir != "/" || c.Language != "bash" {
		t.Fatalf("%+v %v", c, err)
	}
	if e, err := in.Run(ctx, interpreter.Cell{Code: "pwd", Context: c.ID}, nil); e.Stdout != "/\n" {
		t.Errorf("%+v %v", e, err)
	}
	if err := in.RestartContext(ctx, c.ID); err != nil {
		t.Error(err)
	}
	// The default contexts of all languages are listed from the start.
	if all, err := in.Contexts(ctx); err != nil || !slices.ContainsFunc(all, func(o interpreter.Context) bool { return o.ID == c.ID }) ||
		!slices.ContainsFunc(all, func(o interpreter.Context) bool { return o.Language == "bash" && o.ID != c.ID }) {
		t.Errorf("%+v %v", all, err)
	}
	if err := in.RemoveContext(ctx, c.ID); err != nil {
		t.Error(err)
	}
	if err := in.RemoveContext(ctx, c.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("removed twice: %v", err)
	}
}

func TestErrors(t *testing.T) {
	_, err := open(t, "wrong").Run(t.Context(), interpreter.Cell{Code: "1", Language: "bash"}, nil)
	if carrel.KindOf(err) != carrel.Denied {
		t.Errorf("wrong token: %v", err)
	}
	_, err = open(t, "right").Run(t.Context(), interpreter.Cell{Code: "1", Language: "cobol"}, nil)
	if carrel.KindOf(err) != carrel.Invalid || !strings.Contains(err.Error(), "cobol") {
		t.Errorf("unknown language: %v", err)
	}
}
