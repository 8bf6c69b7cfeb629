package service_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestCreate(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.Domain = "d.example.com" })
	sb := h.create(t, carrel.CreateOptions{Metadata: map[string]string{"k": "v"}, Env: map[string]string{"A": "mine"},
		Timeout: time.Minute, Network: carrel.Network{PrivateTraffic: true}})
	if sb.State != carrel.Running || sb.Template != baseTemplate.ID || sb.Alias != "base" || sb.Tier != carrel.Sim || sb.Domain != "d.example.com" {
		t.Errorf("created %+v", sb)
	}
	if want := (carrel.Limits{CPUs: 2, MemoryMB: 1024, DiskMB: 10240, Pids: 1024}); sb.Limits != want {
		t.Errorf("limits %+v, want %+v", sb.Limits, want)
	}
	if len(sb.AccessToken) < 32 || len(sb.TrafficToken) < 32 || sb.AccessToken == sb.TrafficToken {
		t.Errorf("tokens %q and %q", sb.AccessToken, sb.TrafficToken)
	}
	if d := sb.Ends.Sub(sb.Started); d != time.Minute {
		t.Errorf("lives %v", d)
	}
	inits := h.drv.get(sb.ID).inits()
	if len(inits) != 1 {
		t.Fatalf("the guest was initialised %d times", len(inits))
	}
	in := inits[0]
	if !reflect.DeepEqual(in.EnvVars, map[string]string{"A": "mine", "B": "template"}) || in.AccessToken != sb.AccessToken || in.DefaultUser != "user" ||
		in.DefaultWorkdir != "/app" || in.Hostname != string(sb.ID) || in.SandboxID != string(sb.ID) || in.TemplateID != baseTemplate.ID || time.Since(in.Timestamp) > time.Minute {
		t.Errorf("the guest was told %+v", in)
	}
	rec, err := h.store.GetSandbox(t.Context(), sb.ID)
	if err != nil || !reflect.DeepEqual(rec.Sandbox, sb) || string(rec.Handle) != string(sb.ID) {
		t.Errorf("record %+v, %v", rec, err)
	}
	got, err := h.Get(t.Context(), sb.ID)
	if err != nil || !reflect.DeepEqual(got, sb) {
		t.Errorf("Get: %+v, %v", got, err)
	}
	got.Metadata["k"] = "changed"
	if again, _ := h.Get(t.Context(), sb.ID); again.Metadata["k"] != "v" {
		t.Error("a change of a returned value reached the service")
	}
	if c, err := h.Computer(t.Context(), sb.ID); err != nil || c == nil {
		t.Errorf("Computer: %v", err)
	}
	if open := h.create(t, carrel.CreateOptions{Insecure: true}); open.AccessToken != "" || open.TrafficToken != "" {
		t.Errorf("an insecure sandbox has tokens: %+v", open)
	}
}

func TestKill(t *testing.T) {
	h := newHouse(t, nil)
	sb := h.create(t, carrel.CreateOptions{})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := h.Kill(t.Context(), sb.ID); err != nil && !errors.Is(err, carrel.NotFound) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h.clean(t)
	for name, err := range map[string]error{
		"Kill":       h.Kill(t.Context(), sb.ID),
		"Get":        second(h.Get(t.Context(), sb.ID)),
		"Computer":   second(h.Computer(t.Context(), sb.ID)),
		"SetTimeout": second(h.SetTimeout(t.Context(), sb.ID, time.Hour, false)),
		"Metrics":    second(h.Metrics(t.Context(), sb.ID, time.Time{}, time.Time{})),
		"bad ID":     second(h.Get(t.Context(), "../etc")),
		"unknown ID": second(h.Logs(t.Context(), carrel.NewID(), carrel.LogOptions{})),
	} {
		if !errors.Is(err, carrel.NotFound) {
			t.Errorf("%s after the end: %v, want NotFound", name, err)
		}
	}
	if err := h.Kill(t.Context(), sb.ID); !strings.Contains(err.Error(), "killed") {
		t.Errorf("the error does not say how it ended: %v", err)
	}
	ends := 0
	for _, e := range h.events(t) {
		if e.Type == "sandbox.ended" {
			ends++
			if e.Reason != carrel.EndKilled || e.ID != sb.ID {
				t.Errorf("ended: %+v", e)
			}
		}
	}
	if ends != 1 {
		t.Errorf("its end was told %d times", ends)
	}
	logs, err := h.Logs(t.Context(), sb.ID, carrel.LogOptions{})
	if err != nil || len(logs) != 2 || logs[1].Fields["reason"] != "killed" {
		t.Errorf("logs after the end: %+v, %v", logs, err)
	}
	newest, err := h.Logs(t.Context(), sb.ID, carrel.LogOptions{NewestFirst: true, Limit: 1})
	if err != nil || len(newest) != 1 || newest[0].Fields["event"] != "sandbox.ended" {
		t.Errorf("newest first: %+v, %v", newest, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestBadInput(t *testing.T) {
	h := newHouse(t, func(o *service.Options) {
		o.MaxLimits = carrel.Limits{CPUs: 4, MemoryMB: 4096, DiskMB: 20000, Pids: 2000}
		o.MaxTimeout = 2 * time.Hour
	})
	long := strings.Repeat("x", 300<<10)
	hosts := map[string][]carrel.NetworkRule{}
	for i := range 1001 {
		hosts[fmt.Sprintf("h%d.example.com", i)] = nil
	}
	for _, c := range []struct {
		field string
		kind  carrel.Kind
		opts  carrel.CreateOptions
	}{
		{"template", carrel.NotFound, carrel.CreateOptions{Template: "nope"}},
		{"template", carrel.Invalid, carrel.CreateOptions{Template: long}},
		{"template", carrel.Invalid, carrel.CreateOptions{Template: "a\x00b"}},
		{"tier", carrel.Invalid, carrel.CreateOptions{Tier: "cardboard"}},
		{"tier", carrel.Invalid, carrel.CreateOptions{Tier: carrel.GVisor}},
		{"tier", carrel.Invalid, carrel.CreateOptions{Template: "microvm", Tier: carrel.Sim}},
		{"timeout", carrel.Invalid, carrel.CreateOptions{Timeout: -time.Second}},
		{"timeout", carrel.Invalid, carrel.CreateOptions{Timeout: 2*time.Hour + 1}},
		{"metadata", carrel.Invalid, carrel.CreateOptions{Metadata: map[string]string{"": "v"}}},
		{"metadata", carrel.Invalid, carrel.CreateOptions{Metadata: map[string]string{"k": "\xff"}}},
		{"metadata", carrel.Invalid, carrel.CreateOptions{Metadata: map[string]string{"k": long}}},
		{"envVars", carrel.Invalid, carrel.CreateOptions{Env: map[string]string{"": "v"}}},
		{"envVars", carrel.Invalid, carrel.CreateOptions{Env: map[string]string{"a=b": "v"}}},
		{"envVars", carrel.Invalid, carrel.CreateOptions{Env: map[string]string{"a\x00": "v"}}},
		{"envVars", carrel.Invalid, carrel.CreateOptions{Env: map[string]string{"a": "v\x00"}}},
		{"envVars", carrel.Invalid, carrel.CreateOptions{Env: map[string]string{"a": long}}},
		{"cpuCount", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{CPUs: -1}}},
		{"cpuCount", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{CPUs: math.NaN()}}},
		{"cpuCount", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{CPUs: 5}}},
		{"cpuCount", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{CPUs: 0.001}}},
		{"memoryMB", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 4}}},
		{"pids", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{Pids: 1}}},
		{"memoryMB", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 5000}}},
		{"memoryMB", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: math.MinInt}}},
		{"diskSizeMB", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{DiskMB: -1}}},
		{"pids", carrel.Invalid, carrel.CreateOptions{Limits: carrel.Limits{Pids: 2001}}},
		{"denyOut[0]", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{DenyOut: []string{"example.com"}}}},
		{"allowOut[0]", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{AllowOut: []string{"a b"}}}},
		{"denyOut", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{AllowOut: []string{"example.com"}}}},
		{"allowOut", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{AllowOut: slices.Repeat([]string{"203.0.113.9"}, 1001)}}},
		{"denyOut", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{DenyOut: slices.Repeat([]string{"203.0.113.9"}, 1001)}}},
		{"httpsPorts", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{HTTPSPorts: slices.Repeat([]uint16{443}, 1001)}}},
		{"rules", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{Rules: hosts}}},
		{"httpsPorts", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{HTTPSPorts: []uint16{carrel.GuestPort}}}},
		{"maskHost", carrel.Invalid, carrel.CreateOptions{Network: carrel.Network{MaskHost: "a\r\nX-Evil: 1"}}},
	} {
		_, err := h.Create(t.Context(), c.opts)
		var ce *carrel.Error
		if !errors.As(err, &ce) || ce.Kind != c.kind || ce.Field != c.field {
			t.Errorf("%s: got %v (kind %v), want kind %v", c.field, err, carrel.KindOf(err), c.kind)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", c.field, len(err.Error()))
		}
	}
	h.clean(t)
	sb := h.create(t, carrel.CreateOptions{Network: carrel.Network{AllowOut: []string{"*.example.com", "10.0.0.0/8"}, DenyOut: []string{"0.0.0.0/0"}}})
	for field, err := range map[string]error{
		"timeout":     second(h.SetTimeout(t.Context(), sb.ID, -1, false)),
		"limit":       second(h.List(t.Context(), carrel.ListOptions{Limit: 101})),
		"nextToken":   second(h.List(t.Context(), carrel.ListOptions{Cursor: "!!"})),
		"state":       second(h.List(t.Context(), carrel.ListOptions{States: []carrel.State{"happy"}})),
		"end":         second(h.Metrics(t.Context(), sb.ID, time.Now(), time.Now().Add(-time.Hour))),
		"allowOut[0]": second(h.SetNetwork(t.Context(), sb.ID, carrel.Network{AllowOut: []string{""}})),
	} {
		var ce *carrel.Error
		if !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestFailures makes each step of a creation fail. The error must have the right kind, and nothing
// may be left.
func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		arrange func(*house)
		kind    carrel.Kind
	}{
		"probe": {func(h *house) {
			h.drv.ProbeFn = func() error { return &carrel.Error{Kind: carrel.Unsupported, Hint: "buy a host"} }
		}, carrel.Unsupported},
		"driver": {func(h *house) {
			h.drv.CreateFn = func(context.Context, driver.Spec) error { return &carrel.Error{Kind: carrel.Exhausted, Err: boom} }
		}, carrel.Exhausted},
		"driver, bare error": {func(h *house) { h.drv.CreateFn = func(context.Context, driver.Spec) error { return boom } }, carrel.Internal},
		"first write": {func(h *house) {
			h.store.PutFn = func(state.Record) error { return &carrel.Error{Kind: carrel.Internal, Err: boom} }
		}, carrel.Internal},
		"second write": {func(h *house) {
			h.store.PutFn = func(r state.Record) error {
				if r.Sandbox.State == carrel.Running {
					return &carrel.Error{Kind: carrel.Internal, Err: boom}
				}
				return nil
			}
		}, carrel.Internal},
		"event": {func(h *house) {
			h.store.AppendFn = func(e carrel.Event) error {
				if e.Type == "sandbox.created" {
					return &carrel.Error{Kind: carrel.Internal, Err: boom}
				}
				return nil
			}
		}, carrel.Internal},
		"guest never listens": {func(h *house) { h.drv.DialFn = func(carrel.ID) error { return syscall.ECONNREFUSED } }, carrel.Unavailable},
		"guest never answers": {func(h *house) { h.drv.InitFn = func(carrel.ID) int { return 0 } }, carrel.Unavailable},
		"guest refuses":       {func(h *house) { h.drv.InitFn = func(carrel.ID) int { return 400 } }, carrel.Invalid},
		"guest dies of memory": {func(h *house) {
			h.drv.InitFn = func(id carrel.ID) int {
				go h.drv.get(id).die(driver.Exit{Reason: carrel.EndOutOfMemory})
				return 0
			}
		}, carrel.Exhausted},
		"guest crashes": {func(h *house) {
			h.drv.DialFn = func(id carrel.ID) error {
				go h.drv.get(id).die(driver.Exit{Reason: carrel.EndCrashed, Message: "panic"})
				return syscall.ECONNREFUSED
			}
		}, carrel.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, func(o *service.Options) {
				if strings.HasPrefix(name, "guest never") {
					o.StartTimeout = 400 * time.Millisecond
				}
			})
			c.arrange(h)
			_, err := h.Create(t.Context(), carrel.CreateOptions{})
			if carrel.KindOf(err) != c.kind {
				t.Errorf("got %v (%v), want %v", err, carrel.KindOf(err), c.kind)
			}
			h.clean(t)
			created, ended := 0, 0
			for _, e := range h.events(t) {
				switch e.Type {
				case "sandbox.created":
					created++
				case "sandbox.ended":
					ended++
				}
			}
			if created != ended {
				t.Errorf("%d starts and %d ends were told", created, ended)
			}
			// A failure must not affect later creations. A slow machine may need more than the
			// short start timeout.
			*h.drv = *cleared(h.drv)
			h.store.PutFn, h.store.AppendFn = nil, nil
			for end := time.Now().Add(time.Minute); ; {
				if _, err = h.Create(t.Context(), carrel.CreateOptions{}); err == nil {
					break
				} else if carrel.KindOf(err) != carrel.Unavailable || !strings.HasPrefix(name, "guest never") || time.Now().After(end) {
					t.Fatal(err)
				}
			}
		})
	}
}

// cleared returns a driver without the faults, with the same sandboxes.
func cleared(d *fakeDriver) *fakeDriver { return &fakeDriver{live: d.live} }

// TestAbandonedCreate ends the caller's context during a creation, and then a sandbox during its
// creation.
func TestAbandonedCreate(t *testing.T) {
	h := newHouse(t, nil)
	h.drv.InitFn = func(carrel.ID) int { return 0 }
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := h.Create(ctx, carrel.CreateOptions{}); failed <- err }()
	awaitOne(t, h)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled creation: %v", err)
	}
	h.clean(t)
	go func() { _, err := h.Create(t.Context(), carrel.CreateOptions{}); failed <- err }()
	if err := h.Kill(t.Context(), awaitOne(t, h)); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, carrel.Conflict) {
		t.Errorf("a creation that was killed: %v, want Conflict", err)
	}
	h.clean(t)
}

// awaitOne waits until one sandbox's guest is being initialised.
func awaitOne(t *testing.T, h *house) carrel.ID {
	t.Helper()
	var one carrel.ID
	testenv.Eventually(t, "a sandbox starts", func() bool {
		for _, id := range h.drv.ids() {
			if in := h.drv.get(id); in != nil && len(in.inits()) > 0 {
				one = id
				return true
			}
		}
		return false
	})
	return one
}

func TestQuota(t *testing.T) {
	const most = 10
	h := newHouse(t, func(o *service.Options) { o.MaxSandboxes = most })
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := h.Create(t.Context(), carrel.CreateOptions{})
			switch {
			case err == nil:
				made.Add(1)
			case errors.Is(err, carrel.Exhausted) && carrel.HintOf(err) != "":
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != most || refused.Load() != 100-most || h.drv.most > most {
		t.Errorf("%d made, %d refused, %d at once; the quota is %d", made.Load(), refused.Load(), h.drv.most, most)
	}
	if st := h.Stats(); st.Running != most || st.Max != most {
		t.Errorf("stats %+v", st)
	}
	page, err := h.List(t.Context(), carrel.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Kill(t.Context(), page.Sandboxes[0].ID); err != nil {
		t.Fatal(err)
	}
	h.create(t, carrel.CreateOptions{})
}

// inBubble runs f with a fake clock.
func inBubble(t *testing.T, f func(t *testing.T, h *house)) {
	synctest.Test(t, func(t *testing.T) { f(t, newHouse(t, nil)) })
}

func TestExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		short := h.create(t, carrel.CreateOptions{Timeout: time.Minute})
		long := h.create(t, carrel.CreateOptions{Timeout: time.Hour})
		def := h.create(t, carrel.CreateOptions{})
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if _, err := h.Get(t.Context(), short.ID); err != nil {
			t.Errorf("ended too early: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err := h.Get(t.Context(), short.ID)
		if !errors.Is(err, carrel.NotFound) || !strings.Contains(err.Error(), "timeout") || !strings.Contains(err.Error(), "1m0s") {
			t.Errorf("after its minute: %v", err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if _, err := h.Get(t.Context(), def.ID); !errors.Is(err, carrel.NotFound) {
			t.Errorf("after the default timeout: %v", err)
		}
		if _, err := h.Get(t.Context(), long.ID); err != nil {
			t.Errorf("the hour is not over: %v", err)
		}
		logs, err := h.Logs(t.Context(), short.ID, carrel.LogOptions{})
		if err != nil || len(logs) != 2 || logs[1].Fields["reason"] != string(carrel.EndTimeout) {
			t.Errorf("logs: %+v, %v", logs, err)
		}
	})
}

func TestSetTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		sb := h.create(t, carrel.CreateOptions{Timeout: time.Minute})
		set := func(d time.Duration, extend bool, want time.Duration) {
			t.Helper()
			got, err := h.SetTimeout(t.Context(), sb.ID, d, extend)
			if err != nil || !got.Ends.Equal(time.Now().Add(want)) {
				t.Fatalf("SetTimeout(%v, %v): ends in %v, %v; want %v", d, extend, time.Until(got.Ends), err, want)
			}
			if d == 0 {
				return // its record may be gone by now
			}
			if rec, err := h.store.GetSandbox(t.Context(), sb.ID); err != nil || !rec.Sandbox.Ends.Equal(got.Ends) {
				t.Fatalf("the record says %v, %v", rec.Sandbox.Ends, err)
			}
		}
		set(10*time.Second, true, time.Minute)
		set(time.Hour, true, time.Hour)
		set(10*time.Second, false, 10*time.Second)
		time.Sleep(9 * time.Second)
		set(10*time.Second, false, 10*time.Second)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if _, err := h.Get(t.Context(), sb.ID); err != nil {
			t.Fatalf("ended at an old deadline: %v", err)
		}
		set(0, false, 0)
		synctest.Wait()
		if _, err := h.Get(t.Context(), sb.ID); !errors.Is(err, carrel.NotFound) {
			t.Errorf("after a timeout of 0: %v", err)
		}
		h.clean(t)
	})
}

// TestStuckDestroy shows that the service does not forget a sandbox that it can't destroy, and
// tries again.
func TestStuckDestroy(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		sb := h.create(t, carrel.CreateOptions{Timeout: time.Hour})
		var mended atomic.Bool
		h.drv.DestroyFn = func(carrel.ID) error {
			if mended.Load() {
				return nil
			}
			return &carrel.Error{Kind: carrel.Internal, Err: errors.New("busy")}
		}
		if err := h.Kill(t.Context(), sb.ID); !errors.Is(err, carrel.Internal) || carrel.HintOf(err) == "" {
			t.Fatalf("Kill: %v", err)
		}
		if got, err := h.Get(t.Context(), sb.ID); err != nil || got.State != carrel.Stopping {
			t.Errorf("it is %v, %v", got.State, err)
		}
		if rec, err := h.store.GetSandbox(t.Context(), sb.ID); err != nil || rec.Sandbox.State != carrel.Stopping {
			t.Errorf("its record says %v, %v", rec.Sandbox.State, err)
		}
		if _, err := h.Computer(t.Context(), sb.ID); !errors.Is(err, carrel.Conflict) {
			t.Errorf("Computer: %v", err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		mended.Store(true)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		h.clean(t)
		logs, err := h.Logs(t.Context(), sb.ID, carrel.LogOptions{})
		if err != nil || len(logs) != 2 || logs[1].Fields["reason"] != string(carrel.EndKilled) {
			t.Errorf("logs: %+v, %v", logs, err)
		}
	})
}

func TestEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		sb := h.create(t, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 256}})
		h.drv.get(sb.ID).die(driver.Exit{Reason: carrel.EndOutOfMemory, Message: "cgroup said so"})
		synctest.Wait()
		h.clean(t)
		evs := h.events(t)
		last := evs[len(evs)-1]
		if last.Type != "sandbox.ended" || last.Reason != carrel.EndOutOfMemory || !strings.Contains(last.Message, "256 MiB") || !strings.Contains(last.Message, "memoryMB") {
			t.Errorf("told %+v", last)
		}
		logs, err := h.Logs(t.Context(), sb.ID, carrel.LogOptions{})
		if err != nil || logs[len(logs)-1].Level != "error" {
			t.Errorf("logs: %+v, %v", logs, err)
		}
	})
}

func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		sb := h.create(t, carrel.CreateOptions{Timeout: time.Hour, Limits: carrel.Limits{CPUs: 1.5}})
		first, err := h.Metrics(t.Context(), sb.ID, time.Time{}, time.Time{})
		if err != nil || len(first) != 1 || first[0].CPUCount != 1.5 || first[0].MemUsed != 100<<20 || first[0].MemTotal != 1024<<20 || first[0].DiskTotal != 10240<<20 {
			t.Fatalf("first: %+v, %v", first, err)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		all, err := h.Metrics(t.Context(), sb.ID, time.Time{}, time.Time{})
		if err != nil || len(all) < 6 || len(all) > 8 {
			t.Fatalf("%d samples in 31 s, %v", len(all), err)
		}
		last := all[len(all)-1]
		if last.CPUUsedPct < 15 || last.CPUUsedPct > 25 { // the fake uses a second per sample, every 5 s
			t.Errorf("used %v %%", last.CPUUsedPct)
		}
		some, err := h.Metrics(t.Context(), sb.ID, all[2].Time, all[4].Time)
		if err != nil || len(some) != 3 {
			t.Errorf("%d samples between, %v", len(some), err)
		}
	})
}

// TestMetricsOfNetwork shows that a sample has the traffic that the wire has counted.
func TestMetricsOfNetwork(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.Networks = &networks{} })
	sb := h.create(t, carrel.CreateOptions{Timeout: time.Hour})
	m, err := h.Metrics(t.Context(), sb.ID, time.Time{}, time.Time{})
	if err != nil || len(m) == 0 || m[0].NetSent != 70 || m[0].NetReceived != 7 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestMetricsAtRest shows that an idle sandbox is measured less and less often, up to a bound,
// until a visitor comes or a caller asks.
func TestMetricsAtRest(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		sb := h.create(t, carrel.CreateOptions{Timeout: 3 * time.Hour})
		in := h.drv.get(sb.ID)
		in.rest()
		count := func(d time.Duration) int {
			before := in.measured()
			time.Sleep(d)
			synctest.Wait()
			return in.measured() - before
		}
		count(5 * time.Minute)
		if n := count(30 * time.Minute); n < 25 || n > 35 {
			t.Errorf("%d samples in 30 minutes at rest, not one a minute", n)
		}
		_, done, err := h.Visit(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if n := count(21 * time.Second); n < 2 {
			t.Errorf("%d samples in 20 s after a visit", n)
		}
		count(5 * time.Minute)
		all, err := h.Metrics(t.Context(), sb.ID, time.Time{}, time.Time{})
		if err != nil || time.Since(all[len(all)-1].Time) > 5*time.Second {
			t.Errorf("the newest is %v old: %v", time.Since(all[len(all)-1].Time), err)
		}
		count(2 * time.Hour)
		all, err = h.Metrics(t.Context(), sb.ID, time.Time{}, time.Time{})
		if err != nil || len(all) > 80 {
			t.Errorf("%d are kept, %v", len(all), err)
		}
		for i, m := range all {
			if i > 0 && !m.Time.After(all[i-1].Time) {
				t.Fatalf("%v comes after %v", m.Time, all[i-1].Time)
			}
		}
	})
}

func TestList(t *testing.T) {
	h := newHouse(t, nil)
	var want []carrel.ID // newest first
	for i := range 25 {
		sb := h.create(t, carrel.CreateOptions{Metadata: map[string]string{"n": fmt.Sprint(i), "odd": fmt.Sprint(i%2 == 1)}})
		want = append([]carrel.ID{sb.ID}, want...)
	}
	collect := func(o carrel.ListOptions, between func()) (got []carrel.ID) {
		for {
			page, err := h.List(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, sb := range page.Sandboxes {
				got = append(got, sb.ID)
			}
			if o.Cursor = page.Next; o.Cursor == "" {
				return got
			}
			if len(page.Sandboxes) != o.Limit {
				t.Errorf("a page of %d", len(page.Sandboxes))
			}
			if between != nil {
				between()
				between = nil
			}
		}
	}
	if got := collect(carrel.ListOptions{Limit: 7}, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := collect(carrel.ListOptions{Limit: 5, OldestFirst: true}, nil); len(got) != 25 || got[0] != want[24] || got[24] != want[0] {
		t.Errorf("oldest first: %v", got)
	}
	page, err := h.List(t.Context(), carrel.ListOptions{Metadata: map[string]string{"odd": "true"}, Limit: 3})
	if err != nil || page.Running != 12 || len(page.Sandboxes) != 3 || page.Sandboxes[0].Metadata["n"] != "23" {
		t.Errorf("filtered: %+v, %v", page, err)
	}
	for _, o := range []carrel.ListOptions{{Template: "nope"}, {States: []carrel.State{carrel.Paused}}, {StartedAfter: time.Now()}, {Metadata: map[string]string{"odd": ""}}} {
		if page, err := h.List(t.Context(), o); err != nil || len(page.Sandboxes) != 0 || page.Running != 0 {
			t.Errorf("%+v lists %d, %v", o, len(page.Sandboxes), err)
		}
	}
	for _, name := range []string{baseTemplate.ID, "base", "base:default"} {
		if page, err := h.List(t.Context(), carrel.ListOptions{Template: name}); err != nil || page.Running != 25 {
			t.Errorf("template %s: %d, %v", name, page.Running, err)
		}
	}
	// Between two pages, the cursor's own sandbox goes and a new one comes.
	got := collect(carrel.ListOptions{Limit: 10}, func() {
		if err := h.Kill(t.Context(), want[9]); err != nil {
			t.Fatal(err)
		}
		h.create(t, carrel.CreateOptions{})
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with changes between pages: %v, want %v", got, want)
	}
}

func TestEvents(t *testing.T) {
	h := newHouse(t, nil)
	const n = 400 // more than one page of the store
	for range n {
		_, err := h.store.AppendEvent(t.Context(), carrel.Event{Type: "old", Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func(after int64) chan carrel.Event {
		c := make(chan carrel.Event, 4*n)
		seq := h.Events(ctx, after)
		go func() {
			defer close(c)
			for e, err := range seq {
				if err != nil {
					t.Error(err)
				}
				c <- e
			}
		}()
		return c
	}
	all := follow(1)
	sb := h.create(t, carrel.CreateOptions{}) // makes the service learn the newest number
	live := follow(0)
	if err := h.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	next := int64(2)
	for e := range all {
		if e.Seq != next {
			t.Fatalf("event %d after %d", e.Seq, next-1)
		}
		next++
		if e.Type == "sandbox.ended" {
			break
		}
	}
	if next < n {
		t.Errorf("only %d events", next)
	}
	if e := <-live; e.Type != "sandbox.ended" || e.ID != sb.ID {
		t.Errorf("from now: %+v", e)
	}
	cancel()
	for range all {
		t.Error("an event after the end")
	}
	for range live {
		t.Error("an event after the end")
	}
	for _, err := range h.Events(t.Context(), -1) {
		if !errors.Is(err, carrel.Invalid) {
			t.Errorf("after -1: %v", err)
		}
	}
}

// TestRestart acts like kill -9: a second service opens on the same store, while the first one does
// nothing any more. The second must adopt every living sandbox.
func TestRestart(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.KillOnClose = false })
	var made []carrel.Sandbox
	for i := range 20 {
		made = append(made, h.create(t, carrel.CreateOptions{Timeout: time.Hour, Metadata: map[string]string{"n": fmt.Sprint(i)}}))
	}
	gone := h.create(t, carrel.CreateOptions{})
	late := h.create(t, carrel.CreateOptions{Timeout: time.Hour})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	// This sandbox's time runs out while no service is there.
	rec, err := h.store.GetSandbox(t.Context(), late.ID)
	if err != nil {
		t.Fatal(err)
	}
	rec.Sandbox.Ends = time.Now().Add(-time.Second)
	if err := h.store.PutSandbox(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if n := len(h.drv.ids()); n != 22 {
		t.Fatalf("%d sandboxes outlived the service, want 22", n)
	}
	if _, err := h.Create(t.Context(), carrel.CreateOptions{}); !errors.Is(err, carrel.Unavailable) {
		t.Errorf("Create on a closed service: %v", err)
	}
	if err := h.drv.get(gone.ID).Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Leave a creation that had only its first record, with its directory, and a directory without
	// any record.
	half := state.Record{Sandbox: carrel.Sandbox{ID: carrel.NewID(), Tier: carrel.Sim, State: carrel.Starting, Started: time.Now()}}
	if err := h.store.PutSandbox(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	nobody := carrel.NewID()
	for _, id := range []carrel.ID{half.Sandbox.ID, nobody} {
		if err := os.MkdirAll(filepath.Join(h.dir, string(id), "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	next := h.open(t, nil)
	h.Service = next
	for _, want := range made {
		got, err := next.Get(t.Context(), want.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("adopted %+v, %v\nwant %+v", got, err, want)
		}
		if _, err := next.Computer(t.Context(), want.ID); err != nil {
			t.Error(err)
		}
	}
	testenv.EventuallyNil(t, "all of them run and the rest is stopped", func() error {
		if st := next.Stats(); st.Running != len(made) || st.Stopping != 0 {
			return fmt.Errorf("%+v, want %d running", st, len(made))
		}
		return nil
	})
	// The directory without a record stays, because the record may have been lost.
	if dirs, _ := filepath.Glob(filepath.Join(h.dir, "i*")); len(dirs) != len(made)+1 || !slices.Contains(dirs, filepath.Join(h.dir, string(nobody))) {
		t.Errorf("%d directories, want %d", len(dirs), len(made)+1)
	}
	if list, err := next.Unclaimed(t.Context()); err != nil || len(list) != 1 || list[0].ID != string(nobody) {
		t.Errorf("unclaimed: %+v, %v", list, err)
	}
	reasons := map[carrel.ID]carrel.EndReason{}
	for _, e := range h.events(t) {
		if e.Type == "sandbox.ended" {
			reasons[e.ID] = e.Reason
		}
	}
	if want := (map[carrel.ID]carrel.EndReason{gone.ID: carrel.EndLost, late.ID: carrel.EndTimeout}); !reflect.DeepEqual(reasons, want) {
		t.Errorf("ends told: %v, want %v", reasons, want)
	}
	if _, err := next.Get(t.Context(), gone.ID); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("of the lost one: %v", err)
	}
}

// TestRecoverLater shows that no sandbox is lost when a driver can't adopt now.
func TestRecoverLater(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.KillOnClose = false })
	sb := h.create(t, carrel.CreateOptions{Timeout: time.Hour})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.open(t, func(o *service.Options) { o.Drivers = driver.NewRegistry() })
	if _, err := h.store.GetSandbox(t.Context(), sb.ID); err != nil {
		t.Fatalf("the record is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, string(sb.ID))); err != nil {
		t.Fatal(err)
	}
	if got, err := h.open(t, nil).Get(t.Context(), sb.ID); err != nil || got.AccessToken != sb.AccessToken {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestKillOnClose(t *testing.T) {
	h := newHouse(t, nil)
	for range 5 {
		h.create(t, carrel.CreateOptions{})
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.clean(t)
	for _, err := range h.Events(t.Context(), 1) {
		if err != nil {
			if !errors.Is(err, carrel.Unavailable) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("Events of a closed service ended without an error")
}

func TestDoctor(t *testing.T) {
	h := newHouse(t, nil)
	checks, err := h.Doctor(t.Context())
	if err != nil || len(checks) != 1 || checks[0].Err != nil || !checks[0].Default || checks[0].Driver != "fake" {
		t.Errorf("%+v, %v", checks, err)
	}
	h.drv.ProbeFn = func() error { return &carrel.Error{Kind: carrel.Unsupported, Hint: "h"} }
	if checks, err = h.Doctor(t.Context()); err != nil || !errors.Is(checks[0].Err, carrel.Unsupported) {
		t.Errorf("%+v, %v", checks, err)
	}
}

// BenchmarkCreateKill measures the cost of the service itself. Package sqlite measures a durable
// write; a sandbox's life has two pairs of them.
func BenchmarkCreateKill(b *testing.B) {
	h := newHouse(b, nil)
	for b.Loop() {
		sb := h.create(b, carrel.CreateOptions{})
		if err := h.Kill(b.Context(), sb.ID); err != nil {
			b.Fatal(err)
		}
	}
}
