package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
)

// prometheus is GET /carrel/v1/metrics. It answers with the state of the pool and the gate, in
// Prometheus' text format. A scraper sends the API key as a bearer token.
func (s *Server) prometheus(w http.ResponseWriter, r *http.Request) error {
	st, err := s.opts.Service.Pool(r.Context())
	if carrel.KindOf(err) == carrel.Unsupported && s.opts.Admission == nil {
		return later("", "metrics of the daemon")
	}
	var out exposition
	switch carrel.KindOf(err) {
	case "":
		out.pool(st)
	case carrel.Unsupported:
	default:
		return err
	}
	if s.opts.Admission != nil {
		out.gate(s.opts.Admission())
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(out.text.String())) // a client that has hung up needs no answer
	return nil
}

// exposition is a text in Prometheus' format.
type exposition struct{ text strings.Builder }

// family begins a metric. The end of its name gives its type: "_total" for counters.
func (e *exposition) family(name, help string) {
	kind := "gauge"
	if strings.HasSuffix(name, "_total") {
		kind = "counter"
	}
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) one(name, help string, v any) {
	e.family(name, help)
	fmt.Fprintf(&e.text, "%s %v\n", name, v)
}

// escape escapes a text for the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (e *exposition) pool(st carrel.PoolStatus) {
	e.one("carrel_pool_cap", "How many sandboxes may be ready.", st.Cap)
	e.one("carrel_pool_hits_total", "Creations that found one ready.", st.Hits)
	e.one("carrel_pool_misses_total", "Creations that could have found one ready and did not.", st.Misses)
	e.one("carrel_pool_lost_total", "Sandboxes that were ready and given up.", st.Lost)
	if b := st.Blanks; b != nil {
		e.one("carrel_blank_sentries_ready", "gVisor kernels that were started before there is a sandbox for them.", b.Ready)
		e.one("carrel_blank_sentries_taken_total", "Those that a sandbox was given.", b.Taken)
		e.one("carrel_blank_sentries_missed_total", "Sandboxes that found none.", b.Missed)
		e.one("carrel_blank_sentries_failed_total", "Those that ended before they had a sandbox.", b.Failed)
	}
	e.family("carrel_pool_memory", "What the machine's memory allows: the state that holds is 1.")
	for _, state := range []string{"grow", "hold", "shrink"} {
		v := 0
		if st.Memory == state {
			v = 1
		}
		fmt.Fprintf(&e.text, "carrel_pool_memory{state=%q} %d\n", state, v)
	}
	for _, f := range []struct {
		name, help string
		of         func(carrel.PoolKind) int
	}{
		{"carrel_pool_ready", "Sandboxes that are ready, of each kind.", func(k carrel.PoolKind) int { return k.Ready }},
		{"carrel_pool_making", "Sandboxes that are being made ready.", func(k carrel.PoolKind) int { return k.Making }},
		{"carrel_pool_target", "How many should be ready.", func(k carrel.PoolKind) int { return k.Target }},
	} {
		e.family(f.name, f.help)
		for _, k := range st.Kinds {
			fmt.Fprintf(&e.text, "%s{template=\"%s\",tier=\"%s\",cpus=\"%g\",memory_mb=\"%d\",disk_mb=\"%d\",pids=\"%d\",golden=\"%v\"} %d\n", f.name, escape.Replace(k.Template), k.Tier,
				k.Limits.CPUs, k.Limits.MemoryMB, k.Limits.DiskMB, k.Limits.Pids, k.Golden, f.of(k))
		}
	}
}

func (e *exposition) gate(st admission.State) {
	e.one("carrel_gate_limit", "How many starts the machine sustains at once, as far as the gate has found out.", st.Limit)
	e.one("carrel_gate_starting", "Starts under way.", st.Starting)
	e.one("carrel_gate_stuck", "Starts under way that wait for something else than the machine.", st.Stuck)
	e.family("carrel_gate_waiting", "Requests that wait for their turn.")
	fmt.Fprintf(&e.text, "carrel_gate_waiting{lane=\"wake\"} %d\ncarrel_gate_waiting{lane=\"create\"} %d\n", st.Wakes, st.Creates)
	e.one("carrel_gate_tenants", "Tenants of whom something starts or waits.", st.Tenants)
	e.one("carrel_gate_start_seconds", "What a start takes lately.", st.MeanMS/1000)
	e.one("carrel_gate_wait_seconds", "What a request that came now would wait.", st.WaitMS/1000)
	e.one("carrel_gate_admitted_total", "Requests let in.", st.Admitted)
	e.one("carrel_gate_refused_total", "Requests refused.", st.Refused)
	e.one("carrel_gate_left_total", "Requests that hung up while they waited.", st.Left)
}
