package otlp

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carrel-dev/carrel"
)

// Trail sends records of the audit trail to a collector, as logs.
type Trail struct {
	to       sdklog.Exporter
	provider *sdklog.LoggerProvider
	held     *held
	version  string
}

// NewTrail returns a sender to the collector in the environment. The caller closes it.
func NewTrail(ctx context.Context, version string) (*Trail, error) {
	to, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, unusable("open log exporter", err)
	}
	return newTrail(to, version), nil
}

func newTrail(to sdklog.Exporter, version string) *Trail {
	h := &held{}
	return &Trail{to: to, held: h, version: version,
		provider: sdklog.NewLoggerProvider(sdklog.WithResource(ourResource(version)), sdklog.WithProcessor(h))}
}

// held is a processor that keeps records, so that Send knows what became of them.
type held struct {
	mu      sync.Mutex
	records []sdklog.Record
}

// OnEmit implements sdklog.Processor.
func (h *held) OnEmit(_ context.Context, r *sdklog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r.Clone())
	return nil
}

// Enabled implements sdklog.Processor.
func (*held) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// Shutdown implements sdklog.Processor.
func (*held) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdklog.Processor.
func (*held) ForceFlush(context.Context) error { return nil }

func (h *held) take() []sdklog.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.records
	h.records = nil
	return out
}

// Send sends records. With an error, none of them counts as sent.
func (t *Trail) Send(ctx context.Context, records []carrel.TrailRecord) error {
	logger := t.provider.Logger("github.com/carrel-dev/carrel/audit", otellog.WithInstrumentationVersion(t.version))
	for _, r := range records {
		var out otellog.Record
		out.SetTimestamp(r.Time)
		out.SetObservedTimestamp(r.Time)
		out.SetEventName("carrel.audit." + r.Kind)
		out.SetSeverity(otellog.SeverityInfo)
		if r.Kind == carrel.TrailRefuse || r.Kind == carrel.TrailTorn || r.Kind == carrel.TrailLost {
			out.SetSeverity(otellog.SeverityWarn)
		}
		out.SetBody(attribute.StringValue(string(r.Line)))
		out.AddAttributes(attribute.Int64("carrel.seq", r.Seq), attribute.String("carrel.hash", r.Hash))
		for name, v := range map[string]string{"carrel.key": r.Key, "carrel.project": r.Project, "carrel.op": r.Op,
			"carrel.target": r.Target, "client.address": r.From, "carrel.request": r.Request} {
			if v != "" {
				out.AddAttributes(attribute.String(name, v))
			}
		}
		logger.Emit(ctx, out)
	}
	return t.to.Export(ctx, t.held.take())
}

// Close ends the sender.
func (t *Trail) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	return t.to.Shutdown(ctx)
}
