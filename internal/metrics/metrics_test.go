package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape reads all figures as Prometheus would.
func scrape(t testing.TB, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	p := expfmt.NewTextParser(model.UTF8Validation)
	got, err := p.TextToMetricFamilies(bytes.NewReader(w.Body.Bytes()))
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v:\n%s", w.Code, err, w.Body)
	}
	return got
}

// TestNames holds names to Prometheus' conventions.
func TestNames(t *testing.T) {
	form := regexp.MustCompile(`^carrel_[a-z]+(_[a-z]+)*$`)
	for _, f := range Families() {
		if !form.MatchString(f.Name) || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: %q", f.Name, f.Help)
		}
		if strings.HasSuffix(f.Name, "_total") != (f.Kind == Counter) {
			t.Errorf("%s is a %s", f.Name, f.Kind)
		}
		if f.Kind == Histogram && !strings.HasSuffix(f.Name, "_seconds") {
			t.Errorf("%s has no unit", f.Name)
		}
		for _, l := range f.Labels {
			if !regexp.MustCompile(`^[a-z]+$`).MatchString(l) || l == "le" || l == "job" || l == "instance" {
				t.Errorf("%s: label %q", f.Name, l)
			}
		}
	}
}

// docsRow is a line of the table in docs/metrics.md.
var docsRow = regexp.MustCompile("(?m)^\\| `(carrel_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| ([^|]+) \\|$")

// TestDocumented holds docs/metrics.md to the table of families.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range docsRow.FindAllStringSubmatch(string(page), -1) {
		if rows[m[1]] != "" {
			t.Errorf("%s has two lines", m[1])
		}
		rows[m[1]] = m[0]
	}
	for _, f := range Families() {
		labels := ""
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "`, `") + "`"
		}
		want := fmt.Sprintf("| `%s` | %s | %s | %s |", f.Name, f.Kind, labels, f.Help)
		if rows[f.Name] != want {
			t.Errorf("docs/metrics.md has %q,\nwant %q", rows[f.Name], want)
		}
		delete(rows, f.Name)
	}
	if len(rows) > 0 {
		t.Errorf("there are no metrics %v", slices.Collect(maps.Keys(rows)))
	}
	if !strings.Contains(string(page), fmt.Sprintf("the %d largest", MostNames)) {
		t.Error("docs/metrics.md does not say how many names are shown")
	}
}

// TestHostileLabels gives names that would end a label, a line or the whole text.
func TestHostileLabels(t *testing.T) {
	names := []string{`a"} 1` + "\ncarrel_build_info{version=\"evil\"} 2\n#", `\`, "x\xff\xfey", "\x00\x1b[2J", "{}", "", "é",
		strings.Repeat("long", 1000), "a\r\nb", "# HELP carrel_projects no"}
	m := New("v1")
	m.Read(func(s *Scrape) {
		for i, n := range names {
			s.Put(PoolReady, float64(i), n, "sim")
		}
	})
	got := scrape(t, m)
	if n := len(got["carrel_build_info"].GetMetric()); n != 1 {
		t.Errorf("%d builds", n)
	}
	seen := got["carrel_pool_ready"].GetMetric()
	if len(seen) != len(names) {
		t.Fatalf("%d of %d names arrive", len(seen), len(names))
	}
	for _, s := range seen {
		want := label(names[int(s.GetGauge().GetValue())])
		for _, l := range s.GetLabel() {
			if l.GetName() == "template" && l.GetValue() != want || len(l.GetValue()) > maxLabel {
				t.Errorf("%q became %q", want, l.GetValue())
			}
		}
	}
}

// TestLargest gives far more names than are shown, and one that is called like the rest.
func TestLargest(t *testing.T) {
	weights := map[string]float64{Other: 1e9}
	for i := range 10000 {
		weights[fmt.Sprint("p", i)] = float64(i)
	}
	name := Largest(weights)
	sums, total := NewSums[string](), 0.0
	for n, w := range weights {
		sums.Add(name(n), w)
		total += w
	}
	count, all := 0, 0.0
	sums.Each(func(n string, w float64) { count++; all += w })
	if count != MostNames || all != total {
		t.Errorf("%d names with %g, want %d with %g", count, all, MostNames, total)
	}
	if name("p9999") != "p9999" || name("p0") != Other || name("never seen") != Other {
		t.Error("not the largest")
	}
}

// TestRequests counts requests of each class, and more routes than a door has.
func TestRequests(t *testing.T) {
	m := New("v1")
	q := m.Requests(APIRequests, APIDuration, func(route string) string { return "op:" + route })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, status := range []int{200, 101, 304, 400, 401, 403, 404, 429, StatusLeft, 500, 503} {
				q.Served("a", status, 30*time.Millisecond)
			}
		})
	}
	all.Wait()
	for i := range 3 * maxRows {
		q.Served(fmt.Sprint("route ", i), 200, time.Second)
	}
	got := scrape(t, m)
	classes := map[string]float64{}
	ops := map[string]bool{}
	for _, s := range got["carrel_api_requests_total"].GetMetric() {
		l := map[string]string{}
		for _, p := range s.GetLabel() {
			l[p.GetName()] = p.GetValue()
		}
		ops[l["operation"]] = true
		if l["operation"] == "op:a" {
			classes[l["class"]] = s.GetCounter().GetValue()
		}
	}
	want := map[string]float64{ClassOK: 24, ClassInvalid: 16, ClassDenied: 16, ClassLimited: 8, ClassLeft: 8, ClassFailed: 16}
	if !maps.Equal(classes, want) {
		t.Errorf("%v, want %v", classes, want)
	}
	if len(ops) != maxRows+1 || !ops[Other] {
		t.Errorf("%d operations", len(ops))
	}
	for _, s := range got["carrel_api_request_duration_seconds"].GetMetric() {
		if s.GetLabel()[0].GetValue() == "op:a" {
			if h := s.GetHistogram(); h.GetSampleCount() != 80 || math.Abs(h.GetSampleSum()-2.4) > 1e-9 || h.GetBucket()[4].GetCumulativeCount() != 0 ||
				h.GetBucket()[5].GetCumulativeCount() != 80 {
				t.Errorf("%v", h)
			}
		}
	}
}

// TestHistogramOfAPart gives a histogram that a part counted for itself.
func TestHistogramOfAPart(t *testing.T) {
	m := New("v1")
	counts := make([]uint64, len(Buckets())+1)
	counts[0], counts[3], counts[len(counts)-1] = 5, 2, 1
	m.Read(func(s *Scrape) { s.PutHistogram(GateWaited, counts, 100, "create") })
	h := scrape(t, m)["carrel_gate_wait_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 8 || h.GetSampleSum() != 100 || h.GetBucket()[2].GetCumulativeCount() != 5 || h.GetBucket()[3].GetCumulativeCount() != 7 {
		t.Errorf("%v", h)
	}
}

// BenchmarkServed is what one request pays for being counted.
func BenchmarkServed(b *testing.B) {
	q := New("v1").Requests(APIRequests, APIDuration, func(r string) string { return r })
	b.ReportAllocs()
	for b.Loop() {
		q.Served("GET /carrel/v1/sandboxes/{id}", 200, 3*time.Millisecond)
	}
}
