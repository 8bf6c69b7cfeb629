package carrel_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestDecimals writes and reads exact decimals.
func TestDecimals(t *testing.T) {
	for n, want := range map[carrel.Micro]string{0: "0", 1: "0.000001", 1_500_000: "1.5", -1: "-0.000001",
		-2_000_000: "-2", math.MaxInt64: "9223372036854.775807", 1_000_001: "1.000001"} {
		text, err := json.Marshal(n)
		var back carrel.Micro
		if err != nil || string(text) != want || json.Unmarshal(text, &back) != nil || back != n {
			t.Errorf("%d: %s, back %d, %v", n, text, back, err)
		}
	}
	if text, _ := json.Marshal(carrel.Milli(1234)); string(text) != "1.234" {
		t.Errorf("%s", text)
	}
	for _, text := range []string{"", ".", "1.", ".5", "1e3", "0.0000001", "9223372036854.775808", "--1", "1_0", "NaN", "0x1", "+1", "1.2.3"} {
		if n, err := carrel.ParseMicro(text); err == nil {
			t.Errorf("%q is %s", text, n)
		}
	}
}

// TestUsageTotalsStop adds up to the largest number, and no further.
func TestUsageTotalsStop(t *testing.T) {
	sum := carrel.UsageTotals{BytesOut: math.MaxInt64 - 1, AliveSeconds: 5}
	sum.Add(carrel.UsageTotals{BytesOut: 2, AliveSeconds: math.MaxInt64})
	if sum.BytesOut != math.MaxInt64 || sum.AliveSeconds != math.MaxInt64 {
		t.Errorf("%+v", sum)
	}
}

// TestUsageCSV writes labels that would be formulas, or more lines, in a spreadsheet.
func TestUsageCSV(t *testing.T) {
	labels := map[string]string{
		"=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)",
		"\t=1": "'\t=1", " =1": "' =1", "a,\"b\"\nc": "a,\"b\"\nc", "plain": "plain", "": "", "日本": "日本",
		"＝1": "'＝1", "x\x00y": "xy",
	}
	cost := carrel.Micro(1_250_000)
	for label, want := range labels {
		var text bytes.Buffer
		err := carrel.WriteUsageCSV(&text, carrel.UsageReport{By: []string{"label:=1", "project"}, Currency: "EUR",
			Rows: []carrel.UsageRow{{Group: []string{label, "red"}, UsageTotals: carrel.UsageTotals{AliveSeconds: 1500, Cost: &cost}}}})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&text).ReadAll()
		if err != nil || len(rows) != 2 || len(rows[0]) != len(rows[1]) {
			t.Fatalf("%q: %v %v", label, rows, err)
		}
		if !reflect.DeepEqual(rows[1][:3], []string{want, "red", "1.5"}) || rows[1][len(rows[1])-1] != "1.25" ||
			!strings.HasPrefix(rows[0][len(rows[0])-1], "cost_EUR") {
			t.Errorf("%q: %q", label, rows)
		}
	}
}
