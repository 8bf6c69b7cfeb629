package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// TestTokenCommand runs the binary as a program inside would run it.
func TestTokenCommand(t *testing.T) {
	var refuse atomic.Bool
	var last atomic.Value
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.Method + " " + r.URL.String() + " " + r.Header.Get("Metadata-Flavor"))
		switch {
		case refuse.Load():
			w.WriteHeader(404)
			fmt.Fprint(w, `{"code":404,"message":"no such token","hint":"ask for one"}`)
		case r.URL.Path == "/carrel/v1/sandbox":
			fmt.Fprint(w, `{"id":"i1","tokens":{"b":{"audience":"two"},"a":{"audience":"one"}}}`)
		default:
			fmt.Fprint(w, `{"token":"eyJ.x.y","expires":"2026-03-01T12:00:00Z"}`)
		}
	}))
	defer host.Close()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, string, error) {
		cmd := exec.Command(bin, append([]string{"token", "--host", host.Listener.Addr().String()}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		return out.String(), errs.String(), err
	}
	for _, c := range []struct{ args, out, request string }{
		{"--name aws", "eyJ.x.y\n", "GET /carrel/v1/identity/token?name=aws Carrel"},
		{"--audience https://a.example.com/?b --json", `{"token":"eyJ.x.y","expires":"2026-03-01T12:00:00Z"}` + "\n", "GET /carrel/v1/identity/token?audience=https%3A%2F%2Fa.example.com%2F%3Fb Carrel"},
		{"--list", "a\tone\nb\ttwo\n", "GET /carrel/v1/sandbox Carrel"},
		{"--list --json", `{"a":{"audience":"one"},"b":{"audience":"two"}}` + "\n", "GET /carrel/v1/sandbox Carrel"},
	} {
		if out, errs, err := run(strings.Fields(c.args)...); err != nil || out != c.out || errs != "" || last.Load() != c.request {
			t.Errorf("%s: %q %q %v %v", c.args, out, errs, err, last.Load())
		}
	}
	for _, bad := range []string{"", "--name a --audience b", "--list --name a", "--no-such", "extra"} {
		if out, errs, err := run(strings.Fields(bad)...); exitCode(err) != 1 || out != "" || !strings.HasPrefix(errs, "carrel-guest: ") {
			t.Errorf("%s: %q %q %v", bad, out, errs, err)
		}
	}
	refuse.Store(true)
	if out, errs, err := run("--name", "x"); exitCode(err) != 1 || out != "" || errs != "carrel-guest: token: no such token\nhint: ask for one\n" {
		t.Errorf("%q %q %v", out, errs, err)
	}
	if out, _, err := run("--help"); err != nil || !strings.Contains(out, "--audience") {
		t.Errorf("%q %v", out, err)
	}
}
