package interp_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// newMachine makes a machine with the tools installed and an empty /work.
func newMachine(t testing.TB, l interp.Limits) *interp.Machine {
	t.Helper()
	fs := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := interp.Install(fs, tools.Names()...); err != nil {
		t.Fatal(err)
	}
	if err := fs.Root().MkdirAll("/work", 0o777); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Hostname: "box", Limits: l, Commands: tools.All()})
	t.Cleanup(m.Close)
	return m
}

type result struct {
	out, err string
	exit     interp.Exit
}

// run runs a script in a machine.
func run(t testing.TB, m *interp.Machine, script, stdin string) result {
	t.Helper()
	in, out, errs := interp.NewPipe(), interp.NewPipe(), interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/work",
		Env: []string{"HOME=/root", "PATH=/usr/local/bin:/usr/bin:/bin"}, Stdin: in, Out: out, Err: errs})
	if err != nil {
		t.Fatal(err)
	}
	var res result
	var wg sync.WaitGroup
	read := func(p *interp.Pipe, into *string) {
		defer wg.Done()
		var b bytes.Buffer
		_, _ = b.ReadFrom(p) // ends with the process
		*into = b.String()
	}
	wg.Add(2)
	go read(out, &res.out)
	go read(errs, &res.err)
	go func() {
		_, _ = in.Write([]byte(stdin)) // the script need not read it
		in.CloseWrite()
	}()
	done := make(chan struct{})
	go func() { defer close(done); res.exit = p.Wait(); wg.Wait() }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		_ = p.Signal(9)
		<-done
		t.Errorf("hangs: %s", script)
	}
	return res
}

// realBash runs a script in the host's bash, in an empty directory.
func realBash(t *testing.T, script, stdin string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// A process started by nohup ignores some signals, and children inherit that. Catching a signal
	// stops the inheritance.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGINT)
	defer signal.Stop(caught)
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"HOME=/root", "PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// TestAgainstBash runs every script here and in real bash. Output and status must be equal.
func TestAgainstBash(t *testing.T) {
	_, err := exec.LookPath("bash")
	testenv.Need(t, "bash", err)
	for _, group := range bashCases {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, script := range group.scripts {
				wantOut, wantCode := realBash(t, script, "line one\nline two\n")
				got := run(t, newMachine(t, interp.Limits{Procs: 200, Memory: 256 << 20}), script, "line one\nline two\n")
				if got.out != wantOut || got.exit.Code != wantCode {
					t.Errorf("script: %s\n got %d %q\nwant %d %q\nstderr: %s", script, got.exit.Code, got.out, wantCode, wantOut, got.err)
				}
			}
		})
	}
}
