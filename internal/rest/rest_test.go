package rest

import (
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// kept is what the process holds.
var kept [][]byte

// A process that is too busy to be young gives back what it no longer uses, is not collected while it does nothing, and is again when it uses more:
// with the limit that it had, and the percentage that was asked for. What a run leaves to the collector is the process's own business, so it is one of its own.
func TestRun(t *testing.T) {
	if os.Getenv("CARREL_TEST_REST") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRun$", "-test.v")
		cmd.Env = append(os.Environ(), "CARREL_TEST_REST=1", "GOGC=100")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const size = 32 << 20
	kept = append(kept, make([]byte, size))
	for i := range kept[0] {
		kept[0][i] = 1
	}
	before := used()
	kept = nil
	changes := make(chan bool, 16)
	go run(Options{First: time.Millisecond, Young: true, Percent: 70, Room: 1 << 20}, 50*time.Millisecond, func(rests bool) { changes <- rests })
	wait := func(want bool) {
		t.Helper()
		select {
		case rests := <-changes:
			if rests != want {
				t.Fatalf("at rest: %v", rests)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("never at rest: %v", want)
		}
	}
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	wait(true)
	if freed := before - used(); freed < size/2 {
		t.Errorf("gave back %d bytes of %d", freed, size)
	}
	if p := percent(); p != -1 {
		t.Errorf("at rest the collector is set to %d", p)
	}
	for awake := false; !awake; { // uses more, until that is noticed
		kept = append(kept, make([]byte, 64<<10))
		select {
		case rests := <-changes:
			awake = !rests
		default:
		}
		if len(kept) > 1<<12 {
			t.Fatal("256 MB did not end the rest")
		}
	}
	if p, limit := percent(), debug.SetMemoryLimit(-1); p != 70 || limit != math.MaxInt64 {
		t.Errorf("awake the collector is set to %d, the limit to %d", p, limit)
	}
	kept = nil
	wait(true) // again
	runtime.GC()
	wait(false)
}
