package gvisor_test

import (
	"testing"
)

func TestCreateAnswers(t *testing.T) {
	d, _ := newDriver(t)
	spec := newSpec(t)
	in := create(t, d, spec)
	if got, _ := get(t, in, "/hello"); got != "hello from "+string(spec.ID) {
		t.Errorf("answer %q", got)
	}
}
