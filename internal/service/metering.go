package service

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/state"
)

// Meter learns what sandboxes use; package ledger implements it. It knows from the records, which go
// through its store, when each sandbox runs.
type Meter interface {
	// Adopted says that a sandbox of an earlier service runs on.
	Adopted(id carrel.ID)
	// Sample passes on a measurement of a running sandbox, made just now.
	Sample(id carrel.ID, r state.Reading)
}

// noMeter measures nothing.
type noMeter struct{}

func (noMeter) Adopted(carrel.ID)               {}
func (noMeter) Sample(carrel.ID, state.Reading) {}

// lastReading bounds the measurement before an instance ends.
const lastReading = 200 * time.Millisecond

// sampled passes a measurement on to the meter.
func (o *Options) sampled(id carrel.ID, st driver.Stats) {
	r := state.Reading{CPU: st.CPU, Memory: st.Memory, Disk: st.Disk}
	if o.Networks != nil {
		r.Sent, r.Received = o.Networks.Traffic(id)
	}
	o.Meter.Sample(id, r)
}

// measureLast measures an instance that is about to end or to change hands. Without the measurement
// the use since the one before it would belong to nobody.
func (o *Options) measureLast(ctx context.Context, id carrel.ID, inst driver.Instance) {
	if _, none := o.Meter.(noMeter); none || inst == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastReading)
	defer cancel()
	if st, err := inst.Stats(ctx); err == nil {
		o.sampled(id, st)
	}
}
