package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/audit"
)

// auditServer is a daemon's API with an audit log of its own.
func auditServer(t *testing.T, log carrel.Audits) (*httptest.Server, carrel.Audits) {
	t.Helper()
	srv := httptest.NewServer(api.New(api.Options{Service: struct {
		*fake
		carrel.Audits
	}{&fake{}, log}, Callers: adminKey("k")}))
	t.Cleanup(srv.Close)
	svc, err := client.New(srv.URL, "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return srv, svc.(carrel.Audits)
}

func realLog(t *testing.T) *audit.Log {
	t.Helper()
	log, err := audit.Open(t.TempDir(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

func TestAudit(t *testing.T) {
	log := realLog(t)
	full := carrel.Decision{Time: box.Started, ID: box.ID, Process: "curl (pid 7)", Allowed: true, Protocol: "https", Name: "api.example.com",
		Address: "203.0.113.9", Port: 443, Method: "POST", Path: "/v1\x1b[2J\"\n", Status: 201, Rule: "rule 2 (api)", Reason: "r", Hint: "h",
		Secrets: []string{"key"}, Sent: 5, Received: 1 << 40, Duration: time.Minute, Repeats: 3}
	log.Write(full)
	for i := range 3 {
		log.Write(carrel.Decision{ID: carrel.NewID(), Rule: fmt.Sprint("default ", i)})
	}
	_, audits := auditServer(t, log)
	yes := true
	for _, opts := range []carrel.AuditOptions{
		{ID: box.ID}, {Allowed: &yes}, {Host: "*.example.com"}, {Host: "203.0.113.0/24"}, {Rule: "(api)"}, {Secret: "key"},
		{Until: box.Started.Add(1)}, {ID: box.ID, Since: box.Started, Limit: 1},
	} {
		var got []carrel.Decision
		for d, err := range audits.Audit(t.Context(), opts) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, d)
		}
		want := full
		want.Seq = 1
		if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%+v gives %+v", opts, got)
		}
	}
	n := 0
	for _, err := range audits.Audit(t.Context(), carrel.AuditOptions{After: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d after the second", n)
	}
	for _, err := range audits.Audit(t.Context(), carrel.AuditOptions{Host: "no host", Follow: true}) {
		var ce *carrel.Error
		if !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != "host" {
			t.Errorf("a bad question: %v", err)
		}
	}
}

// TestAuditIsTakenUpAgain breaks connections while decisions come. Each decision must come once.
func TestAuditIsTakenUpAgain(t *testing.T) {
	log := realLog(t)
	srv, audits := auditServer(t, log)
	log.Write(carrel.Decision{ID: box.ID, Rule: "1"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last int64
	for d, err := range audits.Audit(ctx, carrel.AuditOptions{Follow: true, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Seq != last+1 || d.Rule != fmt.Sprint(d.Seq) {
			t.Fatalf("%+v came after %d", d, last)
		}
		if last = d.Seq; last == 6 {
			break
		}
		if last%2 == 0 {
			srv.CloseClientConnections()
		}
		log.Write(carrel.Decision{ID: box.ID, Rule: fmt.Sprint(last + 1)})
	}
	if last != 6 {
		t.Errorf("ended after %d: %v", last, ctx.Err())
	}
}

// audits is an audit log that is a function.
type audits func(context.Context, carrel.AuditOptions, func(carrel.Decision, error) bool)

func (a audits) Audit(ctx context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	return func(yield func(carrel.Decision, error) bool) { a(ctx, opts, yield) }
}

// TestAuditThatBreaksOff shows that an incomplete answer is not taken for a complete one.
func TestAuditThatBreaksOff(t *testing.T) {
	var srv *httptest.Server
	broken := audits(func(_ context.Context, opts carrel.AuditOptions, yield func(carrel.Decision, error) bool) {
		for i := int64(1); opts.After == 0 && i < 3000 && yield(carrel.Decision{Seq: i}, nil); i++ {
			if i == 2999 {
				srv.CloseClientConnections()
			}
		}
	})
	var log carrel.Audits
	srv, log = auditServer(t, broken)
	var last error
	for _, err := range log.Audit(t.Context(), carrel.AuditOptions{}) {
		last = err
	}
	if carrel.KindOf(last) != carrel.Unavailable {
		t.Errorf("cut off: %v", last)
	}
	_, none := auditServer(t, carrel.NoAudits{})
	for _, err := range none.Audit(t.Context(), carrel.AuditOptions{Follow: true}) {
		last = err
	}
	if carrel.KindOf(last) != carrel.Unsupported {
		t.Errorf("without a log: %v", last)
	}
}
