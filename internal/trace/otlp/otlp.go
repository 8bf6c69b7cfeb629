// Package otlp sends operations, figures and the log to an OpenTelemetry collector, by OTLP over
// HTTP.
//
// OpenTelemetry's own environment variables (OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS, …_CERTIFICATE
// and so on) give the address and the settings. Without an endpoint, nothing is sent. If a
// collector is slow or away, operations and messages are dropped, so that nothing delays the work
// that it is about.
package otlp

import (
	"context"
	"encoding/hex"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel"
	ourtrace "github.com/carrel-dev/carrel/internal/trace"
)

const (
	queued   = 256 // operations that wait to be sent
	batch    = 64  // operations sent at once
	sendTime = 10 * time.Second
)

// Exporter sends operations. It is safe for concurrent use.
type Exporter struct {
	log      *slog.Logger
	to       sdktrace.SpanExporter
	resource *resource.Resource
	version  string

	queue  chan carrel.Trace
	stop   chan struct{}
	once   sync.Once
	worker sync.WaitGroup
}

// New returns an exporter to the collector in the environment. The caller closes it.
func New(ctx context.Context, version string, log *slog.Logger) (*Exporter, error) {
	to, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, unusable("open trace exporter", err)
	}
	return newExporter(to, version, log), nil
}

// ourResource describes this daemon to a collector.
func ourResource(version string) *resource.Resource {
	attrs := []attribute.KeyValue{attribute.String("service.version", version)}
	if os.Getenv("OTEL_SERVICE_NAME") == "" { // the default resource uses it
		attrs = append(attrs, attribute.String("service.name", "carrel"))
	}
	res, err := resource.Merge(resource.Default(), resource.NewSchemaless(attrs...))
	if err != nil { // their schemas differ: ours alone is enough
		res = resource.NewSchemaless(attrs...)
	}
	return res
}

func newExporter(to sdktrace.SpanExporter, version string, log *slog.Logger) *Exporter {
	e := &Exporter{log: log, to: to, resource: ourResource(version), version: version, queue: make(chan carrel.Trace, queued), stop: make(chan struct{})}
	e.worker.Go(e.work)
	return e
}

// Export queues an operation, or drops it when the queue is full.
func (e *Exporter) Export(t carrel.Trace) {
	select {
	case e.queue <- t:
	default:
	}
}

// Close sends the queue and ends the exporter.
func (e *Exporter) Close() error {
	e.once.Do(func() { close(e.stop) })
	e.worker.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	return e.to.Shutdown(ctx)
}

// work sends operations. If several wait, it sends them together.
func (e *Exporter) work() {
	for {
		select {
		case t := <-e.queue:
			e.send(t)
		case <-e.stop:
			for {
				select {
				case t := <-e.queue:
					if !e.send(t) {
						return // the collector is away: the rest would wait as long
					}
				default:
					return
				}
			}
		}
	}
}

// send sends an operation together with others that wait.
func (e *Exporter) send(t carrel.Trace) bool {
	stubs := e.stubs(nil, t)
	for n := 1; n < batch && len(e.queue) > 0; n++ {
		stubs = e.stubs(stubs, <-e.queue)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	if err := e.to.ExportSpans(ctx, stubs.Snapshots()); err != nil {
		e.log.Debug("send traces", "err", err)
		return false
	}
	return true
}

// stubs appends an operation's spans in the SDK's form.
func (e *Exporter) stubs(list tracetest.SpanStubs, t carrel.Trace) tracetest.SpanStubs {
	for i, s := range t.Spans {
		if s.Open {
			continue
		}
		stub := tracetest.SpanStub{
			Name: text(s.Name), SpanContext: spanContext(t.ID, s.ID), SpanKind: trace.SpanKindInternal,
			StartTime: s.Start, EndTime: s.Start.Add(s.Duration), Resource: e.resource,
			InstrumentationScope: instrumentation.Scope{Name: "github.com/carrel-dev/carrel", Version: e.version},
		}
		if s.Parent != "" {
			stub.Parent = spanContext(t.ID, s.Parent)
		}
		switch {
		case s.Name == ourtrace.Egress:
			stub.SpanKind = trace.SpanKindClient
		case i == 0:
			stub.SpanKind = trace.SpanKindServer
		}
		for k, v := range s.Fields {
			stub.Attributes = append(stub.Attributes, attribute.String(text("carrel."+k), text(v)))
		}
		if s.Error != "" {
			stub.Status = sdktrace.Status{Code: codes.Error, Description: text(s.Error)}
		}
		list = append(list, stub)
	}
	return list
}

// spanContext parses IDs that package trace wrote.
func spanContext(traceID, spanID string) trace.SpanContext {
	c := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	_, _ = hex.Decode(c.TraceID[:], []byte(traceID))
	_, _ = hex.Decode(c.SpanID[:], []byte(spanID))
	return trace.NewSpanContext(c)
}
