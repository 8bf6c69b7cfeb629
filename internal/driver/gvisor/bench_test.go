package gvisor_test

import (
	"fmt"
	"sort"
	"testing"
	"time"
)

// BenchmarkCreate reports the median and the 95th percentile of three times: Create, the guest's
// first answer (counted from the start of Create), and Destroy.
func BenchmarkCreate(b *testing.B) {
	d, _ := newDriver(b)
	var created, answered, destroyed []time.Duration
	for b.Loop() {
		start := time.Now()
		in := create(b, d, newSpec(b))
		created = append(created, time.Since(start))
		if got, ok := get(b, in, "/hello"); !ok {
			b.Fatal(got)
		}
		answered = append(answered, time.Since(start))
		start = time.Now()
		destroy(b, in)
		destroyed = append(destroyed, time.Since(start))
	}
	for _, m := range []struct {
		name string
		all  []time.Duration
	}{{"create", created}, {"answer", answered}, {"destroy", destroyed}} {
		sort.Slice(m.all, func(i, j int) bool { return m.all[i] < m.all[j] })
		for _, p := range []int{50, 95} {
			b.ReportMetric(float64(m.all[len(m.all)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", m.name, p))
		}
	}
}
