package daemon

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/metrics"
)

// ask sends a request with some headers, and returns the answer.
func ask(t testing.TB, method, url string, headers ...string) (int, string) {
	t.Helper()
	return send(t, method, url, "", headers...)
}

// series are the samples of a scrape: the sum of each metric, by name and by its labels in order.
func series(t testing.TB, text string) (map[string]*dto.MetricFamily, func(name string, labels ...string) float64) {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	got, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return got, func(name string, labels ...string) (sum float64) {
		for _, m := range got[name].GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			fits := true
			for i := 0; i < len(labels); i += 2 {
				fits = fits && has[labels[i]] == labels[i+1]
			}
			if fits {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum
	}
}

// noWire are the metrics that a daemon without a wire, a pool of its tier, blank kernels and
// destinations of the trail does not have.
var noWire = map[string]bool{"carrel_blank_sentries_ready": true, "carrel_blank_sentries_taken_total": true,
	"carrel_blank_sentries_missed_total": true, "carrel_blank_sentries_failed_total": true,
	"carrel_pool_ready": true, "carrel_pool_making": true, "carrel_pool_target": true,
	"carrel_trail_unsent_records": true, "carrel_wire_links": true, "carrel_wire_connections": true,
	"carrel_wire_bytes_total": true, "carrel_wire_decisions_total": true}

// TestMetrics does things, and reads what a scraper is told of them.
func TestMetrics(t *testing.T) {
	d, svc := simulated(t)
	ctx := t.Context()
	people := svc.(*client.Client).People()
	if _, err := people.CreateProject(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	key, err := people.CreateKey(ctx, carrel.NewKey{Name: "k", Project: "web", Scope: carrel.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	web, err := client.New(d.URL(), key.Secret)
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	sb, err := web.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := web.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(ctx, carrel.Command{Shell: "true"}); err != nil {
		t.Fatal(err)
	}
	other, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Pause(ctx, other.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := web.Get(ctx, carrel.NewID()); carrel.KindOf(err) != carrel.NotFound {
		t.Error(err)
	}
	if status, _ := ask(t, http.MethodGet, d.URL()+"/health", "E2b-Sandbox-Id", string(sb.ID)); status != http.StatusNoContent {
		t.Errorf("health: %d", status)
	}
	if status, _ := ask(t, http.MethodGet, d.URL()+"/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", status)
	}
	if status, _ := ask(t, http.MethodGet, d.URL()+"/metrics", "X-API-Key", key.Secret); status != http.StatusForbidden {
		t.Errorf("a project's key: %d", status)
	}
	if status, _ := ask(t, http.MethodGet, d.URL()+"/metrics", "X-API-Key", d.Key(), "Carrel-Tenant", "web"); status != http.StatusForbidden {
		t.Errorf("for a project: %d", status)
	}
	status, text := ask(t, http.MethodGet, d.URL()+"/metrics", "Authorization", "Bearer "+d.Key())
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, text)
	}
	got, value := series(t, text)
	known := map[string]bool{}
	for _, f := range metrics.Families() {
		known[f.Name] = true
		if (got[f.Name] == nil) != noWire[f.Name] {
			t.Errorf("%s: there is %v", f.Name, got[f.Name])
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "carrel_") && !known[name] {
			t.Errorf("%s is in no table", name)
		}
	}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{1, "carrel_sandboxes", []string{"state", "running", "tier", "sim"}},
		{1, "carrel_sandboxes", []string{"state", "paused"}},
		{1, "carrel_project_sandboxes", []string{"project", "web", "state", "running"}},
		{2, "carrel_projects", nil},
		{1, "carrel_api_requests_total", []string{"operation", "postCarrelV1Sandboxes", "class", "ok", "class", "ok"}},
		{1, "carrel_api_requests_total", []string{"operation", "getMetrics", "class", "denied"}},
		{1, "carrel_api_requests_total", []string{"class", "invalid"}},
		{1, "carrel_gateway_requests_total", []string{"call", "health", "class", "ok"}},
		{1, "carrel_gateway_request_duration_seconds", []string{"call", "health"}},
		{2, "carrel_operations_total", []string{"operation", "create", "outcome", "ok"}},
		{1, "carrel_operation_duration_seconds", []string{"operation", "pause"}},
		{1, "carrel_snapshots", nil},
		{1, "carrel_build_info", nil},
	} {
		if got := value(c.name, c.labels...); got < c.want || got > 2*c.want+1 {
			t.Errorf("%s%v is %g, want about %g", c.name, c.labels, got, c.want)
		}
	}
	for _, name := range []string{"go_goroutines", "process_open_fds", "carrel_trail_records_total", "carrel_gate_wait_seconds", "carrel_project_memory_bytes"} {
		if value(name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
}

// TestNoSeriesOfAClientsChoice sends paths, methods, calls and ports that nobody has. The number of
// series must stay as it is.
func TestNoSeriesOfAClientsChoice(t *testing.T) {
	d, svc := simulated(t)
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	strangers := func(n int) {
		for i := range n {
			path := fmt.Sprintf("/nothing-%d", i)
			key, id := []string{"X-API-Key", d.Key()}, []string{"E2b-Sandbox-Id", string(sb.ID)}
			ask(t, "GET", d.URL()+path)
			ask(t, "GET", d.URL()+path, key...)
			ask(t, fmt.Sprint("BREW", i), d.URL()+path, key...)
			ask(t, fmt.Sprint("BREW", i), d.URL()+"/sandboxes", key...)
			ask(t, fmt.Sprint("BREW", i), d.URL()+"/carrel/v1/login", key...)
			ask(t, fmt.Sprint("BREW", i), d.URL()+"/healthz")
			ask(t, fmt.Sprint("BREW", i), d.URL()+"/sandboxes/"+fmt.Sprint(i), key...)
			ask(t, "PUT", d.URL()+"/carrel/v1/upload/"+fmt.Sprint(i), key...)
			ask(t, "GET", d.URL()+"/process.Process"+path, id...)
			ask(t, fmt.Sprint("BREW", i), d.URL()+"/files", id...)
			ask(t, "GET", d.URL()+"/", append(id, "E2b-Sandbox-Port", fmt.Sprint(2000+i))...)
			ask(t, "GET", d.URL()+"/", "E2b-Sandbox-Id", "x", "E2b-Sandbox-Port", fmt.Sprint(i))
			ask(t, "GET", d.URL()+"/", "Host", fmt.Sprintf("%d-%s.example.com", 3000+i, sb.ID))
		}
	}
	count := func() (n int) {
		_, text := ask(t, http.MethodGet, d.URL()+"/metrics", "X-API-Key", d.Key())
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "carrel_api_") || strings.HasPrefix(line, "carrel_gateway_") {
				n++
				if strings.Contains(line, "BREW") || strings.Contains(line, "nothing") || strings.Contains(line, string(sb.ID)) {
					t.Errorf("a client chose %q", line)
				}
			}
		}
		return n
	}
	count()
	strangers(1)
	before := count()
	strangers(5)
	if after := count(); after != before {
		t.Errorf("%d series, %d before", after, before)
	}
}

// TestMetricsListen reads the metrics where they need no key.
func TestMetricsListen(t *testing.T) {
	cfg := testConfig(t)
	cfg.MetricsListen = "127.0.0.1:0"
	d := run(t, cfg, Options{Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true})
	addr := d.figures.listener.Addr().String()
	url := "http://" + addr
	if status, text := ask(t, "GET", url+"/metrics"); status != 200 || !strings.Contains(text, "\ncarrel_build_info{") {
		t.Errorf("%d %s", status, text)
	}
	_, port, _ := strings.Cut(addr, ":")
	for _, c := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/metrics", "localhost:" + port, 200},
		{"GET", "/metrics", "[::1]:" + port, 200},
		{"HEAD", "/metrics", "", 200},
		{"GET", "/metrics", "rebound.example.com", 421}, // a page in a browser
		{"GET", "/metrics", "192.0.2.1", 421},
		{"POST", "/metrics", "", 405},
		{"GET", "/", "", 404},
		{"GET", "/sandboxes", "", 404},
		{"GET", "/carrel/v1/metrics", "", 404},
		{"GET", "/debug/pprof/heap", "", 404},
	} {
		var headers []string
		if c.host != "" {
			headers = []string{"Host", c.host}
		}
		if status, text := ask(t, c.method, url+c.path, headers...); status != c.status {
			t.Errorf("%s %s for %q: %d %s", c.method, c.path, c.host, status, text)
		}
	}
	if !d.own.has(d.figures.listener.Addr().(*net.TCPAddr).AddrPort().Port()) {
		t.Error("a sandbox could reach it as a service of this machine")
	}
	cfg = testConfig(t)
	cfg.MetricsListen = addr
	if _, err := New(t.Context(), cfg, Options{Drivers: []driver.Driver{sim.New(sim.Options{})}}); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("a taken address: %v", err)
	}
}

// BenchmarkScrape is one scrape of a daemon with 2,000 sandboxes in 100 projects.
func BenchmarkScrape(b *testing.B) {
	d := crowded(b, 2000)
	h := d.figures.all.Handler()
	b.ReportAllocs()
	var size int
	began := processorTime()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		size = w.Body.Len()
	}
	b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(size), "bytes")
}
