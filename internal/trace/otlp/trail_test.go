package otlp

import (
	"context"
	"errors"
	"testing"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carrel-dev/carrel"
)

// collector keeps what it is sent, unless it is away.
type collector struct {
	away bool
	got  []sdklog.Record
}

func (c *collector) Export(_ context.Context, records []sdklog.Record) error {
	if c.away {
		return errors.New("away")
	}
	for _, r := range records {
		c.got = append(c.got, r.Clone())
	}
	return nil
}
func (*collector) Shutdown(context.Context) error   { return nil }
func (*collector) ForceFlush(context.Context) error { return nil }

// TestTrail sends records while the collector is away, and again.
func TestTrail(t *testing.T) {
	to := &collector{away: true}
	s := newTrail(to, "v1")
	records := []carrel.TrailRecord{
		{Seq: 1, Time: time.Unix(1, 0), Kind: carrel.TrailChange, Key: "ci", Op: "POST /sandboxes", Line: []byte(`{"seq":1}`)},
		{Seq: 2, Time: time.Unix(2, 0), Kind: carrel.TrailRefuse, Line: []byte(`{"seq":2}`)},
	}
	if err := s.Send(t.Context(), records); err == nil {
		t.Error("no error although the collector is away")
	}
	to.away = false
	if err := errors.Join(s.Send(t.Context(), records), s.Close()); err != nil {
		t.Fatal(err)
	}
	if len(to.got) != 2 || to.got[0].Body().AsString() != `{"seq":1}` || to.got[0].EventName() != "carrel.audit.change" ||
		!to.got[0].Timestamp().Equal(time.Unix(1, 0)) || to.got[1].Severity() <= to.got[0].Severity() {
		t.Errorf("%+v", to.got)
	}
}
