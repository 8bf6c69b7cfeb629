package metrics

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// scrapes is how many scrapes run at once; more are refused. scrapeTime bounds one.
	scrapes    = 4
	scrapeTime = 10 * time.Second
	// maxLabel bounds the bytes of a label's value.
	maxLabel = 128
)

// buckets are the upper bounds of all histograms, in seconds.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// Buckets returns the upper bounds of all histograms, in seconds.
func Buckets() []float64 { return append([]float64(nil), buckets...) }

// Metrics are all figures of one daemon. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	mu    sync.Mutex
	reads []func(*Scrape)
}

// New returns the figures of a daemon of this version. They hold Go's and the process's own already.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		state{m},
	)
	m.Read(func(s *Scrape) { s.Put(BuildInfo, 1, version, runtime.Version()) })
	return m
}

// Read adds a function that tells the state of a part at each scrape. It must be quick and must not
// block. A label's values must be a bounded set.
func (m *Metrics) Read(fn func(*Scrape)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, fn)
}

// Gatherer returns the source of all figures, for an exporter.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler answers scrapes. It asks for no key: its caller does, or its listener is private.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: scrapeTime,
	})
}

// vector registers the counters of a family.
func (m *Metrics) counters(f *Family) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	m.registry.MustRegister(v)
	return v
}

// histograms registers the histograms of a family.
func (m *Metrics) histograms(f *Family) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: buckets},
		f.Labels)
	m.registry.MustRegister(v)
	return v
}

// state is the collector of what Metrics.Read adds. It describes nothing ahead, because parts may be
// missing: the registry then checks each scrape.
type state struct{ *Metrics }

// Describe implements prometheus.Collector.
func (state) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c state) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	reads := c.reads
	c.mu.Unlock()
	s := &Scrape{out: out}
	for _, read := range reads {
		read(s)
	}
}

// Scrape takes the figures of one scrape.
type Scrape struct{ out chan<- prometheus.Metric }

// Put gives a number of a counter or gauge, with the values of the family's labels.
func (s *Scrape) Put(f *Family, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if f.Kind == Counter {
		kind = prometheus.CounterValue
	}
	m, err := prometheus.NewConstMetric(f.desc, kind, value, clean(labels)...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	s.out <- m
}

// PutHistogram gives a histogram with the bounds of [Buckets]. counts has the number of observations
// in each bucket alone, and one more for those above all bounds.
func (s *Scrape) PutHistogram(f *Family, counts []uint64, sum float64, labels ...string) {
	upTo, total := make(map[float64]uint64, len(buckets)), uint64(0)
	for i, n := range counts {
		if total += n; i < len(buckets) {
			upTo[buckets[i]] = total
		}
	}
	m, err := prometheus.NewConstHistogram(f.desc, total, sum, upTo, clean(labels)...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	s.out <- m
}

// clean makes texts fit for labels.
func clean(labels []string) []string {
	for i, l := range labels {
		labels[i] = label(l)
	}
	return labels
}

// label makes a text fit for a label: bounded, and valid UTF-8.
func label(text string) string {
	if len(text) > maxLabel {
		text = text[:maxLabel]
	}
	return strings.ToValidUTF8(text, "\ufffd")
}
