package otlp

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/trace"
)

// TestCollectorGetsTheSpans records an operation and reads the collector's input.
func TestCollectorGetsTheSpans(t *testing.T) {
	got := make(chan []*tracepb.Span, 8)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			zr, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = zr
		}
		raw, err := io.ReadAll(body)
		var req coltrace.ExportTraceServiceRequest
		if err := errors.Join(err, proto.Unmarshal(raw, &req)); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
			return
		}
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				got <- ss.Spans
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	if !Wanted(SignalTraces) {
		t.Fatal("not wanted")
	}
	e, err := New(t.Context(), "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := trace.New(e.Export)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx, whole := r.Begin(trace.Arrive(context.Background(), parent), "create", "i0123456789abcdef0123")
	part := trace.Mark(ctx, "cgroup")
	part.EndWith(errors.New("no room"))
	whole.End()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	spans := <-got
	if len(spans) != 3 || spans[0].Name != "create" || spans[2].Name != "cgroup" {
		t.Fatalf("%v", spans)
	}
	for _, s := range spans {
		if string(s.TraceId) != "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36" || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%v", s)
		}
	}
	if string(spans[0].ParentSpanId) != "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7" || string(spans[2].ParentSpanId) != string(spans[0].SpanId) {
		t.Errorf("parents: %v", spans)
	}
	if spans[2].Status.GetMessage() != "no room" || spans[2].Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("status: %v", spans[2].Status)
	}
}

// TestFullQueueHoldsNobodyUp exports more operations than the collector ever takes.
func TestFullQueueHoldsNobodyUp(t *testing.T) {
	e := &Exporter{queue: make(chan carrel.Trace, 1)}
	for range 10 {
		e.Export(carrel.Trace{})
	}
	if len(e.queue) != 1 {
		t.Errorf("%d queued", len(e.queue))
	}
}
