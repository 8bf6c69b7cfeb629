package image

import (
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Stages of a [carrel.Progress].
const (
	StagePull   = "pull"   // bytes coming from a registry
	StageUnpack = "unpack" // bytes of files read from an archive or directory
	StageWrite  = "write"  // the image's metadata being made durable
)

// Meter turns many small steps into a progress report now and then. Its methods
// are safe for concurrent use and work on a nil Meter, which reports nothing.
// Done never goes backwards within a stage.
type Meter struct {
	report func(carrel.Progress)

	mu   sync.Mutex
	now  carrel.Progress
	last time.Time
}

// meterEvery is how often a Meter reports at most.
const meterEvery = 100 * time.Millisecond

// NewMeter returns a Meter that calls report, one call at a time; nil for nil.
func NewMeter(report func(carrel.Progress)) *Meter {
	if report == nil {
		return nil
	}
	return &Meter{report: report}
}

// Stage begins a stage; total is 0 when not known. A stage that is under way goes
// on, with total more to do.
func (m *Meter) Stage(name string, total int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now.Stage == name {
		if m.now.Total = 0; total > 0 {
			m.now.Total = m.now.Done + total
		}
		return
	}
	m.flush()
	m.now = carrel.Progress{Stage: name, Total: total}
	m.last = time.Time{}
}

// Add counts bytes done in the current stage.
func (m *Meter) Add(bytes int64) {
	if m == nil || bytes <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done += bytes
	if time.Since(m.last) >= meterEvery {
		m.flush()
	}
}

// Flush reports where the current stage stands.
func (m *Meter) Flush() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
}

// flush reports; mu is held, which is what makes reports come one at a time.
func (m *Meter) flush() {
	if m.now.Stage != "" {
		m.last = time.Now()
		m.report(m.now)
	}
}
