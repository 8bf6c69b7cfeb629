package service

import (
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestRises shows how long a new guest is left alone: a quick start shortens the time at once, slow
// starts lengthen it slowly, and it has a bound.
func TestRises(t *testing.T) {
	var r rises
	if p := r.patience(carrel.GVisor); p != 0 {
		t.Error("patience before there was any: ", p)
	}
	for range 100 {
		r.note(carrel.GVisor, 16*time.Millisecond)
	}
	if p := r.patience(carrel.GVisor); p != 12*time.Millisecond {
		t.Error("of 16 ms: ", p)
	}
	if p := r.patience(carrel.NS); p != 0 {
		t.Error("another tier's: ", p)
	}
	r.note(carrel.GVisor, 10*time.Second)
	if p := r.patience(carrel.GVisor); p != riseMost {
		t.Error("after a very slow one: ", p)
	}
	// No guest is dialled before the patience ends, so a quick guest seems to take that long.
	for range 10 {
		r.note(carrel.GVisor, max(r.patience(carrel.GVisor), 4*time.Millisecond))
	}
	if p := r.patience(carrel.GVisor); p != 3*time.Millisecond {
		t.Error("when all have become quick: ", p)
	}
	r.note(carrel.GVisor, time.Millisecond)
	if p := r.patience(carrel.GVisor); p != 0 {
		t.Error("not worth a timer: ", p)
	}
}
