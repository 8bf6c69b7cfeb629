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
	StageWrite  = "write"  // the image's metadata being written durably
)

// Meter turns many small steps into occasional progress reports. Its methods are safe for
// concurrent use and work on a nil Meter, which reports nothing. Done never goes backwards within a
// stage.
type Meter struct {
	report func(carrel.Progress)

	mu   sync.Mutex
	now  carrel.Progress
	last time.Time
}

// meterEvery is the least time between two reports of a Meter.
const meterEvery = 100 * time.Millisecond

// NewMeter returns a Meter that calls report, one call at a time; nil for nil.
func NewMeter(report func(carrel.Progress)) *Meter {
	if report == nil {
		return nil
	}
	return &Meter{report: report}
}

// Stage begins a stage. total is 0 when it is not known. If the stage is already under way, it goes
// on and total is added to its total.
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

// Flush reports the present state of the stage.
func (m *Meter) Flush() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
}

// flush reports. The caller holds mu, so that reports come one at a time.
func (m *Meter) flush() {
	if m.now.Stage != "" {
		m.last = time.Now()
		m.report(m.now)
	}
}
