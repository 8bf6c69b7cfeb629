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
	StagePack   = "pack"   // files of a template becoming a layer
	StagePush   = "push"   // bytes going to a registry
)

// Meter turns many small steps into occasional progress reports. Its methods are safe for
// concurrent use and work on a nil Meter, which reports nothing. Done never goes backwards within a
// stage.
type Meter struct {
	report func(carrel.Progress)

	mu   sync.Mutex
	now  carrel.Progress
	last time.Time
	hold *Hold             // of the current stage, if it is held
	next []carrel.Progress // the stages that were begun since
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
	if m.hold != nil {
		m.next = append(m.next, carrel.Progress{Stage: name, Total: total})
		return
	}
	m.stage(name, total)
}

// stage begins a stage. The caller holds mu.
func (m *Meter) stage(name string, total int64) {
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
	if m.hold != nil {
		if n := len(m.next); n > 0 {
			m.next[n-1].Done += bytes
		}
		return
	}
	m.add(bytes)
}

// add counts bytes of the current stage. The caller holds mu.
func (m *Meter) add(bytes int64) {
	m.now.Done += bytes
	if time.Since(m.last) >= meterEvery {
		m.flush()
	}
}

// Hold is a stage that stays the current one until End, although the work of the next stage has
// begun. Reports tell of the held stage meanwhile. The methods work on a nil Hold.
type Hold struct{ m *Meter }

// Hold begins a stage and holds it.
func (m *Meter) Hold(name string, total int64) *Hold {
	if m == nil {
		return nil
	}
	m.Stage(name, total)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = &Hold{m}
	return m.hold
}

// Add counts bytes done in the held stage.
func (h *Hold) Add(bytes int64) {
	if h == nil || bytes <= 0 {
		return
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.m.hold == h {
		if total := h.m.now.Total; total > 0 { // a download that began anew counts once
			bytes = min(bytes, total-h.m.now.Done)
		}
		h.m.add(bytes)
	}
}

// End ends the stage. The next one, if it was begun, is now the current one.
func (h *Hold) End() {
	if h == nil {
		return
	}
	m := h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != h {
		return
	}
	m.hold = nil
	m.flush()
	for _, next := range m.next {
		m.stage(next.Stage, next.Total)
		m.add(next.Done)
	}
	m.next = nil
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
