package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// TestCheckpointCommand runs the binary as a program inside would run it.
func TestCheckpointCommand(t *testing.T) {
	type reply struct {
		status int
		body   string
	}
	var last atomic.Value
	var answer atomic.Pointer[reply]
	answer.Store(&reply{200, `{"snapshotID":"s123","generation":2}`})
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last.Store(r.Method + r.URL.Path + string(body))
		a := answer.Load()
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
	}))
	defer host.Close()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, string, error) {
		cmd := exec.Command(bin, append([]string{"checkpoint", "--host", host.Listener.Addr().String()}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		return out.String(), errs.String(), err
	}
	if out, errs, err := run(); err != nil || out != "s123\n" || errs != "" || last.Load() != "POST/checkpoint{}" {
		t.Error(out, errs, err, last.Load())
	}
	out, errs, err := run("--label", "before", "--files-only", "--json")
	if err != nil || out != `{"snapshotID":"s123","restored":false,"generation":2}`+"\n" || last.Load() != `POST/checkpoint{"label":"before","filesOnly":true}` {
		t.Error(out, errs, err, last.Load())
	}
	answer.Store(&reply{507, `{"code":507,"message":"there is no room","hint":"delete some"}`})
	if out, errs, err := run(); exitCode(err) != 1 || out != "" || errs != "carrel-guest: checkpoint: there is no room\nhint: delete some\n" {
		t.Errorf("%q %q %v", out, errs, err)
	}
	for _, bad := range [][]string{{"--no-such"}, {"extra"}, {"--files-only=maybe"}} {
		if out, errs, err := run(bad...); exitCode(err) != 1 || out != "" || !strings.HasPrefix(errs, "carrel-guest: ") {
			t.Errorf("%v: %q %q %v", bad, out, errs, err)
		}
	}
	if out, _, err := run("--help"); err != nil || !strings.Contains(out, "--label") {
		t.Errorf("%q %v", out, err)
	}
	host.Close()
	if out, errs, err := run(); exitCode(err) != 1 || out != "" || !strings.Contains(errs, "\nhint: ") {
		t.Errorf("%q %q %v", out, errs, err)
	}
}

func exitCode(err error) int {
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return e.ExitCode()
	}
	return -1
}

// TestCheckpointReturnsTwice shows that this is a copy if the connection broke and the generation
// has changed. If the generation is the same, the command fails.
func TestCheckpointReturnsTwice(t *testing.T) {
	breaks := guest.Host{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { _, _ = theirs.Read(make([]byte, 100)); _ = theirs.Close() }()
		return ours, nil
	}}
	reads := 0
	c := checkpointer{host: breaks, generation: func() string {
		if reads++; reads > 3 {
			return "8"
		}
		return "7"
	}}
	var out bytes.Buffer
	if err := c.run(t.Context(), &out); err != nil || out.String() != "restored: generation 8\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	out.Reset()
	reads, c.asJSON = 0, true
	if err := c.run(t.Context(), &out); err != nil || out.String() != `{"restored":true,"generation":8}`+"\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	if testing.Short() {
		return // the rest waits for a restore that does not happen
	}
	c.generation = func() string { return "7" }
	if err := c.run(t.Context(), &out); carrel.KindOf(err) != carrel.Unavailable {
		t.Error(err)
	}
}
