//go:build linux

package microvm_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/microvm"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestBoot measures the way from Create to the guest's first answer.
func TestBoot(t *testing.T) {
	d := newJudged(t).open(t)
	for range 3 {
		began := time.Now()
		spec := newSpec(t)
		in, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		created := time.Since(began)
		conn := guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err = testenv.Within(ctx, 30*time.Second, func() error { return conn.Health(ctx) })
		cancel()
		took := time.Since(began)
		st, serr := in.Stats(t.Context())
		t.Logf("created after %v, the guest answers after %v, and %v of processor time with %d MiB: %v, %v",
			created, took, st.CPU, st.Memory>>20, err, serr)
		_ = conn.Close()
		if err := in.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		e, _ := in.Wait(t.Context())
		if err != nil {
			t.Fatalf("%v: the end is %+v", err, e)
		}
	}
}

// many is as many machines as two processors emulate at once.
const many = 4

// TestDriver runs the conformance suite.
func TestDriver(t *testing.T) {
	s := need(t)
	var mu sync.Mutex
	states := map[string]*state{}
	drivertest.Run(t, drivertest.Harness{
		New: func(t testing.TB) driver.Driver {
			mu.Lock()
			defer mu.Unlock()
			if states[t.Name()] == nil {
				states[t.Name()] = newJudged(t)
			}
			d, err := microvm.New(states[t.Name()].options(t))
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Root: driver.Root{Image: s.Root}, Guest: s.Guest, Attack: s.Attack, Limits: limits,
		Many: many, OwnKernel: true, Slow: true,
		Skip: map[string]string{"escape/what tells of the host": "the machine's kernel tells of the machine, whose parts have the names that every machine's have"},
	})
}

// TestStoppedMachineRecovered shows that a daemon that died during a snapshot leaves no machine that
// stands still: the next one lets it go on.
func TestStoppedMachineRecovered(t *testing.T) {
	s := newJudged(t)
	d := s.open(t)
	spec := newSpec(t)
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	conn := guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
	testenv.EventuallyNil(t, "the guest answers", func() error { return conn.Health(t.Context()) })
	_ = conn.Close()
	q, err := net.Dial("unix", filepath.Join(spec.Dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(q, `{"execute":"qmp_capabilities"}{"execute":"stop"}`); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(q)
	for said.Scan() && !strings.Contains(said.Text(), `"STOP"`) {
	}
	_ = q.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	in, err = s.open(t).Recover(t.Context(), in.Handle())
	if err != nil {
		t.Fatal(err)
	}
	conn = guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
	testenv.EventuallyNil(t, "the guest answers again", func() error { return conn.Health(t.Context()) })
	_ = conn.Close()
	if err := in.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClock compares a machine's clock with the host's, after its boot and after a restore. The
// device that a kernel reads the time from at its boot knows seconds only.
func TestClock(t *testing.T) {
	d := newJudged(t).open(t)
	check := func(when string, conn *guest.Conn) {
		t.Helper()
		testenv.EventuallyNil(t, "the clock is right "+when, func() error {
			// The least way of several tells the error.
			least, off := time.Hour, time.Duration(0)
			for range 5 {
				began := time.Now()
				text := run(t, conn, "touch /tmp/now; stat -c %.3Y /tmp/now")
				seconds, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return err
				}
				if way := time.Since(began); way < least {
					least, off = way, time.UnixMilli(int64(seconds*1000)).Sub(began)
				}
			}
			if off < -100*time.Millisecond || off > least+100*time.Millisecond {
				return fmt.Errorf("it is %v off, in %v", off, least)
			}
			return nil
		})
	}
	in, conn, _ := bootOne(t, d, newSpec(t))
	check("after the boot", conn)
	dir := t.TempDir()
	info, err := in.(driver.Snapshotter).Snapshot(t.Context(), dir, driver.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check("after a snapshot", conn)
	spec := newSpec(t)
	r, err := d.Restore(t.Context(), dir, info, spec, driver.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	restored := guest.NewConn(r.Dial, guest.ConnOptions{ID: spec.ID})
	check("after a restore", restored)
	_ = restored.Close()
	if err := r.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
