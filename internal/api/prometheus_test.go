package api

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
)

// TestPrometheus reads the metrics as a scraper would. Each line must be a comment or a sample,
// each sample's metric must be described, and none may occur twice.
func TestPrometheus(t *testing.T) {
	srv := start(t, &fake{}, func(o *Options) {
		o.Service = struct {
			*fake
			carrel.Pools
		}{o.Service.(*fake), poolsFunc(func() carrel.PoolStatus {
			return carrel.PoolStatus{Blanks: &carrel.BlankSentries{Keep: 2, Ready: 1, Missed: 9}, Cap: 8, Hits: 3, Memory: "hold", Kinds: []carrel.PoolKind{
				{Template: "a \"b\"\\c", Tier: carrel.GVisor, Limits: carrel.Limits{CPUs: 0.5, MemoryMB: 64}, Ready: 2, Target: 3},
				{Template: "base", Tier: carrel.GVisor, Golden: true, Making: 1},
			}}
		})}
		o.Admission = func() admission.State { return admission.State{Limit: 4, Creates: 7, MeanMS: 80} }
	})
	resp, body := call(t, srv, "GET", "/carrel/v1/metrics", "")
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%s %s", resp.Status, resp.Header)
	}
	sample := regexp.MustCompile(`^([a-z_]+)(\{([a-z_]+="(\\.|[^"\\])*",?)*\})? -?[0-9.e+-]+$`)
	described, seen := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if f := strings.Fields(line); f[0] == "#" {
			described[f[2]] = true
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || !described[m[1]] {
			t.Errorf("bad line %q", line)
			continue
		}
		key := line[:strings.LastIndex(line, " ")]
		if seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
	}
	for _, want := range []string{
		"carrel_pool_hits_total 3\n", "carrel_pool_memory{state=\"hold\"} 1\n", "carrel_gate_waiting{lane=\"create\"} 7\n", "carrel_gate_start_seconds 0.08\n",
		"carrel_blank_sentries_ready 1\n", "carrel_blank_sentries_missed_total 9\n",
		`carrel_pool_ready{template="a \"b\"\\c",tier="gvisor",cpus="0.5",memory_mb="64",disk_mb="0",pids="0",golden="false"} 2` + "\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in\n%s", want, body)
		}
	}
}

// poolsFunc is carrel.Pools as a function.
type poolsFunc func() carrel.PoolStatus

// Pool implements carrel.Pools.
func (f poolsFunc) Pool(context.Context) (carrel.PoolStatus, error) { return f(), nil }
