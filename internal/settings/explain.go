package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/policy"
)

// Explain describes the whole box in words, one line each, in groups. With sources each line also
// says where it comes from. Unusual names are quoted, so that a file's name can't control the
// terminal.
func (b *Box) Explain(sources bool) []string {
	e := &explainer{b: b, sources: sources}
	e.head()
	e.files()
	e.network()
	e.environment()
	e.limits()
	for _, n := range b.Notes {
		e.add("note: %s", strings.TrimPrefix(n, "!"))
	}
	return e.lines
}

// explainer collects lines.
type explainer struct {
	b       *Box
	sources bool
	lines   []string
}

func (e *explainer) add(format string, args ...any) {
	e.lines = append(e.lines, fmt.Sprintf(format, args...))
}

// item adds one indented line, with the rule behind it.
func (e *explainer) item(text, rule string, source Source) {
	switch {
	case rule == "":
	case e.sources && !strings.HasPrefix(rule, string(source)) && !strings.HasPrefix(rule, "--"):
		text += "  (" + rule + "; " + string(source) + ")"
	case e.sources:
		text += "  (" + rule + ")"
	case strings.HasPrefix(rule, "built-in: "):
		text += "  (" + strings.TrimPrefix(rule, "built-in: ") + ")"
	}
	e.add("  %s", text)
}

func (e *explainer) short(p string) string {
	if e.b.Home != "/" && inside(p, e.b.Home) {
		p = "~" + p[len(e.b.Home):]
	}
	return show(p)
}

func (e *explainer) head() {
	b := e.b
	e.add("working directory: %s", e.short(b.Dir))
	walls := ""
	if b.Light {
		walls = ", light: Landlock and a system call filter, no namespaces"
	}
	e.add("tier: %s%s", b.Tier, walls)
	if len(b.Profiles) > 0 {
		e.add("profiles: %s", strings.Join(b.Profiles, ", "))
	}
	if e.sources {
		var all []string
		for _, s := range b.Layers {
			all = append(all, string(s))
		}
		e.add("settings, weakest first: built-in%s", strings.Join(append([]string{""}, all...), ", "))
	}
	if b.Overlay {
		e.add("overlay: changes to files go to a layer apart")
	}
}

func (e *explainer) files() {
	b := e.b
	switch {
	case b.ReadDefault == Denied:
		e.add("reads only:")
	default:
		e.add("reads everything but:")
	}
	for _, r := range b.Paths {
		if (r.Access == Denied) == (b.ReadDefault != Denied) {
			e.item(e.short(r.Path), r.Rule, r.Source)
		}
	}
	e.exceptions()
	if b.WriteDefault == Writable {
		e.add("writes everything but:")
	} else {
		e.add("writes only:")
		for _, r := range b.Paths {
			if r.Access == Writable {
				e.item(e.short(r.Path), r.Rule, r.Source)
			}
		}
		for _, r := range b.Replaced {
			e.item(e.short(r.Path)+" and, to replace it, what is beside it and begins with its name", r.Rule, r.Source)
		}
		if len(b.Private) > 0 {
			e.add("  %s  (its own, empty at first)", strings.Join(b.Private, ", "))
		}
		e.add("and of that never:")
	}
	for _, r := range b.Paths {
		if r.Access == Readable && (b.WriteDefault == Writable || e.writableAbove(r.Path)) {
			e.item(e.short(r.Path), r.Rule, r.Source)
		}
	}
	e.protected()
}

// exceptions lists open paths inside closed ones.
func (e *explainer) exceptions() {
	if e.b.ReadDefault == Denied {
		return
	}
	var open []PathRule
	for _, r := range e.b.Paths {
		if r.Access != Denied && e.deniedAbove(r.Path) {
			open = append(open, r)
		}
	}
	if len(open) > 0 {
		e.add("but reads of that:")
		for _, r := range open {
			e.item(e.short(r.Path), r.Rule, r.Source)
		}
	}
}

func (e *explainer) deniedAbove(p string) bool   { return e.aboveIs(p, Denied) }
func (e *explainer) writableAbove(p string) bool { return e.aboveIs(p, Writable) }

func (e *explainer) aboveIs(p string, a Access) bool {
	best := PathRule{}
	for _, r := range e.b.Paths {
		if r.Path != p && inside(p, r.Path) && len(r.Path) > len(best.Path) {
			best = r
		}
	}
	return best.Access == a
}

// protected lists the names that are never written, grouped by their rule.
func (e *explainer) protected() {
	var order []string
	names := map[string][]string{}
	for i := range e.b.Protected {
		p := &e.b.Protected[i]
		if strings.HasPrefix(p.Pattern, "/") && p.Source == "built-in" && !e.b.writableNear(p.Pattern) {
			continue
		}
		key := p.Rule
		if names[key] == nil {
			order = append(order, key)
		}
		text := e.short(p.Pattern)
		if len(p.Except) > 0 {
			var open []string
			for _, x := range p.Except {
				open = append(open, e.short(x))
			}
			text += " (but " + strings.Join(open, ", ") + ")"
		}
		names[key] = append(names[key], text)
	}
	for _, rule := range order {
		e.item("there and in its repositories: "+strings.Join(names[rule], " "), rule, "built-in")
	}
}

// writableNear reports whether a path could be created: a directory above it is open for writing.
func (b *Box) writableNear(p string) bool { return b.ruleOf(p).Access == Writable }

func (e *explainer) network() {
	b := e.b
	switch {
	case b.Host:
		e.add("network: this machine's own, with no wall")
	case b.Closed:
		e.add("network: nothing leaves")
	default:
		e.add("network:")
		for _, r := range b.Policy.Rules {
			verb, dest := "allow", r.Allow
			if len(r.Deny) > 0 {
				verb, dest = "deny", r.Deny
			}
			text := verb + " " + strings.Join(dest, ", ")
			if r.Protocol != "" {
				text += " " + r.Protocol
			}
			if len(r.Ports) > 0 {
				text += " ports " + strings.Join(r.Ports, ", ")
			}
			if len(r.Methods) > 0 {
				text += " " + strings.Join(r.Methods, ", ")
			}
			if len(r.Paths) > 0 {
				text += " " + strings.Join(r.Paths, ", ")
			}
			rule := ""
			if e.sources {
				rule = show(r.Name)
			}
			e.item(show(text), rule, Source(rule))
		}
		for _, p := range b.Policy.Presets {
			e.add("  allow what the preset %s allows%s", show(p), presetText(p))
		}
		for _, i := range b.Policy.Inject {
			e.add("  put a credential into requests to %s", show(i.Host))
		}
		if b.Policy.Default == "allow" {
			e.add("  allow the rest of the internet, but not this machine or private networks")
		} else {
			e.add("  deny the rest")
		}
	}
	if slices.Contains(b.Sockets, "*") {
		e.add("unix sockets outside: all")
	} else if len(b.Sockets) > 0 {
		e.add("unix sockets outside: %s", strings.Join(shownAll(b.Sockets), ", "))
	}
	if !b.Bind {
		e.add("listens on no port")
	}
	if len(b.Publish) > 0 {
		e.add("ports that are reachable from outside: %s", strings.Join(shownAll(b.Publish), ", "))
	}
}

func presetText(name string) string {
	for _, p := range policy.Presets() {
		if p.Name == name {
			return " (" + p.Description + ")"
		}
	}
	return ""
}

func shownAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = show(s)
	}
	return out
}

func (e *explainer) environment() {
	var kept, changed []string
	var stripped []EnvVar
	for _, v := range e.b.Env {
		switch {
		case !v.Kept:
			stripped = append(stripped, v)
		case v.Source == "built-in":
			kept = append(kept, show(v.Name))
		default:
			changed = append(changed, show(v.Name))
		}
	}
	e.add("environment: %d variables", len(kept)+len(changed))
	if len(changed) > 0 {
		e.add("  passed or set: %s", strings.Join(changed, " "))
	}
	if e.sources && len(kept) > 0 {
		e.add("  kept: %s", strings.Join(kept, " "))
	}
	if len(stripped) == 0 {
		return
	}
	if e.sources {
		for _, v := range stripped {
			e.item("stripped: "+show(v.Name), v.Rule, v.Source)
		}
		return
	}
	var names []string
	for _, v := range stripped {
		names = append(names, show(v.Name))
	}
	e.add("  stripped: %s", strings.Join(names, " "))
}

func (e *explainer) limits() {
	b := e.b
	var out []string
	add := func(name, value string, given bool) {
		if given {
			out = append(out, name+" "+value)
		}
	}
	add("cpus", strconv.FormatFloat(b.CPUs, 'g', -1, 64), b.CPUs > 0)
	add("memory", sizeText(b.MemoryMB), b.MemoryMB > 0)
	add("processes", strconv.Itoa(b.Pids), b.Pids > 0)
	add("each file", sizeText(b.FileMB), b.FileMB > 0)
	add("/tmp", sizeText(b.TmpMB), b.TmpMB > 0)
	add("open files", strconv.Itoa(b.OpenFiles), b.OpenFiles > 0)
	add("time", b.Timeout.String(), b.Timeout > 0)
	if len(out) == 0 {
		out = []string{"none"}
	}
	e.add("limits: %s", strings.Join(out, ", "))
}

// sizeText writes MiB in the form that ParseSize reads.
func sizeText(mb int) string {
	switch {
	case mb%(1<<20) == 0:
		return strconv.Itoa(mb>>20) + "TiB"
	case mb%(1<<10) == 0:
		return strconv.Itoa(mb>>10) + "GiB"
	}
	return strconv.Itoa(mb) + "MiB"
}
