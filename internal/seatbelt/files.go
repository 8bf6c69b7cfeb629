package seatbelt

import (
	"path"
	"slices"

	"github.com/carrel-dev/carrel/internal/settings"
)

// reading are the operations that a permission to read includes: whoever may read a file may also
// run it.
const reading = "file-read* file-map-executable process-exec"

// byDepth returns the rules about paths as the kernel sees them, in groups of one depth, the
// shallowest first. In one group no rule's path is inside another's.
func (w *writer) byDepth() [][]settings.PathRule {
	var all []settings.PathRule
	for _, r := range w.box.Paths {
		r.Path = w.real(r.Path)
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b settings.PathRule) int { return depth(a.Path) - depth(b.Path) })
	var out [][]settings.PathRule
	for i, r := range all {
		if i == 0 || depth(r.Path) != depth(all[i-1].Path) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// reads writes the rules for reading.
func (w *writer) reads() {
	w.comment("reading")
	open := w.box.ReadDefault != settings.Denied
	if open {
		w.rule("allow", reading)
	}
	var denied, allowed []string // all paths with a rule, of both kinds
	closed := map[string]bool{}
	for _, group := range w.byDepth() {
		var yes, no []string
		for _, r := range group {
			if r.Access == settings.Denied {
				no, denied = append(no, w.subpath(r.Path)), append(denied, r.Path)
				closed[r.Path] = true
			} else {
				yes, allowed = append(yes, w.subpath(r.Path)), append(allowed, r.Path)
			}
		}
		w.rules("allow", reading, yes)
		w.rules("deny", reading, no)
	}
	// The loader reads the root's list of names. The directories on the way to readable paths can
	// be looked at, and a closed path can be seen to exist.
	w.rule("allow", "file-read*", `(literal "/")`)
	var seen []string
	for _, p := range []string{"/etc", "/tmp", "/var"} {
		seen = append(seen, w.literal(p))
	}
	for _, p := range allowed {
		var way []string
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			way = append(way, w.literal(dir))
			if !open || closed[dir] {
				seen = append(seen, way...)
				way = nil
			}
		}
	}
	for _, p := range denied {
		seen = append(seen, w.literal(p))
	}
	w.rules("allow", "file-read-metadata", unique(seen))
}

// writes writes the rules for writing.
func (w *writer) writes() {
	w.comment("writing")
	if w.box.WriteDefault == settings.Writable {
		w.rule("allow", "file-write*")
	}
	for _, r := range w.box.Replaced { // with what is written beside it and renamed
		w.rule("allow", "file-write*", "(regex "+w.quoted("^"+escape(w.real(r.Path))+"([.-][^/]*)?$")+")")
	}
	for _, group := range w.byDepth() {
		var yes, no []string
		for _, r := range group {
			if r.Access == settings.Writable {
				yes = append(yes, w.subpath(r.Path))
			} else {
				no = append(no, w.subpath(r.Path))
			}
		}
		w.rules("allow", "file-write*", yes)
		w.rules("deny", "file-write*", no)
	}
	// A directory that contains something closed can't be moved. Otherwise its contents would get
	// another path.
	var pinned []string
	for _, r := range w.box.Paths {
		if r.Access != settings.Writable {
			pinned = append(pinned, w.above(w.real(r.Path))...)
		}
	}
	w.rules("deny", "file-write-unlink", unique(pinned))
	// A program with other rights would outlive the box. Hard links (file-link) are denied by
	// default, because a new name would be judged by its own directory.
	w.rule("deny", "file-write-setugid")
}

// above returns filters for the directories above a writable path.
func (w *writer) above(p string) []string {
	var out []string
	for p != "/" {
		p = path.Dir(p)
		if w.writable(p) {
			out = append(out, w.literal(p))
		}
	}
	return out
}

// writable reports whether the rules about paths alone allow writing to p.
func (w *writer) writable(p string) bool {
	if w.said == nil {
		w.said = map[string]settings.Access{}
		for _, r := range w.box.Paths {
			w.said[w.real(r.Path)] = r.Access
		}
	}
	for {
		if access, ok := w.said[p]; ok {
			return access == settings.Writable
		}
		if p == "/" {
			return w.box.WriteDefault == settings.Writable
		}
		p = path.Dir(p)
	}
}

// temp opens the box's own directory.
func (w *writer) temp() {
	if w.options.Temp == "" {
		return
	}
	t := w.real(w.options.Temp)
	w.comment("the box's own directory")
	w.rule("allow", reading+" file-write*", w.subpath(t))
	w.rule("deny", "file-write-unlink", w.literal(t))
	w.rule("deny", "file-write-setugid", w.subpath(t))
	var seen []string
	for dir := path.Dir(t); dir != "/"; dir = path.Dir(dir) {
		seen = append(seen, w.literal(dir))
	}
	w.rules("allow", "file-read-metadata", seen)
}

// unique removes repeated entries and keeps the order.
func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}
