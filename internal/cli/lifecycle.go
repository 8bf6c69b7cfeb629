package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// lifecycleFlags are the flags for a sandbox's lifecycle.
type lifecycleFlags struct{ value carrel.Lifecycle }

// add registers the flags.
func (l *lifecycleFlags) add(f *pflag.FlagSet) {
	v := &l.value
	f.StringVar((*string)(&v.OnTimeout), "on-timeout", "", "kill or pause it when its timeout passes (default with a timeout: kill)")
	f.BoolVar(&v.AutoResume, "auto-resume", false, "wake it, when it is paused, with the next request to it")
	f.BoolVar(&v.FilesOnly, "pause-files-only", false, "keep the files only when it is paused by itself")
	f.DurationVar(&v.Idle.After, "pause-idle", 0, "pause it when nothing happened in it for so long; the next request wakes it (0: never; create without a timeout: 30m)")
	f.Float64Var(&v.Idle.CPUPct, "idle-cpu", 0, "percent of a core below which it is idle (default 5)")
	f.BoolVar(&v.Idle.IgnoreCommands, "idle-ignore-commands", false, "commands that use no processor don't keep it from being idle")
	f.DurationVar(&v.Checkpoints.Every, "checkpoint-every", 0, "take a snapshot so often (0: never)")
	f.StringArrayVar(&v.Checkpoints.Before, "checkpoint-before", nil, `take a snapshot before each command whose line matches this regular expression (repeat; "" for none)`)
	f.BoolVar(&v.Checkpoints.FilesOnly, "checkpoint-files-only", false, "such snapshots keep the files only")
	f.IntVar(&v.Retention.Last, "keep-last", 0, "so many of the newest snapshots stay that nobody asked for (default 20)")
	f.DurationVar(&v.Retention.For, "keep-for", 0, "and those younger than this")
}

// idleTime is how long a sandbox from the command line must be idle before it is paused.
const idleTime = 30 * time.Minute

// pauseWhenIdle gives a new sandbox the command line's default: it is paused when it is idle, and
// never killed. If the user sets a timeout, or an action at a timeout, the default does not apply.
func pauseWhenIdle(f *pflag.FlagSet, opts *carrel.CreateOptions) {
	if f.Changed("timeout") || f.Changed("on-timeout") {
		return
	}
	opts.NoTimeout, opts.Lifecycle.OnTimeout = true, carrel.ActionPause
	if !f.Changed("pause-idle") {
		opts.Lifecycle.Idle.After = idleTime
	}
}

// apply sets the fields of to whose flags were given, and reports whether any was.
func (l *lifecycleFlags) apply(f *pflag.FlagSet, to *carrel.Lifecycle) bool {
	from, any := l.value, false
	for flag, set := range map[string]func(){
		"on-timeout":           func() { to.OnTimeout = from.OnTimeout },
		"auto-resume":          func() { to.AutoResume = from.AutoResume },
		"pause-files-only":     func() { to.FilesOnly = from.FilesOnly },
		"pause-idle":           func() { to.Idle.After = from.Idle.After },
		"idle-cpu":             func() { to.Idle.CPUPct = from.Idle.CPUPct },
		"idle-ignore-commands": func() { to.Idle.IgnoreCommands = from.Idle.IgnoreCommands },
		"checkpoint-every":     func() { to.Checkpoints.Every = from.Checkpoints.Every },
		"checkpoint-before": func() {
			if to.Checkpoints.Before = from.Checkpoints.Before; len(from.Checkpoints.Before) == 1 && from.Checkpoints.Before[0] == "" {
				to.Checkpoints.Before = nil
			}
		},
		"checkpoint-files-only": func() { to.Checkpoints.FilesOnly = from.Checkpoints.FilesOnly },
		"keep-last":             func() { to.Retention.Last = from.Retention.Last },
		"keep-for":              func() { to.Retention.For = from.Retention.For },
	} {
		if f.Changed(flag) {
			set()
			any = true
		}
	}
	return any
}

// lifecycleCommand is "carrel lifecycle".
func (a *app) lifecycleCommand() *cobra.Command {
	var flags lifecycleFlags
	c := &cobra.Command{
		Use:   "lifecycle ID",
		Short: "Show or change what happens to a sandbox by itself",
		Long: `Shows what happens to a sandbox by itself: at its timeout, when it is idle, and
which snapshots are taken and removed. With flags it changes that first; what no
flag names stays.`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		sb, err := svc.Get(ctx, id)
		if err != nil {
			return err
		}
		if flags.apply(c.Flags(), &sb.Lifecycle) {
			if sb, err = svc.SetLifecycle(ctx, id, sb.Lifecycle); err != nil {
				return err
			}
		}
		if a.json {
			return a.printJSON(sb.Lifecycle)
		}
		return a.table([]string{"FIELD", "VALUE"}, lifecycleRows(sb.Lifecycle))
	})
	flags.add(c.Flags())
	return c
}

// lifecycleRows writes a lifecycle for people.
func lifecycleRows(l carrel.Lifecycle) [][]string {
	onTimeout, idle, what := first(string(l.OnTimeout), string(carrel.ActionKill)), "never", ""
	if l.FilesOnly {
		what = ", files only"
	}
	if l.OnTimeout == carrel.ActionPause {
		onTimeout += what
	}
	if l.Idle.After > 0 {
		pct := l.Idle.CPUPct
		if pct == 0 {
			pct = 5
		}
		idle = fmt.Sprintf("after %v below %g %% of a core%s", l.Idle.After, pct, what)
		if l.Idle.IgnoreCommands {
			idle += ", whatever commands run"
		}
	}
	var points []string
	if every := l.Checkpoints.Every; every > 0 {
		points = append(points, fmt.Sprintf("every %v", every))
	}
	for _, re := range l.Checkpoints.Before {
		points = append(points, "before "+quoted(re, false))
	}
	if l.Checkpoints.FilesOnly && len(points) > 0 {
		points = append(points, "files only")
	}
	last := l.Retention.Last
	if last == 0 {
		last = 20
	}
	keep := "the last " + strconv.Itoa(last)
	if l.Retention.For > 0 {
		keep += fmt.Sprintf(", and those younger than %v", l.Retention.For)
	}
	return [][]string{{"on timeout", onTimeout}, {"wakes by itself", strconv.FormatBool(wakes(l))}, {"pauses when idle", idle},
		{"checkpoints", first(strings.Join(points, ", "), "none")}, {"keeps of them", keep}}
}
