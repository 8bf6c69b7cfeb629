package metrics

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The classes of answers.
const (
	ClassOK      = "ok"
	ClassInvalid = "invalid" // the request was wrong: a status of 4xx that is not below
	ClassDenied  = "denied"  // 401 or 403
	ClassLimited = "limited" // 429
	ClassLeft    = "left"    // the client left before its answer began
	ClassFailed  = "failed"  // 5xx
)

var classes = [...]string{ClassOK, ClassInvalid, ClassDenied, ClassLimited, ClassLeft, ClassFailed}

// StatusLeft is the status of a request whose client left before its answer began.
const StatusLeft = 499

// classOf returns the index of a status's class.
func classOf(status int) int {
	switch {
	case status < http.StatusBadRequest:
		return 0
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return 2
	case status == http.StatusTooManyRequests:
		return 3
	case status == StatusLeft:
		return 4
	case status < http.StatusInternalServerError:
		return 1
	}
	return 5
}

// maxRows bounds the operations of one Requests, for the case that a door's set has no bound.
const maxRows = 512

// Requests counts the requests at one door: how many, with which outcome, and how long they took.
type Requests struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
	name  func(route string) string

	rows  sync.Map // route → *row
	count atomic.Int32
}

// row is one operation. Its series are made at their first use.
type row struct {
	took    prometheus.Observer
	classes [len(classes)]atomic.Pointer[prometheus.Counter]
	name    string
}

// Requests returns the counts of a door. name turns a route, as the door tells it, into an
// operation's name. It is called once for each route.
func (m *Metrics) Requests(total, took *Family, name func(route string) string) *Requests {
	return &Requests{total: m.counters(total), took: m.histograms(took), name: name}
}

// Served counts a request whose answer begins now.
func (q *Requests) Served(route string, status int, took time.Duration) {
	r := q.row(route)
	i := classOf(status)
	c := r.classes[i].Load()
	if c == nil {
		made := q.total.WithLabelValues(r.name, classes[i])
		c = &made
		r.classes[i].Store(c)
	}
	(*c).Inc()
	if i != 4 { // the time of those that left says nothing about the daemon
		r.took.Observe(took.Seconds())
	}
}

func (q *Requests) row(route string) *row {
	if r, ok := q.rows.Load(route); ok {
		return r.(*row)
	}
	name := Other
	known := q.count.Load() < maxRows
	if known {
		name = label(q.name(route))
	}
	r := &row{name: name, took: q.took.WithLabelValues(name)}
	if !known {
		return r
	}
	if old, raced := q.rows.LoadOrStore(route, r); raced {
		return old.(*row)
	}
	q.count.Add(1)
	return r
}

// Operations counts the operations on sandboxes.
type Operations struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// Operations returns the counts of operations. Metrics has one of them.
func (m *Metrics) Operations() *Operations {
	return &Operations{m.counters(OperationsTotal), m.histograms(OperationDuration)}
}

// Ended counts an operation that has ended. Its name is one of a fixed set.
func (o *Operations) Ended(name string, took time.Duration, failed bool) {
	outcome := ClassOK
	if failed {
		outcome = ClassFailed
	}
	o.total.WithLabelValues(name, outcome).Inc()
	o.took.WithLabelValues(name).Observe(took.Seconds())
}
