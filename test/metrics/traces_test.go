package metrics

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/trace/otlp/otlptest"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// The client's traces: one for the creation, one for the command.
const (
	createTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	execTrace   = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "00f067aa0ba902b7"
)

// post sends a request as a client of E2B does.
func post(t *testing.T, url, trace, media string, body []byte, headers ...string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", media)
	req.Header.Set("Traceparent", "00-"+trace+"-"+clientSpan+"-01")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %v %s", resp.Status, err, out)
	}
	return out
}

// TestTraces creates a sandbox and runs a command in it, each in a trace of the client's, through
// the doors that E2B's clients use. The command connects to the outside. A collector must get all
// three as parts of the client's traces, and the way out as a part of the command.
func TestTraces(t *testing.T) {
	c := otlptest.Start(t)
	for name, v := range c.Environment() {
		t.Setenv(name, v)
	}
	d := daemontest.Start(t, "--default-tier", "sim")
	var sb struct{ SandboxID, EnvdAccessToken string }
	body := []byte(`{"templateID":"base","secure":true,"allow_internet_access":false}`)
	if err := json.Unmarshal(post(t, d.URL+"/sandboxes", createTrace, "application/json", body, "X-API-Key", d.Key), &sb); err != nil {
		t.Fatal(err)
	}
	start := []byte(`{"process":{"cmd":"/bin/sh","args":["-c","curl -s -m 5 http://192.0.2.1/; echo TRACEPARENT=$TRACEPARENT"]}}`)
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(start))), start...)
	out := post(t, d.URL+"/process.Process/Start", execTrace, "application/connect+json", frame,
		"Connect-Protocol-Version", "1", "E2b-Sandbox-Id", sb.SandboxID, "X-Access-Token", sb.EnvdAccessToken)
	if strings.Contains(string(out), execTrace) {
		t.Errorf("the command got the trace unasked: %s", out)
	}
	created := c.In(createTrace, "create")["create"]
	spans := c.In(execTrace, "process.Process/Start", "egress")
	exec, egress := spans["process.Process/Start"], spans["egress"]
	if created.Parent != clientSpan || exec.Parent != clientSpan || egress.Parent != exec.ID {
		t.Errorf("created %+v\nexec %+v\negress %+v", created, exec, egress)
	}
	if egress.Fields["allowed"] != "false" || egress.Fields["address"] != "192.0.2.1" || egress.Failure == "" || egress.Fields["sandbox"] != sb.SandboxID {
		t.Errorf("%+v", egress)
	}
	c.Await("ready", "carrel_wire_decisions_total", "carrel_build_info", "process_cpu_seconds_total")
}
