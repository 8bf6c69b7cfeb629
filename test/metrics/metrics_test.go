// Package metrics holds the metrics of a real daemon (bin/carrel) against the dashboard for Grafana
// in dist/grafana, with a real Prometheus.
package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/metrics"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// observed is a daemon that something happened in.
type observed struct {
	*daemontest.Daemon
	open string // its address for scrapers without a key
}

// observe starts a daemon on a tier, and does things of all kinds with it.
func observe(t *testing.T, tier carrel.Tier, extra ...string) *observed {
	t.Helper()
	open := freeAddr(t)
	d := daemontest.Start(t, append([]string{"--default-tier", string(tier), "--metrics-listen", open,
		"--trail-syslog", "udp://127.0.0.1:9"}, extra...)...)
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	o := &observed{Daemon: d, open: "http://" + open}
	o.work(t, svc)
	return o
}

// work creates sandboxes, runs a command that is refused a connection, and pauses one of them.
func (o *observed) work(t *testing.T, svc carrel.Service) {
	t.Helper()
	ctx := t.Context()
	a, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(ctx, carrel.Command{Shell: "curl -s -m 5 http://192.0.2.1/"}); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Pause(ctx, b.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("E2b-Sandbox-Id", string(a.ID))
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("%v %v", resp, err)
	}
	_ = resp.Body.Close()
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v %s", resp.Status, err, body)
	}
	return string(body)
}

// notInSim are the metrics that a daemon has only with sandboxes of the tier gvisor.
var notInSim = []string{"carrel_pool_ready", "carrel_pool_making", "carrel_pool_target",
	"carrel_blank_sentries_ready", "carrel_blank_sentries_taken_total",
	"carrel_blank_sentries_missed_total", "carrel_blank_sentries_failed_total"}

// families are the metrics of a scrape, with their types.
func families(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			out[f[2]] = f[3]
		}
	}
	return out
}

// TestScrape holds the table of metrics, and so docs/metrics.md, to the scrape of a real daemon.
func TestScrape(t *testing.T) {
	o := observe(t, carrel.Sim)
	checkTable(t, families(get(t, o.open+"/metrics")), notInSim)
	checkNames(t, families(get(t, o.open+"/metrics")))
}

// checkTable compares a scrape with the table. Those in perhaps may be missing.
func checkTable(t *testing.T, got map[string]string, perhaps []string) {
	t.Helper()
	for _, f := range metrics.Families() {
		if got[f.Name] != string(f.Kind) && (got[f.Name] != "" || !slices.Contains(perhaps, f.Name)) {
			t.Errorf("%s is a %q, want a %s", f.Name, got[f.Name], f.Kind)
		}
		delete(got, f.Name)
	}
	for name := range got {
		if strings.HasPrefix(name, "carrel_") {
			t.Errorf("%s is in no table", name)
		}
	}
}

// panel is a part of the dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// dashboard reads the panels.
func dashboard(t *testing.T) []panel {
	t.Helper()
	raw, err := os.ReadFile("../../dist/grafana/carrel.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Panels []panel }
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d.Panels
}

// word is a name in an expression, outside of strings.
var word = regexp.MustCompile(`"[^"]*"|[a-z_]+`)

// checkNames shows that each metric of the dashboard exists, that the dashboard shows all of ours,
// and that each other name is a label of ours, or a word of the language.
func checkNames(t *testing.T, got map[string]string) {
	t.Helper()
	known, shown := map[string]bool{}, map[string]bool{}
	for _, f := range metrics.Families() {
		for _, l := range f.Labels {
			known[l] = true
		}
		known[f.Name], got[f.Name] = true, string(f.Kind)
	}
	for name, kind := range got {
		known[name] = true
		if kind == "histogram" {
			known[name+"_bucket"] = true
		}
	}
	for _, w := range strings.Fields("sum by rate increase topk histogram_quantile count max min time le job instance __rate_interval h") {
		known[w] = true
	}
	for _, p := range dashboard(t) {
		for _, q := range p.Targets {
			for _, w := range word.FindAllString(q.Expr, -1) {
				if !strings.HasPrefix(w, `"`) && !known[w] {
					t.Errorf("%s: %q is no name, in %s", p.Title, w, q.Expr)
				}
				shown[strings.TrimSuffix(w, "_bucket")] = true
			}
		}
	}
	for _, f := range metrics.Families() {
		if !shown[f.Name] {
			t.Errorf("the dashboard does not show %s", f.Name)
		}
	}
}

// prometheus is a Prometheus that scrapes a daemon.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus starts a real Prometheus. It scrapes with the key, and where no key is needed.
func startPrometheus(t *testing.T, dir string, o *observed) *prometheus {
	t.Helper()
	data := t.TempDir()
	config := filepath.Join(data, "prometheus.yml")
	scrape := func(job, address, more string) string {
		return fmt.Sprintf("  - job_name: %s\n    static_configs: [{targets: [%q]}]\n%s", job, strings.TrimPrefix(address, "http://"), more)
	}
	text := "global: {scrape_interval: 1s}\nscrape_configs:\n" + scrape("open", o.open, "") +
		scrape("keyed", o.URL, "    authorization: {credentials: "+o.Key+"}\n") + scrape("stranger", o.URL, "")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := freeAddr(t)
	cmd := exec.Command(filepath.Join(dir, "prometheus"), "--config.file", config, "--storage.tsdb.path", filepath.Join(data, "tsdb"),
		"--web.listen-address", listen, "--log.level", "warn")
	log, err := os.Create(filepath.Join(data, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if raw, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("Prometheus says:\n%s", raw)
		}
	})
	return &prometheus{t, "http://" + listen}
}

// ask evaluates an expression, and returns the number of series in the answer.
func (p *prometheus) ask(expr string) (int, error) {
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var a struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return 0, err
	}
	if a.Status != "success" {
		return 0, errors.New(a.Error)
	}
	return len(a.Data.Result), nil
}

// concrete fills in the variables that Grafana fills in.
var concrete = strings.NewReplacer("$__rate_interval", "30s", "$job", ".*", "$instance", ".*")

// mayBeEmpty is for expressions that have an answer only after what does not happen here.
func mayBeEmpty(expr string) bool {
	return strings.Contains(expr, "carrel_snapshot_limit_bytes") || strings.Contains(expr, `class="failed"`)
}

// TestPrometheus has a real Prometheus scrape a real daemon, and evaluates each expression of the
// dashboard there. CARREL_PROMETHEUS is the directory of its programs ("make metrics" fetches them).
func TestPrometheus(t *testing.T) {
	testenv.Long(t, "needs Prometheus, and real sandboxes")
	dir, err := filepath.Abs(os.Getenv("CARREL_PROMETHEUS"))
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "prometheus"))
	}
	testenv.Need(t, "prometheus", err)
	o := observe(t, carrel.GVisor, "--warm", "2", "--warm-floor", "base=1")
	text := get(t, o.open+"/metrics")
	check := exec.Command(filepath.Join(dir, "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	checkTable(t, families(text), nil)
	p := startPrometheus(t, dir, o)
	testenv.EventuallyNil(t, "Prometheus has two scrapes from each place", func() error {
		n, err := p.ask(`count_over_time(carrel_build_info[1m]) >= 2`)
		if err == nil && n != 2 {
			err = fmt.Errorf("%d places", n)
		}
		return err
	})
	if n, err := p.ask(`up{job="stranger"} == 0`); n != 1 || err != nil {
		t.Errorf("a scraper without a key: %d, %v", n, err)
	}
	count := 0
	for _, panel := range dashboard(t) {
		for _, q := range panel.Targets {
			count++
			n, err := p.ask(concrete.Replace(q.Expr))
			if err != nil || n == 0 && !mayBeEmpty(q.Expr) {
				t.Errorf("%s: %s has %d series: %v", panel.Title, q.Expr, n, err)
			}
		}
	}
	if count < 60 {
		t.Errorf("only %d expressions", count)
	}
}
