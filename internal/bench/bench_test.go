package bench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func TestMain(m *testing.M) {
	if reexec.Run(Parts()) {
		return
	}
	os.Exit(m.Run())
}

// around makes samples spread evenly around a middle, by a tenth of it.
func around(middle float64, n int, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 1))
	s := make([]float64, n)
	for i := range s {
		s[i] = middle * (0.9 + 0.2*random.Float64())
	}
	return s
}

func TestSummarise(t *testing.T) {
	var s []float64
	for i := range 1000 {
		s = append(s, float64((i*7919)%1000)) // 0 to 999, not in order
	}
	r := summarise("x", "ms", s)
	if r.Median != 500 || r.P95 != 950 || r.P99 != 990 || r.Samples != 1000 {
		t.Errorf("%+v", r)
	}
	if len(r.Values) == 0 || len(r.Values) > mostValues {
		t.Errorf("%d values are kept, at most %d may be", len(r.Values), mostValues)
	}
	up := more("x", "MB/s", s, 400)
	if up.P95 > 60 || up.P99 > 20 || !up.Met || !up.More {
		t.Errorf("a rate's bad end is the low one: %+v", up)
	}
	if r := fewer("x", "ms", s, 499); r.Met || r.Target != "≤ 499" {
		t.Errorf("%+v", r)
	}
	if r := summarise("x", "ms", nil); r.Samples != 0 || r.Median != 0 {
		t.Errorf("of no samples: %+v", r)
	}
}

// TestRaceTakesTurns shows that each side begins as often as the others, and that the warm-up does
// not count.
func TestRaceTakesTurns(t *testing.T) {
	var order strings.Builder
	side := func(name string, every int) *runner {
		return &runner{name: name, every: every, once: func(context.Context) (time.Duration, error) {
			order.WriteString(name)
			return time.Millisecond, nil
		}}
	}
	a, b, c := side("a", 0), side("b", 0), side("c", 2)
	if err := race(t.Context(), 1, 4, a, b, c); err != nil {
		t.Fatal(err)
	}
	if order.String() != "abc"+"ba"+"cab"+"ab"+"bca" {
		t.Errorf("the order was %s", order.String())
	}
	if len(a.times) != 4 || len(b.times) != 4 || len(c.times) != 2 {
		t.Errorf("samples: %d %d %d", len(a.times), len(b.times), len(c.times))
	}
	broken := &runner{name: "broken", once: func(context.Context) (time.Duration, error) { return 0, errors.New("no") }}
	if err := race(t.Context(), 0, 1, a, broken); err == nil || !strings.Contains(err.Error(), "broken: no") {
		t.Errorf("the error is %v", err)
	}
}

// TestChanges compares two runs with known changes.
func TestChanges(t *testing.T) {
	run := func(scale float64, seed uint64) *results {
		return &results{Machine: machine{CPU: "c", Cores: 2}, Rows: []row{
			summarise("same", "ms", around(10, 60, seed)).key("same"),
			summarise("slower", "ms", around(10*scale, 60, seed+1)).key("slower"),
			more("rate", "MB/s", around(100*scale, 60, seed+2), 1).key("rate"),
			single("once", "MiB", 10*scale),
			summarise("no key", "ms", around(10/scale, 60, seed+3)),
		}}
	}
	got := map[string]string{}
	for _, c := range changes(run(1, 1), run(1.3, 100)) {
		got[c.now.Name] = c.verdict
	}
	for name, want := range map[string]string{"same": "", "slower": "worse", "rate": "better", "once": "one sample", "no key": "better"} {
		if verdict, ok := got[name]; !ok || verdict != want {
			t.Errorf("%s: %q, want %q", name, verdict, want)
		}
	}
	var out bytes.Buffer
	other := run(1, 1)
	other.Machine.CPU = "another"
	printChanges(&out, other, run(1, 2))
	if !strings.Contains(out.String(), "different machines") {
		t.Errorf("nothing says that the machines differ:\n%s", out.String())
	}
}

// TestChangesByChance compares many pairs of runs without a change. With 95 % of the draws and the
// least change required on top, almost none may be called a change.
func TestChangesByChance(t *testing.T) {
	called := 0
	for i := range uint64(200) {
		old := &results{Rows: []row{summarise("x", "ms", around(10, 30, 2*i)).key("x")}}
		now := &results{Rows: []row{summarise("x", "ms", around(10, 30, 2*i+1)).key("x")}}
		if changes(old, now)[0].verdict != "" {
			called++
		}
	}
	if called > 10 {
		t.Errorf("%d of 200 comparisons of the same thing are called a change", called)
	}
}

// TestResultsFile writes results and reads them again. It also reads the form of earlier versions.
func TestResultsFile(t *testing.T) {
	r := &results{Machine: machine{CPU: "c", Cores: 2, LoadBefore: 1.5}, Points: []point{{"s", 1, 2}},
		Rows: []row{fewer("a", "ms", []float64{1, 2, 3}, 2).key("k"), single("b", "×", 4)}}
	r.Rows[0].Bench = "create"
	name := filepath.Join(t.TempDir(), "r.json")
	if err := r.save(name); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(name)
	if err != nil {
		t.Fatal(err)
	}
	if got.Machine != r.Machine || len(got.Rows) != 2 || got.Rows[0].Key != "k" || len(got.Rows[0].Values) != 3 || len(got.Points) != 1 || got.Points[0] != r.Points[0] {
		t.Errorf("read again: %+v", got)
	}
	old := filepath.Join(t.TempDir(), "old.json")
	if err := os.WriteFile(old, []byte(`{"name":"kill","unit":"ms","samples":30,"median":5.4,"p95":6.5,"target":"≤ 15","met":true}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readResults(old); err != nil || got.Rows[0].Median != 5.4 {
		t.Errorf("an older file: %+v, %v", got, err)
	}
	for _, text := range []string{"", "{}\n", "not JSON\n"} {
		if err := os.WriteFile(old, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readResults(old); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTargets checks that every condition can be met, missed and not measured, and that the
// tables say so.
func TestTargets(t *testing.T) {
	var met, missed []row
	keys := map[string]bool{}
	for _, target := range targets {
		for _, c := range target.conditions {
			if keys[c.key] {
				continue
			}
			keys[c.key] = true
			good, bad := c.bound*0.5, c.bound*2+1
			if c.least {
				good, bad = c.bound*4, c.bound*0.5
			}
			if c.bound == 0 {
				good = 0
			}
			met, missed = append(met, single(c.key, "", good).key(c.key)), append(missed, single(c.key, "", bad).key(c.key))
		}
	}
	for _, c := range []struct {
		rows []row
		want string
	}{{met, "met"}, {missed, "missed"}, {nil, "not measured"}} {
		var out bytes.Buffer
		printTargets(&out, c.rows)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")[2:]
		if len(lines) != len(targets) {
			t.Fatalf("%d lines for %d targets:\n%s", len(lines), len(targets), out.String())
		}
		for _, l := range lines {
			if !strings.Contains(l, c.want) {
				t.Errorf("want %s: %s", c.want, l)
			}
		}
	}
	// If one of several figures is missing, the target is not met.
	text, ok, measured := targets[1].check(map[string]row{"create.cold": single("", "ms", 1)})
	if ok || !measured || !strings.Contains(text, "not measured") {
		t.Errorf("%q met %v measured %v", text, ok, measured)
	}
}

// TestPlots draws all plots. They must be well-formed and small, and contain every line.
func TestPlots(t *testing.T) {
	r := &results{}
	for _, p := range plots {
		for i, l := range p.lines {
			for x := range 200 {
				r.Points = append(r.Points, point{l.series, float64(10*x + 10), float64(i+1) * (20 + math.Sqrt(float64(x)))})
			}
		}
	}
	dir := t.TempDir()
	if err := writePlots(dir, r); err != nil {
		t.Fatal(err)
	}
	for _, p := range plots {
		raw, err := os.ReadFile(filepath.Join(dir, p.file))
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(raw))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p.file, err)
			}
		}
		if len(raw) > 100_000 || strings.Contains(string(raw), "NaN") {
			t.Errorf("%s has %d bytes, or a NaN in it", p.file, len(raw))
		}
		for _, l := range p.lines {
			if !strings.Contains(html.UnescapeString(string(raw)), l.name) {
				t.Errorf("%s: no line %s", p.file, l.name)
			}
		}
	}
	empty := t.TempDir()
	if err := writePlots(empty, &results{Points: []point{{"density.exec", 0, 0}}}); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(empty); len(files) != 0 {
		t.Errorf("nothing was measured, and there is %v", files)
	}
}

func TestTickStep(t *testing.T) {
	for most, want := range map[float64]float64{10: 2, 2000: 500, 60: 10, 0.9: 0.2, 7: 1, 400: 100, 47: 10} {
		if got := tickStep(most); math.Abs(got-want) > 1e-9 {
			t.Errorf("up to %g: steps of %g, want %g", most, got, want)
		}
	}
}

// TestChosen checks names and groups, and that the soak runs only if it is named.
func TestChosen(t *testing.T) {
	names := func(list []measurement) string {
		var s []string
		for _, m := range list {
			s = append(s, m.name)
		}
		return strings.Join(s, " ")
	}
	for _, c := range []struct {
		given []string
		want  string
	}{
		{[]string{"exec", "create"}, "create exec"},
		{[]string{"time"}, "pause fork rollback timeline"},
		{[]string{"idle", "soak"}, "density soak"},
	} {
		got, err := Options{Names: c.given}.chosen()
		if err != nil || names(got) != c.want {
			t.Errorf("%v: %q %v, want %q", c.given, names(got), err, c.want)
		}
	}
	all, err := Options{}.chosen()
	if err != nil || strings.Contains(names(all), "soak") || len(all) < 15 {
		t.Errorf("without names: %q %v", names(all), err)
	}
	if _, err := (Options{Names: []string{"creat"}}).chosen(); !errors.Is(err, carrel.Invalid) || !strings.Contains(carrel.HintOf(err), "create") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestServeHas distinguishes flags of the serve command with the same beginning.
func TestServeHas(t *testing.T) {
	s := &session{flags: "Flags:\n      --warm-floor strings   how many\n      --listen string   address\n"}
	if !s.serveHas(t.Context(), "--warm-floor") || s.serveHas(t.Context(), "--warm") || !s.serveHas(t.Context(), "--listen") {
		t.Errorf("flags are mistaken for others")
	}
}

// TestSteps ends at the requested count and never exceeds it.
func TestSteps(t *testing.T) {
	for n, want := range map[int]int{1: 1, 20: 3, 2000: 14} {
		got := steps(n)
		if len(got) != want || got[len(got)-1] != n {
			t.Errorf("%d: %v", n, got)
		}
	}
}

func TestHasFlag(t *testing.T) {
	info := "processor\t: 0\nflags\t\t: fpu svm_lock vmx\nbugs\t: x\n\nprocessor\t: 1\nflags\t: svm\n"
	for flag, want := range map[string]bool{"vmx": true, "svm": false, "x": false} {
		if got := hasFlag(info, flag); got != want {
			t.Errorf("%s: %v", flag, got)
		}
	}
}
