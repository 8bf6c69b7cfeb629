package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/request"
)

// crowd is a daemon with many sandboxes in 100 projects.
type crowd struct {
	*running
	key string // of one project
	box carrel.ID
}

func crowded(b *testing.B, n int) *crowd {
	b.Helper()
	d := run(b, testConfig(b), Options{Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true})
	svc, err := client.New(d.URL(), d.Key())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = svc.Close() })
	c, people := &crowd{running: d}, svc.(*client.Client).People()
	const projects = 100
	for i := range projects {
		if _, err := people.CreateProject(b.Context(), fmt.Sprint("project-", i)); err != nil {
			b.Fatal(err)
		}
	}
	k, err := people.CreateKey(b.Context(), carrel.NewKey{Name: "k", Project: "project-0", Scope: carrel.ScopeRun})
	if err != nil {
		b.Fatal(err)
	}
	c.key = k.Secret
	for i := range n {
		owner := carrel.Caller{Project: fmt.Sprint("project-", i%projects), Role: carrel.RoleOwner, Key: "k"}
		sb, err := d.parts.Access.As(owner).Create(b.Context(), carrel.CreateOptions{Timeout: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		if c.box == "" {
			c.box = sb.ID
		}
	}
	return c
}

// instant is a service that answers at once, so that what is left is what stands before it.
type instant struct{ carrel.Service }

func (instant) SetTimeout(context.Context, carrel.ID, time.Duration, bool) (carrel.Sandbox, error) {
	return carrel.Sandbox{}, nil
}

func (instant) Get(context.Context, carrel.ID) (carrel.Sandbox, error) { return carrel.Sandbox{}, nil }

// processorTime is what this process used. On a machine with other work it says more than the clock.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// nothing answers without a look at the request.
func nothing(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}\n")) }

// BenchmarkRequest is what a request pays before the service has it and after: its ID, the key, the
// trace, the route, the audit trail and the metrics. The service answers at once.
func BenchmarkRequest(b *testing.B) {
	c := crowded(b, 2000)
	all := api.Options{Service: instant{}, Callers: c.callers, Journal: c.parts.Journal(), Served: c.figures.api.Served}
	bare := all
	bare.Served = nil
	silent := bare
	silent.Journal = nil
	for _, door := range []struct {
		name    string
		handler http.Handler
	}{{"all", request.Wrap(api.New(all))}, {"no metrics", request.Wrap(api.New(bare))},
		{"no metrics, no trail", request.Wrap(api.New(silent))}, {"the benchmark alone", http.HandlerFunc(nothing)}} {
		h := door.handler
		for _, q := range []struct{ name, method, path, body, parent string }{
			{name: "read", method: "GET", path: "/carrel/v1/sandboxes/" + string(c.box)},
			{name: "change", method: "POST", path: "/carrel/v1/sandboxes/" + string(c.box) + "/timeout", body: `{"timeout":"90s"}`},
			{name: "change with traceparent", method: "POST", path: "/carrel/v1/sandboxes/" + string(c.box) + "/timeout",
				body: `{"timeout":"90s"}`, parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		} {
			b.Run(door.name+"/"+q.name, func(b *testing.B) {
				b.ReportAllocs()
				began := processorTime()
				defer func() { b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op") }()
				for b.Loop() {
					r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
					r.Header.Set("X-API-Key", c.key)
					if q.parent != "" {
						r.Header.Set("Traceparent", q.parent)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code != http.StatusOK {
						b.Fatalf("%d %s", w.Code, w.Body)
					}
				}
			})
		}
	}
}
