package settings

import (
	"cmp"
	"path"
	"slices"
)

// operation is what a rule says about a path.
type operation uint8

const (
	readAllow  operation = iota
	readDeny             // and so not written
	writeAllow           // and so read
	writeDeny
)

func (o operation) deny() bool { return o == readDeny || o == writeDeny }

// decision is one rule about one path.
type decision struct {
	path   string
	op     operation
	layer  int  // its place: the stronger the higher
	glob   bool // found by a pattern, not named
	rule   string
	source Source
	blank  bool
	keep   bool // a rule of its own even if it says what holds above it
	over   bool // wins over what denies the same path in its layer
}

// beats reports whether d decides and not e, for one path: the stronger layer; in one layer what is named and not found; then what denies.
func (d *decision) beats(e *decision) bool {
	switch {
	case e == nil || d.layer != e.layer:
		return e == nil || d.layer > e.layer
	case d.over != e.over:
		return d.over
	case d.glob != e.glob:
		return !d.glob
	}
	return d.op.deny() && !e.op.deny()
}

// point is what was decided about one path.
type point struct{ read, write *decision }

// tree holds the decisions by path.
type tree struct {
	points       map[string]*point
	readDefault  bool
	writeDefault bool
	private      map[string]bool
	// system are directories that are read although nothing is by default. They are part of the default and no decisions, so that
	// whatever closes something above them closes them too.
	system map[string]*decision
}

func (t *tree) add(d *decision) {
	p := t.points[d.path]
	if p == nil {
		p = &point{}
		t.points[d.path] = p
	}
	if d.op != writeDeny && d.beats(p.read) {
		p.read = d
	}
	if d.op != readAllow && d.beats(p.write) {
		p.write = d
	}
}

// nearest finds the rules that decide about a path: those of its longest prefix, for each of reading and writing.
func (t *tree) nearest(p string) (read, write *decision) {
	for {
		if at := t.points[p]; at != nil {
			if read == nil {
				read = at.read
			}
			if write == nil {
				write = at.write
			}
		}
		if p == "/" || p == "." || read != nil && write != nil {
			return read, write
		}
		p = path.Dir(p)
	}
}

// access decides about a path, and says by which rule.
func (t *tree) access(p string) (Access, *decision) {
	read, write := t.nearest(p)
	if read == nil && !t.readDefault {
		read = t.ofSystem(p)
	}
	if read == nil && !t.readDefault || read != nil && read.op.deny() {
		return Denied, read
	}
	if write == nil && t.writeDefault {
		return Writable, read
	}
	if write != nil && !write.op.deny() {
		return Writable, write
	}
	if write != nil {
		return Readable, write
	}
	return Readable, read
}

// ofSystem finds the directory of the system that a path lies in.
func (t *tree) ofSystem(p string) *decision {
	for dir, d := range t.system {
		if inside(p, dir) {
			return d
		}
	}
	return nil
}

// rules lists what the paths come to, without those that only repeat what holds above them.
func (t *tree) rules(shorten func(string) string) []PathRule {
	out := make([]PathRule, 0, len(t.points))
	paths := make([]string, 0, len(t.points))
	for p := range t.points {
		paths = append(paths, p)
	}
	for p := range t.system {
		if t.points[p] == nil {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, comparePaths)
	kept := map[string]Access{}
	for _, p := range paths {
		a, d := t.access(p)
		above := t.above(p, kept)
		if d == nil || a == above && !d.keep || a == Readable && above == "private" && !t.readIn(p) {
			continue
		}
		kept[p] = a
		r := PathRule{Path: p, Access: a, Rule: d.rule, Source: d.source, Blank: d.blank && a == Denied}
		switch a {
		case Denied:
			r.Allow = "--read " + shorten(p)
		case Readable:
			r.Allow = "--write " + shorten(p)
		}
		out = append(out, r)
	}
	return out
}

// readIn reports whether what may be read at p was said inside of the box's own directory that p lies in. What
// only closes there must not make this machine's files visible.
func (t *tree) readIn(p string) bool {
	for !t.private[p] {
		if at := t.points[p]; at != nil && at.read != nil {
			return !at.read.op.deny()
		}
		if p == "/" {
			return false
		}
		p = path.Dir(p)
	}
	return false
}

// above is the access that holds for p without a rule of its own.
func (t *tree) above(p string, kept map[string]Access) Access {
	for p != "/" {
		p = path.Dir(p)
		if a, ok := kept[p]; ok {
			return a
		}
		if t.private[p] {
			return "private"
		}
	}
	return t.fallback()
}

func (t *tree) fallback() Access {
	switch {
	case !t.readDefault:
		return Denied
	case t.writeDefault:
		return Writable
	}
	return Readable
}

// comparePaths sorts so that a directory comes right before what is in it.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			if a[i] == '/' {
				return -1
			}
			if b[i] == '/' {
				return 1
			}
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
