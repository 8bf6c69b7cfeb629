package otlp

import (
	"context"
	"encoding/hex"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/internal/trace"
)

// Logs sends the daemon's own log to a collector. It is a handler for it.
type Logs struct {
	slog.Handler
	provider *sdklog.LoggerProvider
}

// NewLogs returns a sender to the collector in the environment, of messages from a level on. If the
// collector is away, messages are dropped when many wait. The caller closes it.
func NewLogs(ctx context.Context, version string, from slog.Level) (*Logs, error) {
	to, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, unusable("open log exporter", err)
	}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(ourResource(version)),
		sdklog.WithProcessor(sdklog.NewBatchProcessor(to)))
	h := otelslog.NewHandler("github.com/carrel-dev/carrel", otelslog.WithLoggerProvider(p),
		otelslog.WithVersion(version))
	return &Logs{traced{h, from}, p}, nil
}

// Close sends what waits and ends the sender.
func (l *Logs) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	return l.provider.Shutdown(ctx)
}

// traced gives each message the trace that it belongs to, and makes its texts valid.
type traced struct {
	slog.Handler
	from slog.Level
}

// Enabled implements slog.Handler.
func (h traced) Enabled(_ context.Context, l slog.Level) bool { return l >= h.from }

// Handle implements slog.Handler.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if id, span, ok := trace.IDs(ctx); ok {
		ctx = oteltrace.ContextWithSpanContext(ctx, spanContext(hex.EncodeToString(id[:]), hex.EncodeToString(span[:])))
	}
	out := slog.NewRecord(r.Time, r.Level, text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(valid(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// valid makes the texts of an attribute valid. Values that are not plain become texts.
func valid(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindGroup:
		var group []slog.Attr
		for _, m := range v.Group() {
			group = append(group, valid(m))
		}
		return slog.Attr{Key: text(a.Key), Value: slog.GroupValue(group...)}
	case slog.KindString, slog.KindAny:
		return slog.String(text(a.Key), text(v.String()))
	default:
		return slog.Attr{Key: text(a.Key), Value: v}
	}
}

// WithAttrs implements slog.Handler.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = valid(a)
	}
	return traced{h.Handler.WithAttrs(out), h.from}
}

// WithGroup implements slog.Handler.
func (h traced) WithGroup(name string) slog.Handler {
	return traced{h.Handler.WithGroup(text(name)), h.from}
}
