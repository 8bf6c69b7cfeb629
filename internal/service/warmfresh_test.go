package service_test

import (
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
)

// TestWarmFresh shows that the pool checks warm sandboxes again and again. One whose guest stops
// answering is replaced before any caller gets it.
func TestWarmFresh(t *testing.T) {
	h := newWarmHouse(t, service.WarmOptions{Cap: 2, Floors: []service.WarmFloor{{Template: "base", Count: 2}}, Fresh: time.Millisecond}, nil)
	until(t, "two are ready", func() bool { return status(t, h.Service).Ready == 2 })
	ids := h.drv.ids()
	for _, id := range ids {
		in := h.drv.get(id)
		n := in.healthChecks.Load()
		until(t, "it is asked again", func() bool { return in.healthChecks.Load() > n+1 })
	}
	sick := h.drv.get(ids[0])
	sick.unwell.Store(true)
	until(t, "the unwell one is gone", func() bool { return h.drv.get(ids[0]) == nil })
	until(t, "it is made up for", func() bool { return status(t, h.Service).Ready == 2 })
	if st := status(t, h.Service); st.Lost != 1 {
		t.Errorf("status %+v", st)
	}
	if sb := h.create(t, carrel.CreateOptions{}); sb.ID == ids[0] {
		t.Errorf("%s was given out", sb.ID)
	}
}
