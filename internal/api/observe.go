package api

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// metricBody is E2B's SandboxMetric.
type metricBody struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

func toMetric(m carrel.Metric) metricBody {
	pct := m.CPUUsedPct
	if math.IsNaN(pct) || math.IsInf(pct, 0) {
		pct = 0
	}
	return metricBody{
		Timestamp: m.Time.UTC(), TimestampUnix: m.Time.Unix(), CPUCount: cpuCount(m.CPUCount), CPUUsedPct: pct,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}
}

// metricsBody is E2B's SandboxesWithMetrics.
type metricsBody struct {
	Sandboxes map[string]metricBody `json:"sandboxes"`
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	from, err := unixTime(r.URL.Query(), "start", time.Second)
	if err != nil {
		return err
	}
	to, err := unixTime(r.URL.Query(), "end", time.Second)
	if err != nil {
		return err
	}
	if !from.IsZero() && !to.IsZero() && from.After(to) {
		return invalid("start", "start time cannot be after end time")
	}
	samples, err := s.opts.Service.Metrics(r.Context(), id, from, to)
	if err != nil {
		return notFoundAs(id, err)
	}
	out := make([]metricBody, len(samples))
	for i, m := range samples {
		out[i] = toMetric(m)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// unixTime reads a query parameter in units since 1970.
func unixTime(q url.Values, name string, unit time.Duration) (time.Time, error) {
	v := q.Get(name)
	if v == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return time.Time{}, invalid(name, "%q is not a time as a whole number since 1970", clip(v))
	}
	return time.Unix(0, n*int64(unit)), nil
}

// metricsOfMany answers with the newest sample of each named sandbox. It leaves out sandboxes that
// do not exist.
func (s *Server) metricsOfMany(w http.ResponseWriter, r *http.Request) error {
	var ids []string
	for _, v := range r.URL.Query()["sandbox_ids"] {
		ids = append(ids, strings.Split(v, ",")...)
	}
	if len(ids) == 0 {
		return invalid("sandbox_ids", "missing")
	}
	if len(ids) > maxPage {
		return invalid("sandbox_ids", "Too many sandboxes requested, maximum is %d", maxPage)
	}
	out := map[string]metricBody{}
	for _, text := range ids {
		short, _, _ := strings.Cut(text, "-")
		id, err := carrel.ParseID(short)
		if err != nil {
			continue
		}
		samples, err := s.opts.Service.Metrics(r.Context(), id, time.Time{}, time.Time{})
		switch {
		case carrel.KindOf(err) == carrel.NotFound:
		case err != nil:
			return err
		case len(samples) > 0:
			out[text] = toMetric(samples[len(samples)-1])
		}
	}
	writeJSON(w, http.StatusOK, metricsBody{out})
	return nil
}

// logBody is E2B's SandboxLogEntry.
type logBody struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

func toLog(e carrel.LogEntry) logBody {
	b := logBody{Timestamp: e.Time.UTC(), Level: e.Level, Message: e.Message, Fields: e.Fields}
	if b.Fields == nil {
		b.Fields = map[string]string{}
	}
	if !slices.Contains(logLevels, b.Level) {
		b.Level = "info"
	}
	return b
}

// line returns the entry as one line, which E2B's CLI reads as JSON.
func (b logBody) line() string {
	all := maps.Clone(b.Fields)
	if all == nil {
		all = map[string]string{}
	}
	all["level"], all["message"] = b.Level, b.Message
	raw, _ := json.Marshal(all) // texts always marshal
	return string(raw)
}

// logLevels are E2B's levels, the least important first.
var logLevels = []string{"debug", "info", "warn", "error"}

const maxLogs = 1000

func logLimit(q url.Values) (int, error) {
	v := q.Get("limit")
	if v == "" {
		return maxLogs, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, invalid("limit", "%q is not a whole number", clip(v))
	}
	if n == 0 || n > maxLogs {
		n = maxLogs
	}
	return n, nil
}

// logLine is E2B's SandboxLog.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

// logsBody is E2B's SandboxLogs.
type logsBody struct {
	Logs       []logLine `json:"logs"`
	LogEntries []logBody `json:"logEntries"`
}

// logsBodyV2 is E2B's SandboxLogsV2Response.
type logsBodyV2 struct {
	Logs []logBody `json:"logs"`
}

func (s *Server) logsV1(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	opts := carrel.LogOptions{}
	if opts.Limit, err = logLimit(q); err != nil {
		return err
	}
	if opts.Since, err = unixTime(q, "start", time.Millisecond); err != nil {
		return err
	}
	entries, err := s.opts.Service.Logs(r.Context(), id, opts)
	if err != nil {
		return notFoundAs(id, err)
	}
	out := logsBody{[]logLine{}, []logBody{}}
	for _, e := range entries {
		entry := toLog(e)
		out.Logs = append(out.Logs, logLine{entry.Timestamp, entry.line()})
		out.LogEntries = append(out.LogEntries, entry)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// logsV2 reads the log from a cursor, forward or backward.
func (s *Server) logsV2(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	limit, err := logLimit(q)
	if err != nil {
		return err
	}
	cursor, err := unixTime(q, "cursor", time.Millisecond)
	if err != nil {
		return err
	}
	least := slices.Index(logLevels, q.Get("level"))
	if q.Get("level") != "" && least < 0 {
		return invalid("level", "%q is none of debug, info, warn, error", clip(q.Get("level")))
	}
	// The filters are applied here, so request more than the answer needs.
	opts := carrel.LogOptions{Limit: carrel.MaxLogs}
	switch q.Get("direction") {
	case "", "forward":
		opts.Since = cursor
	case "backward":
		opts.NewestFirst, opts.Until = true, cursor
	default:
		return invalid("direction", "%q is neither forward nor backward", clip(q.Get("direction")))
	}
	entries, err := s.opts.Service.Logs(r.Context(), id, opts)
	if err != nil {
		return notFoundAs(id, err)
	}
	out := []logBody{}
	for _, e := range entries {
		b := toLog(e)
		if slices.Index(logLevels, b.Level) < least || !strings.Contains(b.Message, q.Get("search")) {
			continue
		}
		if out = append(out, b); len(out) == limit {
			break
		}
	}
	writeJSON(w, http.StatusOK, logsBodyV2{out})
	return nil
}
