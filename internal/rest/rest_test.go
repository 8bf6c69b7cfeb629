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

// kept keeps memory in use.
var kept [][]byte

// TestRun runs a process that is too busy to be young. It must give back its unused memory, and
// must not be collected while it is idle. When it uses more memory it must be collected again, with
// its old limit and the configured percentage. The settings concern a whole process, so the test
// runs in one of its own.
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
	for awake := false; !awake; { // use more, until the rest ends
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
