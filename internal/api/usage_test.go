package api

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// metered is a fake service with a ledger that remembers the question.
type metered struct {
	*fake
	asked carrel.UsageOptions
}

func (m *metered) Usage(_ context.Context, o carrel.UsageOptions) (carrel.UsageReport, error) {
	m.asked = o
	return carrel.UsageReport{By: o.By, Rows: []carrel.UsageRow{{Group: []string{"=cmd", "x"}}}}, nil
}

// TestUsage asks about usage in both formats, and with mistakes.
func TestUsage(t *testing.T) {
	m := &metered{fake: newFake()}
	srv := start(t, newFake(), func(o *Options) { o.Service = m })
	const query = "/carrel/v1/usage?by=label:task,project&from=2026-03-01T00:00:00Z&to=2026-03-02T00:00:00Z&project=red&sandbox=" + boxID
	resp, body := call(t, srv, "GET", query, "")
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	want := carrel.UsageOptions{By: []string{"label:task", "project"}, From: day, To: day.AddDate(0, 0, 1), Project: "red", Sandbox: boxID}
	if resp.StatusCode != http.StatusOK || !reflect.DeepEqual(m.asked, want) || !strings.Contains(string(body), `"aliveSeconds":0`) {
		t.Errorf("%d %s, asked %+v", resp.StatusCode, body, m.asked)
	}
	resp, body = call(t, srv, "GET", query+"&format=csv", "")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/csv") ||
		!strings.HasPrefix(string(body), "label:task,project,alive_seconds") || !strings.Contains(string(body), "\n'=cmd,x,0,") {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	for query, field := range map[string]string{"format=xml": "format", "from=yesterday": "from", "to=1": "to",
		"sandbox=x": "sandbox", "colour=1": "colour", "by=day&by=key": "by"} {
		if resp, body := call(t, srv, "GET", "/carrel/v1/usage?"+query, ""); resp.StatusCode != http.StatusBadRequest ||
			!strings.Contains(string(body), `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}
