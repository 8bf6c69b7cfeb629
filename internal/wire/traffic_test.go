package wire_test

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestTraffic shows that a link counts its own bytes, both ways, and no other link's.
func TestTraffic(t *testing.T) {
	w := newWorld(t)
	wi, id, _, g := w.link(t, everything, wire.Options{})
	g.lookup("api.example.com")
	sent, received := wi.Traffic(id)
	if sent < 50 || received < 50 {
		t.Errorf("a question and its answer counted %d and %d bytes", sent, received)
	}
	const size = 5_000
	g.send(goodIPv4, 443, []byte(strings.Repeat("x", size)))
	testenv.Eventually(t, "the bytes of a connection count", func() bool {
		now, _ := wi.Traffic(id)
		return now-sent >= size
	})
	if now, _ := wi.Traffic(id); now-sent > 2*size {
		t.Errorf("%d bytes of a connection counted as %d", size, now-sent)
	}
	if s, r := wi.Traffic(carrel.NewID()); s != 0 || r != 0 {
		t.Errorf("an unknown sandbox sent %d and received %d bytes", s, r)
	}
}
