package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/trace"
	"github.com/carrel-dev/carrel/internal/trace/otlp/otlptest"
)

// collect starts a collector, and names it in the environment.
func collect(t *testing.T) *otlptest.Collector {
	c := otlptest.Start(t)
	for name, v := range c.Environment() {
		t.Setenv(name, v)
	}
	return c
}

// send sends a request with a body and headers, and returns the answer.
func send(t testing.TB, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	execTrace   = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "00f067aa0ba902b7"
)

// TestClientsTrace follows traces of a client through a creation, a command, and the command's way
// out, to a collector.
func TestClientsTrace(t *testing.T) {
	c := collect(t)
	cfg := testConfig(t)
	cfg.LogLevel = "info"
	d := run(t, cfg, Options{Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true,
		Logger: slog.New(slog.DiscardHandler)})
	parent := "00-" + clientTrace + "-" + clientSpan + "-01"
	var sb struct{ SandboxID, EnvdAccessToken string }
	status, body := send(t, "POST", d.URL()+"/sandboxes", `{"templateID":"sim","secure":true}`, "X-API-Key", d.Key(), "Traceparent", parent)
	if status != 201 || jsonInto(body, &sb) != nil {
		t.Fatalf("%d %s", status, body)
	}
	created := c.In(clientTrace, "create")["create"]
	if created.Parent != clientSpan {
		t.Errorf("the creation's parent is %s", created.Parent)
	}
	exec := func(trace string) {
		t.Helper()
		status, body := send(t, "GET", d.URL()+"/files?path=/etc/hostname", "", "E2b-Sandbox-Id", sb.SandboxID, "X-Access-Token", sb.EnvdAccessToken,
			"Traceparent", "00-"+trace+"-"+clientSpan+"-01")
		if status >= 500 {
			t.Fatalf("%d %s", status, body)
		}
	}
	exec(execTrace)
	visit := c.In(execTrace, "files")["files"]
	if visit.Parent != clientSpan || visit.Fields["sandbox"] != sb.SandboxID {
		t.Errorf("%v", visit)
	}
	// The wire's decisions, at the time of the visit and much later.
	at := time.Unix(0, visit.Start+1)
	d.traces.Happened(carrel.ID(sb.SandboxID), trace.Egress, at, time.Millisecond, map[string]string{"name": "evil\xff\x00.example.com"}, "no rule")
	d.traces.Happened(carrel.ID(sb.SandboxID), trace.Egress, at.Add(time.Hour), time.Millisecond, nil, "")
	d.traces.Happened(carrel.NewID(), trace.Egress, at, 0, nil, "") // in no trace
	during, later := c.In(execTrace, "egress")["egress"], c.In(clientTrace, "egress")["egress"]
	if during.Parent != visit.ID || later.Parent != created.ID {
		t.Errorf("parents %s and %s", during.Parent, later.Parent)
	}
	if !during.Client || during.Failure != "no rule" || during.Fields["name"] != "evil\ufffd\x00.example.com" {
		t.Errorf("%v", during)
	}
	c.Await("ready", "carrel_sandboxes", "carrel_api_request_duration_seconds", "go_goroutines")
}

// TestHostileTraceHeaders sends headers that are none of the specification's. The requests are
// served, and nothing of the headers goes on.
func TestHostileTraceHeaders(t *testing.T) {
	c := collect(t)
	d := run(t, testConfig(t), Options{Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true})
	const unsampled = "1bf92f3577b34da6a3ce929d0e0e4736"
	for _, parent := range []string{
		"00-" + strings.Repeat("0", 32) + "-" + clientSpan + "-01",
		"00-" + strings.Repeat("f", 4000) + "-" + clientSpan + "-01",
		"00-" + clientTrace + "-" + clientSpan + "-01, 00-" + clientTrace + "-" + clientSpan + "-01",
		"00-" + clientTrace + "'; drop--" + clientSpan + "-01",
		"00-" + strings.ToUpper(clientTrace) + "-" + clientSpan + "-01",
		"ff-" + clientTrace + "-" + clientSpan + "-01",
		"00-" + unsampled + "-" + clientSpan + "-00", // its client records nothing of it
		"\xff\xfe", "", "00", strings.Repeat("-", 60),
	} {
		var sb struct{ SandboxID, EnvdAccessToken string }
		status, body := send(t, "POST", d.URL()+"/sandboxes", `{"templateID":"sim","secure":true}`, "X-API-Key", d.Key(), "Traceparent", parent,
			"Tracestate", strings.Repeat("evil=1,", 500), "Baggage", "evil="+strings.Repeat("x", 9000)+";a=b,\x80")
		if status != 201 || jsonInto(body, &sb) != nil {
			t.Fatalf("%q: %d %s", parent, status, body)
		}
		status, body = send(t, "GET", d.URL()+"/health", "", "E2b-Sandbox-Id", sb.SandboxID, "Traceparent", parent, "Baggage", "evil=2")
		if status != 204 {
			t.Fatalf("%q: %d %s", parent, status, body)
		}
	}
	// Twice the header, each of them good: nobody knows which one is meant.
	good := "00-" + clientTrace + "-" + clientSpan + "-01"
	var sb struct{ SandboxID string }
	if status, body := send(t, "POST", d.URL()+"/sandboxes", `{"templateID":"sim"}`, "X-API-Key", d.Key()); status != 201 || jsonInto(body, &sb) != nil {
		t.Fatalf("%d %s", status, body)
	}
	send(t, "GET", d.URL()+"/health", "", "E2b-Sandbox-Id", sb.SandboxID, "Traceparent", good, "Traceparent", good)
	// What comes last shows that everything before was sent.
	send(t, "GET", d.URL()+"/health", "", "E2b-Sandbox-Id", sb.SandboxID, "Traceparent", "00-"+execTrace+"-"+clientSpan+"-01")
	c.In(execTrace, "health")
	for _, s := range c.Spans() {
		if s.Trace == clientTrace || s.Trace == unsampled || strings.Contains(fmt.Sprint(s), "evil") {
			t.Errorf("%+v", s)
		}
	}
}

func jsonInto(text string, v any) error { return json.Unmarshal([]byte(text), v) }
