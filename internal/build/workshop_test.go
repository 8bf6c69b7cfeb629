package build

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
)

// dying is a sandbox that ends by itself. It answers until mute, its end is under way from
// ending on, and it is gone from gone on. These are times since its start; a zero never comes.
type dying struct {
	began              time.Time
	mute, ending, gone time.Duration
	hangs              bool // a request to a mute sandbox hangs
}

// past reports whether a time since the start has come.
func (d *dying) past(at time.Duration) bool { return at != 0 && time.Since(d.began) >= at }

// finder is the service that has the sandbox.
type finder struct {
	Sandboxes
	d *dying
}

// Computer implements Sandboxes.
func (f finder) Computer(context.Context, carrel.ID) (carrel.Computer, error) {
	switch d := f.d; {
	case d.past(d.gone):
		return nil, &carrel.Error{Kind: carrel.NotFound, Hint: "use less",
			Err: errors.New("the sandbox ended (oom): out of memory")}
	case d.past(d.ending):
		return nil, &carrel.Error{Kind: carrel.Conflict, Err: errors.New("the sandbox is stopping")}
	}
	return inside{d: f.d}, nil
}

// inside is the inside of the sandbox.
type inside struct {
	carrel.Computer
	d *dying
}

// Files implements carrel.Computer.
func (i inside) Files(string) carrel.Files { return root{d: i.d} }

// root is its files.
type root struct {
	carrel.Files
	d *dying
}

// Stat implements carrel.Files.
func (r root) Stat(ctx context.Context, _ string) (carrel.FileInfo, error) {
	if !r.d.past(r.d.mute) {
		return carrel.FileInfo{}, nil
	}
	if r.d.hangs {
		<-ctx.Done()
	}
	return carrel.FileInfo{}, errBroken
}

var errBroken = errors.New("connection reset by peer")

// TestExplain asks why a step failed whose connection to the sandbox broke, at all moments of the
// sandbox's end.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name      string
		d         dying
		cancel    time.Duration // 0 never
		explained bool
		most      time.Duration
	}{
		{"lives", dying{}, 0, false, 0},
		{"gone already", dying{mute: 1, gone: 1}, 0, true, 0},
		{"gone later", dying{mute: 1, gone: 3 * time.Second}, 0, true, 4 * time.Second},
		{"ends slowly", dying{mute: 1, ending: 8 * time.Second, gone: 35 * time.Second}, 0, true,
			36 * time.Second},
		{"hangs, then is gone", dying{mute: 1, gone: 5 * time.Second, hangs: true}, 0, true,
			11 * time.Second},
		{"mute for ever", dying{mute: 1}, 0, false, 11 * time.Second},
		{"hangs for ever", dying{mute: 1, hangs: true}, 0, false, 11 * time.Second},
		{"never gone", dying{mute: 1, ending: 1}, 0, false, 41 * time.Second},
		{"cancelled", dying{mute: 1}, time.Second, false, time.Second},
		{"cancelled while it hangs", dying{mute: 1, hangs: true}, time.Second, false, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.d.began = time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				time.Sleep(time.Millisecond) // so that a moment of 1 ns has passed
				w := &workshop{sandboxes: finder{d: &c.d}, inside: inside{d: &c.d}}
				began := time.Now()
				got := w.explain(ctx, errBroken)
				if took := time.Since(began); took > c.most {
					t.Errorf("it took %v, at most %v may be", took, c.most)
				}
				if !c.explained {
					if got != errBroken {
						t.Errorf("the error is %v", got)
					}
					return
				}
				if !strings.Contains(got.Error(), "out of memory") || carrel.HintOf(got) != "use less" ||
					carrel.KindOf(got) != carrel.Exhausted {
					t.Errorf("the error is %v, with the hint %q", got, carrel.HintOf(got))
				}
			})
		})
	}
}
