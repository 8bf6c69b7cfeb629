package bench

import (
	"fmt"
	"io"
	"strings"
)

// target is one of the project's targets for speed and scale, on two cores and 24 GiB without KVM.
// It is met if all its conditions are.
type target struct {
	what       string
	conditions []condition
}

// condition is a bound for one figure of one row.
type condition struct {
	key   string
	label string // text before the figure; may be empty
	unit  string
	least bool // the bound is a lower one
	bound float64
	tail  bool // use the 99th percentile, not the median
}

// targets are all of them.
var targets = []target{
	{"warm create → first command's output, one at a time", []condition{
		{key: "create.warm", unit: " ms", bound: 10}, {key: "create.warm", label: "p99 ", unit: " ms", bound: 30, tail: true}}},
	{"cold create → first command's output", []condition{
		{key: "create.cold", unit: " ms", bound: 60}, {key: "create.stock runsc/cold", label: "faster than stock runsc run + exec by ", unit: " ×", bound: 1.5, least: true}}},
	{"burst of 50 creates at once from a pool of 50: the last one answers", []condition{{key: "burst.warm", unit: " ms", bound: 250}}},
	{"sustained cold creates", []condition{
		{key: "sustained", unit: "/s", bound: 25, least: true}, {key: "sustained.drift", label: "the last ÷ the first ", unit: " ×", bound: 1.15}}},
	{"exec round trip", []condition{{key: "exec.go", label: "Go ", unit: " ms", bound: 5}, {key: "exec.npm", label: "npm ", unit: " ms", bound: 8}}},
	{"idle gVisor sandboxes", []condition{
		{key: "density.alive", label: "alive ", bound: 2000, least: true}, {key: "density.memory", unit: " MiB each", bound: 10},
		{key: "density.exec.p95", label: "exec p95 ", unit: " ms", bound: 60}, {key: "density.daemon", label: "daemon ", unit: " MiB", bound: 400},
		{key: "density.cpu", label: "daemon ", unit: " % of a core", bound: 5}}},
	{"resume and fork with others idle", []condition{
		{key: "density.others", label: "others ", bound: othersIdle, least: true},
		{key: "density.resume", label: "resume ", unit: " ms", bound: 110}, {key: "density.fork", label: "forks ", unit: "/s", bound: 15, least: true}}},
	{"with 10,000 and 100,000 paused sandboxes ÷ with 100", []condition{
		{key: "sleepers.create/1", label: "create ", unit: " ×", bound: sleepersBound}, {key: "sleepers.create/2", label: "create ", unit: " ×", bound: sleepersBound},
		{key: "sleepers.list/1", label: "list ", unit: " ×", bound: sleepersBound}, {key: "sleepers.list/2", label: "list ", unit: " ×", bound: sleepersBound}}},
	{"10 × overload", []condition{
		{key: "overload.goodput", label: "served ÷ what can be served ", unit: " ×", bound: 0.8, least: true}, {key: "overload.left", label: "left behind ", bound: 0}}},
	{"carrel run true ÷ bwrap true", []condition{{key: "run.true/bwrap", unit: " ×", bound: 2.5}}},
	{"carrel run --allow true", []condition{{key: "run.allow", unit: " ms", bound: 30}}},
	{"work inside a box ÷ the same outside", []condition{{key: "run.inside.git", label: "git status ", unit: " ×", bound: 1.1}}},
	{"soak at 5 creates per second: growth", []condition{
		{key: "soak.failed", label: "failed ", bound: 0}, {key: "soak.memory", label: "memory ", unit: " MiB", bound: 8},
		{key: "soak." + heldDescriptors, label: "descriptors ", bound: 64}, {key: "soak." + heldMounts, label: "mounts ", bound: 0},
		{key: "soak." + heldSpaces, label: "netns ", bound: 0}, {key: "soak." + heldCgroups, label: "cgroups ", bound: 0},
		{key: "soak." + heldDirectories, label: "directories ", bound: 0}}},
}

// printTargets writes the targets for which something was measured.
func printTargets(w io.Writer, rows []row) {
	by := map[string]row{}
	for _, r := range rows {
		if r.Key != "" {
			by[r.Key] = r
		}
	}
	fmt.Fprintf(w, "\n| target | measured | |\n|---|---|---|\n")
	for _, t := range targets {
		text, met, measured := t.check(by)
		if !measured {
			fmt.Fprintf(w, "| %s | not measured | |\n", t.what)
			continue
		}
		verdict := "met"
		if !met {
			verdict = "missed"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", t.what, text, verdict)
	}
}

// check compares a target with the results. If a figure was not measured, it says so, and the
// target is not met.
func (t target) check(by map[string]row) (text string, met, measured bool) {
	var parts []string
	met = true
	for _, c := range t.conditions {
		r, ok := by[c.key]
		sign := "≤"
		if c.least {
			sign = "≥"
		}
		bound := fmt.Sprintf("(%s %g)", sign, c.bound)
		if !ok {
			met = false
			parts = append(parts, c.label+"not measured "+bound)
			continue
		}
		measured = true
		value := r.Median
		if c.tail {
			value = r.P99
		}
		if c.least && value < c.bound || !c.least && value > c.bound {
			met = false
			bound = "**" + bound + "**"
		}
		text := fmt.Sprintf("%.3g", value)
		if value >= 1000 {
			text = fmt.Sprintf("%.0f", value)
		}
		parts = append(parts, c.label+text+c.unit+" "+bound)
	}
	return strings.Join(parts, ", "), met, measured
}
