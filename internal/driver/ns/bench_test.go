package ns_test

import (
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// BenchmarkCreate makes a sandbox and waits until its guest accepts a connection. Destroy is not
// measured.
func BenchmarkCreate(b *testing.B) {
	d := newState(b).open(b)
	keep, err := d.Create(b.Context(), newSpec(b)) // keeps the template ready, as on a busy host
	if err != nil {
		b.Fatal(err)
	}
	defer keep.Destroy(b.Context())
	for b.Loop() {
		spec := newSpec(b)
		in, err := d.Create(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		for {
			c, err := in.Dial(b.Context(), carrel.GuestPort)
			if err == nil {
				c.Close()
				break
			}
			time.Sleep(500 * time.Microsecond)
		}
		b.StopTimer()
		if err := in.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
