package certs

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger makes the ACME library write to our log. The library logs every step of every order as
// information. Here these messages are debugging.
func zapLogger(log *slog.Logger) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return zap.New(bridge{log: log})
}

// bridge is a zap core on a slog logger.
type bridge struct {
	log    *slog.Logger
	fields []zapcore.Field
}

// level converts one of zap's levels to ours.
func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled implements zapcore.Core.
func (b bridge) Enabled(l zapcore.Level) bool {
	return b.log.Enabled(context.Background(), level(l))
}

// With implements zapcore.Core.
func (b bridge) With(fields []zapcore.Field) zapcore.Core {
	return bridge{log: b.log, fields: append(b.fields[:len(b.fields):len(b.fields)], fields...)}
}

// Check implements zapcore.Core.
func (b bridge) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return c.AddCore(e, b)
	}
	return c
}

// Write implements zapcore.Core.
func (b bridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range append(b.fields[:len(b.fields):len(b.fields)], fields...) {
		f.AddTo(enc)
	}
	attrs := make([]any, 0, 2*len(enc.Fields))
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	b.log.Log(context.Background(), level(e.Level), "acme: "+e.Message, attrs...)
	return nil
}

// Sync implements zapcore.Core.
func (b bridge) Sync() error { return nil }
