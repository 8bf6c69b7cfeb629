package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ledger"
	"github.com/carrel-dev/carrel/internal/state"
)

const priceList = `
currency: EUR
rates:
  vcpu-hour: 0.05
  memory-gib-hour: 0.01
  cpu-hour: 0.000001
  egress-gb: 0.09
  snapshot-gb-month: 0.1
tiers:
  sim: {vcpu-hour: 0.10}
`

// TestPriceFile prices a sandbox and a snapshot whose costs are easy to compute by hand.
func TestPriceFile(t *testing.T) {
	prices, err := ledger.ParsePrices([]byte(priceList))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.opts.Prices = prices
	w.start()
	a := w.create("red", nil) // 1.5 vCPUs in tier sim
	rec := w.recs[a]
	rec.Sandbox.ID, rec.Sandbox.Tier = carrel.NewID(), carrel.GVisor // and one of 512 MiB more
	w.put(rec)
	w.set(rec, carrel.Running)
	sn := state.SnapshotRecord{Snapshot: carrel.Snapshot{ID: carrel.NewSnapshotID(), Project: "red", Tier: carrel.GVisor,
		Size: 1_000_000_000, Created: w.now.Wall}}
	if err := w.records.Apply(t.Context(), state.Change{PutSnapshots: []state.SnapshotRecord{sn}}); err != nil {
		t.Fatal(err)
	}
	w.sleep(10 * time.Hour)
	w.Sample(rec.Sandbox.ID, state.Reading{CPU: 5 * time.Hour, Sent: 2_000_000_000})
	r := w.usage(carrel.UsageOptions{By: []string{"kind", "tier"}})
	got := map[string]string{}
	for _, row := range r.Rows {
		got[strings.Join(row.Group, " ")] = row.Cost.String()
	}
	for group, want := range map[string]string{
		"run sim":                 "1.5",      // 1.5 × 10 × 0.1
		"run gvisor":              "0.980005", // 1.5 × 10 × 0.05 + 0.5 × 10 × 0.01 + 5 × 0.000001 + 2 × 0.09
		"snapshot-storage gvisor": "0.00137",  // 10 / 730 × 0.1
	} {
		if got[group] != want {
			t.Errorf("%s costs %s, want %s", group, got[group], want)
		}
	}
	if r.Currency != "EUR" || r.Total.Cost.String() != "2.481375" {
		t.Errorf("total %s %s", r.Total.Cost, r.Currency)
	}
}

// TestBadPriceFiles names the field of each mistake.
func TestBadPriceFiles(t *testing.T) {
	for text, field := range map[string]string{
		"":                                       "",
		"[]":                                     "",
		"currency: EUR":                          "rates",
		"rates: {}":                              "currency",
		"currency: {}\nrates: {}":                "currency",
		"currency: '=cmd'\nrates: {}":            "currency",
		"currency: EUR\nrates: 5":                "rates",
		"currency: EUR\nrates: {vcpu-hour: a}":   "rates.vcpu-hour",
		"currency: EUR\nrates: {vcpu-hour: -1}":  "rates.vcpu-hour",
		"currency: EUR\nrates: {vcpu-hour: 1e3}": "rates.vcpu-hour",
		"currency: EUR\nrates: {vcpu-hour: 0.0000001}":         "rates.vcpu-hour",
		"currency: EUR\nrates: {vcpu-hour: 99999999999999999}": "rates.vcpu-hour",
		"currency: EUR\nrates: {vcpu-hour: .inf}":              "rates.vcpu-hour",
		"currency: EUR\nrates: {vcpu-hours: 1}":                "rates.vcpu-hours",
		"currency: EUR\nrates: {}\ntiers: {moon: {}}":          "tiers.moon",
		"currency: EUR\nrates: {}\nrates: {}":                  "rates",
		"currency: EUR\nrates: {}\npool: 3":                    "pool",
		"currency: EUR\nrates: {}\ncolour: 3":                  "colour",
	} {
		_, err := ledger.ParsePrices([]byte(text))
		if ce, ok := errors.AsType[*carrel.Error](err); !ok || ce.Kind != carrel.Invalid || ce.Field != field {
			t.Errorf("%q: %v, want field %q", text, err, field)
		}
	}
	if _, err := ledger.ParsePrices([]byte("currency: " + strings.Repeat("x", 2<<20))); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a huge file: %v", err)
	}
	if _, err := ledger.LoadPrices(t.TempDir() + "/none"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a missing file: %v", err)
	}
}
