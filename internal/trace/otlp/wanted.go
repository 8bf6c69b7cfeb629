package otlp

import (
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Signal is a kind of what is sent.
type Signal string

// The signals.
const (
	SignalTraces  Signal = "TRACES"
	SignalMetrics Signal = "METRICS"
	SignalLogs    Signal = "LOGS"
)

// Wanted reports whether the environment names a collector for a signal: by
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_<signal>_ENDPOINT. OTEL_<signal>_EXPORTER=none
// turns one signal off, and OTEL_SDK_DISABLED=true all of them.
func Wanted(s Signal) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_"+string(s)+"_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT") != ""
}

// unusable is the error for a collector that can't be used.
func unusable(op string, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Err: err,
		Hint: "see OTEL_EXPORTER_OTLP_ENDPOINT and its like in the daemon's environment"}
}

// maxText bounds the bytes of a text that is sent.
const maxText = 4096

// text makes a text fit to be sent. One that is not UTF-8 would make the whole batch invalid.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
