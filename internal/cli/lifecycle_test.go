package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestCreatePausesWhenIdle shows that a sandbox from the command line is never killed, unless the
// user asks for a timeout.
func TestCreatePausesWhenIdle(t *testing.T) {
	pause, idle := carrel.ActionPause, func(d time.Duration) carrel.Idle { return carrel.Idle{After: d} }
	for line, want := range map[string]carrel.CreateOptions{
		"":                                {NoTimeout: true, Lifecycle: carrel.Lifecycle{OnTimeout: pause, Idle: idle(30 * time.Minute)}},
		"--pause-idle 2h":                 {NoTimeout: true, Lifecycle: carrel.Lifecycle{OnTimeout: pause, Idle: idle(2 * time.Hour)}},
		"--pause-idle 0":                  {NoTimeout: true, Lifecycle: carrel.Lifecycle{OnTimeout: pause}},
		"--timeout 5m":                    {Timeout: 5 * time.Minute},
		"--timeout 5m --pause-idle 1m":    {Timeout: 5 * time.Minute, Lifecycle: carrel.Lifecycle{Idle: idle(time.Minute)}},
		"--timeout 5m --on-timeout pause": {Timeout: 5 * time.Minute, Lifecycle: carrel.Lifecycle{OnTimeout: pause}},
		"--on-timeout kill":               {Lifecycle: carrel.Lifecycle{OnTimeout: carrel.ActionKill}},
		"--from s0000001" + strings.Repeat("0", 13): {NoTimeout: true, Lifecycle: carrel.Lifecycle{OnTimeout: pause, Idle: idle(30 * time.Minute)}},
	} {
		f := &fake{}
		if got := f.run(t, append([]string{"create"}, strings.Fields(line)...)...); got.code != 0 {
			t.Errorf("%s: %v", line, got)
		}
		got := f.created
		if got.Timeout != want.Timeout || got.NoTimeout != want.NoTimeout || got.Lifecycle.OnTimeout != want.Lifecycle.OnTimeout ||
			got.Lifecycle.Idle != want.Lifecycle.Idle {
			t.Errorf("create %s asks for %+v", line, got)
		}
	}
}

// TestEndText shows that a list tells, for each sandbox, whether it ends or pauses by itself.
func TestEndText(t *testing.T) {
	box := func(l carrel.Lifecycle) carrel.Sandbox {
		return carrel.Sandbox{State: carrel.Running, Ends: noon.Add(5 * time.Minute), Lifecycle: l}
	}
	idle := carrel.Idle{After: 30 * time.Minute}
	for want, sb := range map[string]carrel.Sandbox{
		"5m0s":                           box(carrel.Lifecycle{}),
		"5m0s, pauses after 30m0s idle":  box(carrel.Lifecycle{Idle: idle}),
		"never, pauses in 5m0s":          box(carrel.Lifecycle{OnTimeout: carrel.ActionPause}),
		"never, pauses after 30m0s idle": box(carrel.Lifecycle{OnTimeout: carrel.ActionPause, Idle: idle}),
		"–":                              {State: carrel.Paused, Ends: noon},
	} {
		if got := endText(sb, noon); got != want {
			t.Errorf("%+v: %q, want %q", sb.Lifecycle, got, want)
		}
	}
}
