package gvisor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// waitEnd returns how a sandbox ended.
func waitEnd(t *testing.T, in driver.Instance) driver.Exit {
	t.Helper()
	done := make(chan driver.Exit, 1)
	go func() {
		e, _ := in.Wait(t.Context())
		done <- e
	}()
	select {
	case e := <-done:
		return e
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
	return driver.Exit{}
}

func TestDiskQuota(t *testing.T) {
	d, _ := newDriver(t)
	for _, path := range []string{"/tmp/fill", "/root/fill"} {
		in := create(t, d, newSpec(t))
		got, ok := get(t, in, "/fill?mb=100&path="+path)
		if ok || !strings.Contains(got, "no space left on device") {
			t.Errorf("100 MiB into %s with 64: %q", path, got)
		}
		if got, _ := get(t, in, "/hello"); !strings.HasPrefix(got, "hello") {
			t.Errorf("after the disk was full: %q", got)
		}
		s, err := in.Stats(t.Context())
		if err != nil || s.Disk > 72<<20 {
			t.Errorf("64 MiB took %d bytes of the host's disk (%v)", s.Disk, err)
		}
	}
}

func TestMemoryBombEndsWithItsReason(t *testing.T) {
	d, _ := newDriver(t)
	spec := newSpec(t)
	spec.Limits.MemoryMB = 128
	in := create(t, d, spec)
	if got, ok := get(t, in, "/hello"); !ok {
		t.Fatal(got)
	}
	start := time.Now()
	_, _, _ = tryGet(in, "/eat?mb=1000")
	e := waitEnd(t, in)
	t.Logf("ended after %v: %+v", time.Since(start), e)
	if e.Reason != carrel.EndOutOfMemory || !strings.Contains(e.Message, "128 MiB") {
		t.Errorf("reason %q, message %q", e.Reason, e.Message)
	}
	destroy(t, in)
	nothingLeft(t, spec)
}

func TestForkBombIsRefusedInside(t *testing.T) {
	d, _ := newDriver(t)
	in := create(t, d, newSpec(t))
	got, _ := get(t, in, "/forkbomb")
	t.Log(got)
	if !strings.Contains(got, "resource temporarily unavailable") {
		t.Errorf("fork bomb: %q", got)
	}
	if got, _ := get(t, in, "/hello"); !strings.HasPrefix(got, "hello") {
		t.Errorf("after the fork bomb: %q", got)
	}
	s, err := in.Stats(t.Context())
	t.Logf("%+v %v", s, err)
}
