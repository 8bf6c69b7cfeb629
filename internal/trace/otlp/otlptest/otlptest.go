// Package otlptest is a collector of OpenTelemetry for tests: it receives OTLP over HTTP, reads the
// protobuf, and keeps what came.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// Collector is an OTLP receiver.
type Collector struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	spans    []Span
	messages []string
	metrics  map[string]bool
}

// Span is a span that came.
type Span struct {
	Trace, ID, Parent, Name string
	Client                  bool   // of the kind of a client
	Failure                 string // the status' message
	Start                   int64  // in Unix time's nanoseconds
	// Fields are the attributes of ours, without "carrel.".
	Fields map[string]string
}

// Start starts a collector. It ends with the test.
func Start(t testing.TB) *Collector {
	c := &Collector{t: t, metrics: map[string]bool{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// Environment is what a daemon must have in its environment to send here, soon.
func (c *Collector) Environment() map[string]string {
	return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL,
		"OTEL_METRIC_EXPORT_INTERVAL": "200", "OTEL_BLRP_SCHEDULE_DELAY": "100"}
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		zr, err := gzip.NewReader(r.Body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = zr
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return // the sender ends
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/traces":
		err = c.takeSpans(raw)
	case "/v1/logs":
		var req collogs.ExportLogsServiceRequest
		err = proto.Unmarshal(raw, &req)
		for _, rl := range req.ResourceLogs {
			for _, sl := range rl.ScopeLogs {
				for _, l := range sl.LogRecords {
					c.messages = append(c.messages, l.Body.GetStringValue())
				}
			}
		}
	case "/v1/metrics":
		var req colmetrics.ExportMetricsServiceRequest
		err = proto.Unmarshal(raw, &req)
		for _, rm := range req.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					c.metrics[m.Name] = true
				}
			}
		}
	default:
		err = fmt.Errorf("path %s", r.URL.Path)
	}
	if err != nil {
		c.t.Error(err)
	}
}

// takeSpans keeps the spans of a request. The caller holds mu.
func (c *Collector) takeSpans(raw []byte) error {
	var req coltrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &req); err != nil {
		return err
	}
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				out := Span{Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
					Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name,
					Client:  s.Kind == tracepb.Span_SPAN_KIND_CLIENT,
					Failure: s.Status.GetMessage(), Start: int64(s.StartTimeUnixNano), Fields: map[string]string{}}
				for _, a := range s.Attributes {
					out.Fields[strings.TrimPrefix(a.Key, "carrel.")] = a.Value.GetStringValue()
				}
				c.spans = append(c.spans, out)
			}
		}
	}
	return nil
}

// Spans returns all spans that came.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// In waits for spans of these names in a trace, and returns them by their names.
func (c *Collector) In(trace string, names ...string) map[string]Span {
	c.t.Helper()
	out := map[string]Span{}
	testenv.EventuallyNil(c.t, "the spans arrive", func() error {
		for _, s := range c.Spans() {
			if s.Trace == trace {
				out[s.Name] = s
			}
		}
		for _, n := range names {
			if out[n].ID == "" {
				return fmt.Errorf("no %q in trace %s", n, trace)
			}
		}
		return nil
	})
	return out
}

// Await waits for these metrics and for this message of the log.
func (c *Collector) Await(message string, metrics ...string) {
	c.t.Helper()
	testenv.EventuallyNil(c.t, "metrics and the log arrive", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range metrics {
			if !c.metrics[name] {
				return fmt.Errorf("no %s", name)
			}
		}
		for _, m := range c.messages {
			if m == message {
				return nil
			}
		}
		return fmt.Errorf("none of %d messages is %q", len(c.messages), message)
	})
}
