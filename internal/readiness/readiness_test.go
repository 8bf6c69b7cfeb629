package readiness_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/readiness"
)

// machine is a sandbox with a ready command. It is ready at a time after its start.
type machine struct {
	began   time.Time
	readyAt time.Duration // 0 is never
	takes   time.Duration // of one try
	broken  error
	output  string
	gone    string // programs that it lacks, one a line
	tries   int
}

func (m *machine) run(ctx context.Context, cmd carrel.Command) (*carrel.Result, error) {
	if len(cmd.Args) > 3 { // the search for missing programs
		return &carrel.Result{Stdout: []byte(m.gone)}, nil
	}
	m.tries++
	select {
	case <-time.After(m.takes):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if m.broken != nil {
		return nil, m.broken
	}
	if m.readyAt == 0 || time.Since(m.began) < m.readyAt {
		return &carrel.Result{ExitCode: 7, Stdout: []byte(m.output)}, nil
	}
	return &carrel.Result{}, nil
}

// TestAwait waits for starts that succeed, fail, and are cut off.
func TestAwait(t *testing.T) {
	const ss = `[ -n "$(ss -Htuln sport = :80)" ]`
	for _, c := range []struct {
		name  string
		t     carrel.Template
		m     machine
		took  time.Duration // the least
		most  time.Duration
		wants []string // in the error and its hint; none is success
	}{
		{name: "at once", m: machine{readyAt: 1}, most: time.Second},
		{name: "after a while", m: machine{readyAt: 5 * time.Second}, took: 5 * time.Second,
			most: 6 * time.Second},
		// As E2B's waitForTimeout(20_000).
		{name: "one long try", m: machine{readyAt: 1, takes: 20 * time.Second}, took: 20 * time.Second,
			most: 21 * time.Second},
		{name: "never", m: machine{output: "not yet"}, took: readiness.Within,
			most:  readiness.Within + time.Second,
			wants: []string{"within 2m0s", `status 7 and wrote "not yet"`, "start command works"}},
		{name: "long output", m: machine{output: strings.Repeat("x", 1000) + "end"},
			took: readiness.Within, most: readiness.Within + time.Second, wants: []string{`xxxend"`}},
		{name: "never ends", m: machine{takes: time.Hour}, took: readiness.Within,
			most: readiness.Within + time.Second, wants: []string{"it still ran, for 2m0s"}},
		{name: "a last try that is cut off", m: machine{takes: 7 * time.Second},
			took: readiness.Within, most: readiness.Within + time.Second, wants: []string{"status 7"}},
		{name: "each try is bounded", m: machine{takes: time.Hour},
			t: carrel.Template{ReadyCheck: carrel.ReadyCheck{Timeout: time.Second,
				Within: 4 * time.Second}},
			took: 4 * time.Second, most: 5 * time.Second,
			wants: []string{"within 4s", "did not end within 1s"}},
		{name: "as long as a template likes", t: carrel.Template{ReadyCheck: carrel.ReadyCheck{
			Within: 10 * time.Hour}}, took: readiness.Most, most: readiness.Most + time.Second,
			wants: []string{"within 10m0s"}},
		{name: "no connection", m: machine{broken: errors.New("connection refused")},
			took: readiness.Within, most: readiness.Within + time.Second,
			wants: []string{"connection refused"}},
		{name: "a program is missing", t: carrel.Template{Ready: ss}, m: machine{gone: "ss\n"},
			took: readiness.Within, most: readiness.Within + time.Second,
			wants: []string{"the image has no ss", "apt-get install -y iproute2"}},
		{name: "two are missing", t: carrel.Template{Ready: "curl -s x | grep -q 200 && pgrep node"},
			m: machine{gone: "curl\npgrep\n"}, took: readiness.Within,
			most:  readiness.Within + time.Second,
			wants: []string{"no curl and no pgrep", "install -y curl procps"}},
		{name: "none is missing", t: carrel.Template{Ready: ss}, took: readiness.Within,
			most: readiness.Within + time.Second, wants: []string{"start command works"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c.m.began = began
				time.Sleep(time.Nanosecond)
				err := readiness.Of(c.t, readiness.Within).Await(t.Context(), c.m.run)
				if took := time.Since(began); took < c.took || took > c.most {
					t.Errorf("it took %v, and %v to %v is right", took, c.took, c.most)
				}
				if len(c.wants) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if carrel.KindOf(err) != carrel.TimedOut {
					t.Errorf("the error is %v", err)
				}
				for _, want := range c.wants {
					if text := err.Error() + "\n" + carrel.HintOf(err); !strings.Contains(text, want) {
						t.Errorf("%q is not in %q", want, text)
					}
				}
			})
		})
	}
}

// TestAwaitEndsEarly ends a wait from outside. It says why, and the command is run no more.
func TestAwaitEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the sandbox is gone")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { end(why) })
		m := machine{takes: time.Hour}
		began := time.Now()
		if err := readiness.Of(carrel.Template{}, time.Hour).Await(ctx, m.run); err != why {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(began); took != 3*time.Second || m.tries != 1 {
			t.Errorf("it took %v and %d tries", took, m.tries)
		}
	})
}

// started is a start command that ends with a result after a time.
type started struct {
	carrel.Process
	cmd    carrel.Command
	output string
	result carrel.Result
	after  time.Duration
	closed bool
}

func (p *started) Start(_ context.Context, cmd carrel.Command) (carrel.Process, error) {
	p.cmd = cmd
	return p, nil
}

func (p *started) Wait(ctx context.Context) (*carrel.Result, error) {
	select {
	case <-time.After(p.after):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	_, err := p.cmd.Stdout.Write([]byte(p.output))
	return &p.result, err
}

func (p *started) Close() error { p.closed = true; return nil }

// TestBegin starts commands that fail, end well, and run on.
func TestBegin(t *testing.T) {
	for name, c := range map[string]struct {
		p    started
		want string // in the error; "" is none
	}{
		"fails": {started{output: strings.Repeat("x", 1000) + "the end", after: time.Second,
			result: carrel.Result{ExitCode: 3, Status: "exit status 3"}}, "exit status 3: it wrote"},
		"ends":    {started{after: time.Second}, ""},
		"runs on": {started{after: time.Hour, result: carrel.Result{ExitCode: 1}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed error
				stop, err := readiness.Begin(t.Context(), &c.p, carrel.Command{Args: []string{"serve"}},
					func(err error) { failed = err })
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				stop()
				if !c.p.closed {
					t.Error("the process is still connected")
				}
				if c.want == "" && failed != nil || c.want != "" && (failed == nil ||
					!strings.Contains(failed.Error(), c.want) || !strings.Contains(failed.Error(), "the end") ||
					len(failed.Error()) > 500) {
					t.Errorf("the error is %v", failed)
				}
			})
		})
	}
}
